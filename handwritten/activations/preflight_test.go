package activations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"magicstick.dev/operator/generated/conditions"
)

// node makes a Ready node from "resource=count" and "label=value" pairs.
func node(name string, memoryMi int64, pairs ...string) Node {
	node := Node{
		Name: name, Ready: true, Architecture: "amd64", MemoryMi: memoryMi,
		Extended: map[string]int64{}, Features: map[string]string{},
	}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		if quantity, err := resource.ParseQuantity(value); err == nil && !strings.HasPrefix(key, "feature.") && !strings.Contains(key, "gpu.") {
			node.Extended[key] = quantity.Value()
			continue
		}
		node.Features[key] = value
	}
	return node
}

func notReady(node Node) Node {
	node.Ready = false
	return node
}

const avx512, avx2 = labelCPUFeature + "AVX512F=true", labelCPUFeature + "AVX2=true"

// Ruling 2, pre-flight: everything that is advice, and where there is none.
func TestPreflightAdvice(t *testing.T) {
	const onGPU = "url: hf://a/b, vram: 20Gi"
	const onCPU = "url: hf://a/b, computeTarget: cpu"
	for name, test := range map[string]struct {
		local  string
		nodes  []Node
		advice string
	}{
		"a node that has all":                  {onGPU, []Node{node("n", 64000, "nvidia.com/gpu=1", "nvidia.com/gpu.memory=24564")}, ""},
		"no nodes":                             {onCPU, nil, ""},
		"no device anywhere is no matter here": {onGPU, []Node{node("n", 1)}, ""},
		"unknown RAM":                          {onCPU, []Node{node("n", 0)}, ""},
		"exactly enough RAM":                   {onCPU, []Node{node("n", 4096)}, ""},
		"too little RAM anywhere": {
			onCPU, []Node{node("a", 2000), node("b", 4095), node("c", 100)},
			"No ready node can give 4096 Mi of RAM; b has the most for Pods, 4095 Mi.",
		},
		"a larger node that is not Ready": {
			onCPU, []Node{node("a", 2000), notReady(node("b", 64000))},
			"No ready node can give 4096 Mi of RAM; a has the most for Pods, 2000 Mi.",
		},
		"one node of unknown RAM may have it": {onCPU, []Node{node("a", 2000), node("b", 0)}, ""},
		"only nodes with the device count": {
			onGPU, []Node{node("a", 64000), node("b", 2000, "nvidia.com/gpu=1")},
			"No ready node can give 6144 Mi of RAM; b has the most for Pods, 2000 Mi.",
		},
		"nobody Ready": {
			onCPU, []Node{notReady(node("a", 1)), notReady(node("b", 1)), notReady(node("c", 1)), notReady(node("d", 1)), notReady(node("e", 1))},
			"No node that could run the model is Ready: a, b, c and 2 more.",
		},
		"devices on two nodes": {
			onGPU + ", args: [-tp, '2']", []Node{node("a", 64000, "nvidia.com/gpu=1"), node("b", 64000, "nvidia.com/gpu=1")},
			"No node has the 2 nvidia.com/gpu that a replica needs; a has 1.",
		},
		"devices on one node": {onGPU + ", args: [-tp, '2']", []Node{node("a", 64000, "nvidia.com/gpu=2")}, ""},
		"budget above any device": {
			onGPU, []Node{node("a", 64000, "nvidia.com/gpu=1", "nvidia.com/gpu.memory=16376"), node("b", 64000, "nvidia.com/gpu=4", "nvidia.com/gpu.memory=8192")},
			"The GPU budget of 20480 Mi for a device is more than any has; the largest is on a and has 16376 Mi.",
		},
		"budget of two devices": {onGPU + ", args: [-tp=2]", []Node{node("a", 64000, "nvidia.com/gpu=2", "nvidia.com/gpu.memory=16376")}, ""},
		"budget that no two devices have": {
			"url: hf://a/b, vramMi: 40001, args: [-tp=2]", []Node{node("a", 64000, "nvidia.com/gpu=2", "nvidia.com/gpu.memory=20000")},
			"The GPU budget of 20001 Mi for a device is more than any has; the largest is on a and has 20000 Mi.",
		},
		"one device of unknown size":  {onGPU, []Node{node("a", 64000, "nvidia.com/gpu=1", "nvidia.com/gpu.memory=16376"), node("b", 64000, "nvidia.com/gpu=1")}, ""},
		"a size that nobody can read": {onGPU, []Node{node("a", 64000, "nvidia.com/gpu=1", "nvidia.com/gpu.memory=plenty")}, ""},
		"AMD with a unit": {
			onGPU + ", computeTarget: amd-gpu", []Node{node("a", 64000, "amd.com/gpu=1", "amd.com/gpu.vram=16G")},
			"The GPU budget of 20480 Mi for a device is more than any has; the largest is on a and has 16384 Mi.",
		},
		"Intel publishes no size": {onGPU + ", computeTarget: intel-gpu", []Node{node("a", 64000, "gpu.intel.com/xe=1")}, ""},

		"processor with the extension":  {onCPU, []Node{node("n", 64000, avx2, avx512)}, ""},
		"processor without":             {onCPU, []Node{node("n", 64000, avx2)}, "VLLM on cpu needs a processor with AVX512F, which is missing on: n."},
		"processor that says false":     {onCPU, []Node{node("n", 64000, labelCPUFeature+"AVX512F=false")}, "VLLM on cpu needs a processor with AVX512F, which is missing on: n."},
		"one of two":                    {onCPU, []Node{node("a", 64000, avx512), node("b", 64000, avx2)}, "VLLM on cpu needs a processor with AVX512F, which is missing on: b."},
		"nothing known":                 {onCPU, []Node{node("n", 64000, "feature.node.kubernetes.io/pci-10de.present=true")}, ""},
		"another architecture":          {onCPU, []Node{{Name: "n", Ready: true, Architecture: "arm64", MemoryMi: 64000, Features: map[string]string{labelCPUFeature + "ASIMD": "true"}}}, ""},
		"Ollama takes any processor":    {"engine: OLlama, url: 'ollama://x', computeTarget: cpu", []Node{node("n", 64000, avx2)}, ""},
		"a GPU model takes any as well": {onGPU, []Node{node("n", 64000, "nvidia.com/gpu=1", avx2)}, ""},

		"as planned":      {"preset: qwen2505bcpu, vram: 4Gi", []Node{node("n", 64000, "nvidia.com/gpu=1")}, ""},
		"below the plan":  {"preset: qwen2505bcpu, vram: 4095Mi", []Node{node("n", 64000, "nvidia.com/gpu=1")}, "The catalog plans 4096 Mi of GPU memory for artifact bf16, the budget is 4095 Mi."},
		"Ollama below it": {"engine: OLlama, preset: qwen2505bcpu, vram: 1Gi", []Node{node("n", 64000, "nvidia.com/gpu=1")}, "The catalog plans 2048 Mi of GPU memory for artifact q4-k-m, the budget is 1024 Mi."},
		"weights in RAM count as planned": {
			"preset: qwen2505bcpu, vram: 3Gi, cpuOffloading: true, cpuOffloadMi: 1024, memoryRequiredMi: 2048", []Node{node("n", 64000, "nvidia.com/gpu=1")}, "",
		},
		"and are too few": {
			"preset: qwen2505bcpu, vram: 3Gi, cpuOffloading: true, cpuOffloadMi: 1023, memoryRequiredMi: 2048", []Node{node("n", 64000, "nvidia.com/gpu=1")},
			"The catalog plans 4096 Mi of GPU memory for artifact bf16, the budget is 3072 Mi.",
		},
		"RAM below the plan": {
			"preset: qwen2505bcpu, computeTarget: cpu, memoryRequiredMi: 1024", []Node{node("n", 64000)},
			"The catalog plans 4096 Mi of RAM for artifact bf16, the request is 1024 Mi.",
		},
		"several at once": {
			"preset: qwen2505bcpu, vram: 2Gi", []Node{notReady(node("n", 100, "nvidia.com/gpu=1", "nvidia.com/gpu.memory=1024"))},
			"The catalog plans 4096 Mi of GPU memory for artifact bf16, the budget is 2048 Mi. No node that could run the model is Ready: n. " +
				"The GPU budget of 2048 Mi for a device is more than any has; the largest is on n and has 1024 Mi.",
		},
		"FreeToken on its node":     {"engine: FreeToken, url: hf://a/b, freetoken: {gpuDevice: 'n/0000:01:00.0', gpuMemoryMi: 100, systemMemoryMi: 200}", []Node{node("n", 200, "nvidia.com/gpu=1")}, ""},
		"FreeToken on a small node": {"engine: FreeToken, url: hf://a/b, freetoken: {gpuDevice: 'n/0000:01:00.0', gpuMemoryMi: 100, systemMemoryMi: 200}", []Node{node("big", 999, "nvidia.com/gpu=1"), node("n", 199, "nvidia.com/gpu=1")}, "No ready node can give 200 Mi of RAM; n has the most for Pods, 199 Mi."},
		"FreeToken without a node":  {"engine: FreeToken, url: hf://a/b, freetoken: {gpuDevice: 'gone/0000:01:00.0', gpuMemoryMi: 100, systemMemoryMi: 200}", []Node{node("n", 200, "nvidia.com/gpu=1")}, "There is no node gone."},
		"FreeToken's node has no device": {
			"engine: FreeToken, url: hf://a/b, freetoken: {gpuDevice: 'n/0000:01:00.0', gpuCount: 2, gpuMemoryMi: 100, systemMemoryMi: 200}", []Node{node("n", 200), node("o", 200, "nvidia.com/gpu=2")},
			"No node has the 2 nvidia.com/gpu that a replica needs; n has 0.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			advice, err := Preflight(resolve(t, test.local), test.nodes)
			require.NoError(t, err)
			assert.Equal(t, test.advice, advice)
		})
	}
}

// What a prepared model's own figures add.
func TestPreflightOfPreparedModels(t *testing.T) {
	device := []Node{node("n", 64000, "nvidia.com/gpu=1", "nvidia.com/gpu.memory=81920")}
	const ref = "modelRef: {kind: ClusterModel, name: qwen}"
	for name, test := range map[string]struct {
		local      string
		size       int64 // Mi
		parameters int64 // millions
		advice     string
		refused    string
	}{
		"fits the budget":  {"vram: 4Gi, " + ref, 4096, 0, "", ""},
		"weights too big":  {"vram: 4Gi, " + ref, 4097, 0, "The weights alone take 4097 Mi of GPU memory, the budget is 4096 Mi.", ""},
		"halved on load":   {"vram: 4Gi, " + ref, 8192, 2048, "", ""},
		"size not known":   {"vram: 4Gi, " + ref, 0, 90000, "", ""},
		"rest in RAM":      {"vram: 4Gi, cpuOffloading: true, cpuOffloadMi: 4096, memoryRequiredMi: 6144, " + ref, 8192, 0, "", ""},
		"rest not all":     {"vram: 4Gi, cpuOffloading: true, cpuOffloadMi: 4095, memoryRequiredMi: 6144, " + ref, 8192, 0, "The weights alone take 4097 Mi of GPU memory, the budget is 4096 Mi.", ""},
		"no more than all": {"vram: 4Gi, cpuOffloading: true, cpuOffloadMi: 16384, memoryRequiredMi: 6144, " + ref, 4096, 0, "", ""},
		"RAM too small": {
			"vram: 4Gi, cpuOffloading: true, cpuOffloadMi: 16384, memoryRequiredMi: 4096, " + ref, 4096, 0, "",
			"a replica with 4096 Mi of its weights in RAM needs at least 4097 Mi of RAM",
		},
		"on cpu": {"computeTarget: cpu, " + ref, 3583, 0, "", ""},
		"on cpu too small": {
			"computeTarget: cpu, " + ref, 3584, 0, "",
			"a replica with 3584 Mi of weights and a KV cache of 536870912 bytes needs at least 4097 Mi of RAM",
		},
		"on cpu at one's own risk": {
			"computeTarget: cpu, allowMemoryRisk: true, " + ref, 3584, 0,
			"By allowMemoryRisk, a replica with 3584 Mi of weights and a KV cache of 536870912 bytes gets 4096 Mi of RAM instead of at least 4097 Mi.", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := withPrepared(t, test.local, func(prepared *PreparedModel) {
				prepared.SizeBytes, prepared.ParameterCount = test.size<<20, test.parameters<<20
			})
			resolved, err := Resolve(f)
			if test.refused != "" {
				assertCovers(t, resolved, err, test.refused)
				return
			}
			require.NoError(t, err)
			advice, err := Preflight(resolved, device)
			require.NoError(t, err)
			assert.Equal(t, test.advice, advice)
		})
	}
	t.Run("FreeToken may use both kinds of memory", func(t *testing.T) {
		const local = "engine: FreeToken, freetoken: {gpuDevice: 'n/0000:01:00.0', gpuMemoryMi: 1000, systemMemoryMi: 1000}, " + ref
		for size, want := range map[int64]string{2000: "", 2001: "The weights take 2001 Mi, GPU memory and RAM together are 2000 Mi."} {
			resolved, err := Resolve(withPrepared(t, local, func(prepared *PreparedModel) { prepared.SizeBytes = size << 20 }))
			require.NoError(t, err)
			advice, err := Preflight(resolved, device)
			require.NoError(t, err)
			assert.Equal(t, want, advice)
		}
	})
}

// assertCovers wants the same refusal from both places that ask.
func assertCovers(t *testing.T, resolved *Resolved, err error, rule string) {
	t.Helper()
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, conditions.ModelActivationReasonInvalidModelSpec, refusal.Reason)
	assert.Equal(t, "spec.local.memoryRequiredMi", refusal.Field)
	assert.Contains(t, refusal.Rule, rule)
	_, again := Preflight(resolved, nil)
	assert.Equal(t, err, again)
}

// Case S035: host RAM below what is taken off the GPU is refused, and with the
// risk accepted nothing but that changes.
func TestPreflightHostCoverage(t *testing.T) {
	nodes := []Node{node("n", 64000, "nvidia.com/gpu=1")}
	for name, test := range map[string]struct{ low, enough, rule, advice string }{
		"VLLM": {
			"url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 512, cpuOffloadMi: 512",
			"url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 528, cpuOffloadMi: 512",
			"a replica with 512 Mi of its weights in RAM needs at least 513 Mi",
			"By allowMemoryRisk, a replica with 512 Mi of its weights in RAM gets 512 Mi of RAM instead of at least 513 Mi.",
		},
		"VLLM on cpu": {
			"url: hf://a/b, computeTarget: cpu, memoryRequiredMi: 512",
			"url: hf://a/b, computeTarget: cpu, memoryRequiredMi: 528",
			"a replica with a KV cache of 536870912 bytes needs at least 513 Mi",
			"By allowMemoryRisk, a replica with a KV cache of 536870912 bytes gets 512 Mi of RAM instead of at least 513 Mi.",
		},
		"OLlama": {
			"engine: OLlama, preset: qwen2505bcpu, artifact: fp16, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 2048",
			"engine: OLlama, preset: qwen2505bcpu, artifact: fp16, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 2064",
			"artifact fp16, planned with 3072 Mi on the GPU and given 1024 Mi there, needs at least 2049 Mi",
			"By allowMemoryRisk, artifact fp16, planned with 3072 Mi on the GPU and given 1024 Mi there, gets 2048 Mi of RAM instead of at least 2049 Mi.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := Resolve(facts(t, test.low))
			assertCovers(t, wanted, err, test.rule)
			_, err = Preflight(wanted, nodes)
			require.Error(t, err, "nodes do not change it")

			enough := resolve(t, test.enough)
			advice, err := Preflight(enough, nodes)
			require.NoError(t, err)
			assert.Empty(t, advice)

			risky := resolve(t, test.low+", allowMemoryRisk: true")
			advice, err = Preflight(risky, nodes)
			require.NoError(t, err)
			assert.Equal(t, test.advice, advice)
			assert.EqualValues(t, 512, risky.MemoryMi-(enough.MemoryMi-528), "the request stays what it was")
			assert.Equal(t, enough.Args, risky.Args)
			assert.Equal(t, enough.Env, risky.Env)
			assert.Equal(t, enough.Profile.Spec.Limits["memory"] != "", risky.Profile.Spec.Limits["memory"] != "")
		})
	}
	t.Run("OLlama with all of it on the GPU", func(t *testing.T) {
		resolve(t, "engine: OLlama, preset: qwen2505bcpu, vram: 2Gi, cpuOffloading: true, memoryRequiredMi: 16")
	})
	t.Run("OLlama of which nothing is known", func(t *testing.T) {
		resolve(t, "engine: OLlama, url: 'ollama://x', vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 16")
	})
}

// The node's RAM is a hard limit for a realtime profile, whatever risk is taken.
func TestPreflightOfRealtime(t *testing.T) {
	for _, risk := range []string{"", ", allowMemoryRisk: true"} {
		resolved := resolve(t, "url: hf://a/b, realtime: {profile: omni-cuda, gpuNode: 'n', systemMemoryMi: 1000}"+risk)
		advice, err := Preflight(resolved, []Node{node("n", 1000, "nvidia.com/gpu=2")})
		require.NoError(t, err)
		assert.Empty(t, advice)
		for _, small := range []Node{node("n", 999, "nvidia.com/gpu=2"), notReady(node("n", 999))} {
			_, err = Preflight(resolved, []Node{node("big", 64000, "nvidia.com/gpu=2"), small})
			require.EqualError(t, err, `resolving the activation: spec.local.realtime.systemMemoryMi: node n has 999 Mi of RAM for Pods, got "1000"`)
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, conditions.ModelActivationReasonInvalidModelSpec, refusal.Reason)
		}
		advice, err = Preflight(resolved, []Node{node("other", 999)})
		require.NoError(t, err, "a node that is not there is no refusal")
		assert.Equal(t, "There is no node n.", advice)
		_, err = Preflight(resolved, []Node{node("n", 0, "nvidia.com/gpu=2")})
		require.NoError(t, err, "unknown")
	}
	t.Run("RAM of the plan", func(t *testing.T) {
		resolved := resolve(t, "url: hf://a/b, realtime: {profile: omni-cuda, gpuNode: 'n'}")
		_, err := Preflight(resolved, []Node{node("n", resolved.MemoryMi-1)})
		require.Error(t, err)
	})
	t.Run("processor", func(t *testing.T) {
		resolved := resolve(t, "url: hf://a/b, realtime: {profile: omni-cpu, gpuNode: 'n'}")
		advice, err := Preflight(resolved, []Node{node("n", 1<<20, avx2), node("other", 1<<20, avx2)})
		require.NoError(t, err)
		assert.Equal(t, "VLLM on cpu needs a processor with AVX512F, which is missing on: n.", advice)
	})
}

// External models never look at nodes.
func TestPreflightOfExternalModels(t *testing.T) {
	advice, err := Preflight(&Resolved{Runtime: RuntimeExternal, MemoryMi: 1 << 20}, []Node{notReady(node("n", 1))})
	require.NoError(t, err)
	assert.Empty(t, advice)
}

func TestNodesFrom(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		resources := corev1.ResourceList{}
		for _, pair := range pairs {
			name, value, _ := strings.Cut(pair, "=")
			resources[corev1.ResourceName(name)] = resource.MustParse(value)
		}
		return resources
	}
	ready := []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	nodes := NodesFrom([]corev1.Node{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "2", Labels: map[string]string{
				"kubernetes.io/arch": "arm64", "kubernetes.io/hostname": "b", "nvidia.com/gpu.memory": "81920", labelCPUFeature + "SVE": "true", "amd.com/gpu.vram": "16G",
			}},
			Status: corev1.NodeStatus{
				Conditions: ready, NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64"},
				Allocatable: list("memory=2Gi", "cpu=4", "nvidia.com/gpu=2", "amd.com/gpu=0"), Capacity: list("memory=4Gi", "nvidia.com/gpu=9"),
			},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64"}, Capacity: list("memory=1048575Ki")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.NodeSpec{Unschedulable: true}, Status: corev1.NodeStatus{Conditions: ready}},
	})
	assert.Equal(t, []Node{
		{Name: "a", Architecture: "amd64", MemoryMi: 1023, Extended: map[string]int64{}, Features: map[string]string{}},
		{
			Name: "b", UID: "2", Ready: true, Architecture: "arm64", MemoryMi: 2048, Extended: map[string]int64{"nvidia.com/gpu": 2},
			Features: map[string]string{"nvidia.com/gpu.memory": "81920", labelCPUFeature + "SVE": "true", "amd.com/gpu.vram": "16G"},
		},
		{Name: "c", Extended: map[string]int64{}, Features: map[string]string{}},
	}, nodes)
}
