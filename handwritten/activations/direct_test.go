package activations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
)

const freeTokenBase = "engine: FreeToken, url: hf://a/b, freetoken: {gpuDevice: 'worker-1/0000:01:00.0', gpuMemoryMi: 24000, systemMemoryMi: 8192"

// Cases S052 and S053.
func TestFreeToken(t *testing.T) {
	resolved := resolve(t, freeTokenBase+", gpuCount: 2, restartNonce: again}, contextWindow: 4096, maxNumSeqs: 3")
	assert.Equal(t, []string{"gpu", "litellm", "model-catalog"}, resolved.Modules)
	assert.Equal(t, "freetoken/model", resolved.ModelRef())
	assert.EqualValues(t, 24000, resolved.VRAMRequiredMi())
	assert.EqualValues(t, 8192, resolved.MemoryMi)
	assert.Empty(t, resolved.RequestedKVCacheType)
	assert.Equal(t, catalogs.CPU{RequestMillicores: 4000}, resolved.CPU)
	assert.Equal(t, "worker-1", resolved.Direct.Node)
	assert.Equal(t, []string{"--model=a/b", "--served-model-name=model", "--host=0.0.0.0", "--port=8000", "--context-window=4096", "--max-num-seqs=3"},
		resolved.Args, "the strategy auto needs no argument")

	pod := EngineOf(resolved).Render(resolved, Settings{}).Deployment.Spec.Template
	resources := pod.Spec.Containers[0].Resources
	for _, list := range []corev1.ResourceList{*resources.Requests, *resources.Limits} {
		assert.Equal(t, "2", list.Name("nvidia.com/gpu", "").String())
		assert.Equal(t, "8Gi", list.Memory().String())
	}
	assert.Equal(t, "again", pod.Annotations[AnnotationRestartNonce])
	assert.Equal(t, "worker-1/0000:01:00.0", pod.Annotations[AnnotationGPUDevice])

	assert.EqualValues(t, 1, resolve(t, freeTokenBase+"}").Devices)
	resolved = resolve(t, freeTokenBase+", memoryStrategy: gpu-only}, cpuResources: {requestMillicores: 1000, limitMillicores: 2000}")
	assert.Contains(t, resolved.Args, "--memory-strategy=gpu-only")
	assert.Equal(t, catalogs.CPU{RequestMillicores: 1000, LimitMillicores: 2000}, resolved.CPU)
}

func TestFreeTokenRefused(t *testing.T) {
	for name, test := range map[string]struct{ local, field string }{
		"no block":           {"engine: FreeToken, url: hf://a/b", "spec.local.freetoken"},
		"unknown strategy":   {freeTokenBase + ", memoryStrategy: magic}", "spec.local.freetoken.memoryStrategy"},
		"unknown setting":    {freeTokenBase + ", advanced: {cache-dir: /x}}", "spec.local.freetoken.advanced.cache-dir"},
		"device without pci": {"engine: FreeToken, url: hf://a/b, freetoken: {gpuDevice: worker-1, gpuMemoryMi: 1, systemMemoryMi: 1}", "spec.local.freetoken.gpuDevice"},
		"ollama address":     {strings.Replace(freeTokenBase, "hf://a/b", "'ollama://x'", 1) + "}", "spec.local.url"},
		"on cpu":             {freeTokenBase + "}, computeTarget: cpu", "spec.local.computeTarget"},
		"two replicas":       {freeTokenBase + "}, maxReplicas: 2", "spec.local.maxReplicas"},
		"two at least":       {freeTokenBase + "}, minReplicas: 2", "spec.local.minReplicas"},
		"kvCacheType":        {freeTokenBase + "}, kvCacheType: auto", "spec.local.kvCacheType"},
		"kvCacheMemoryBytes": {freeTokenBase + "}, kvCacheMemoryBytes: 1", "spec.local.kvCacheMemoryBytes"},
		"cpuOffloading":      {freeTokenBase + "}, cpuOffloading: false", "spec.local.cpuOffloading"},
		"cpuOffloadMi":       {freeTokenBase + "}, cpuOffloadMi: 0", "spec.local.cpuOffloadMi"},
		"ollamaGpuLayers":    {freeTokenBase + "}, ollamaGpuLayers: 1", "spec.local.ollamaGpuLayers"},
		"vllm":               {freeTokenBase + "}, vllm: {}", "spec.local.vllm"},
		"vram":               {freeTokenBase + "}, vram: 1Gi", "spec.local.vram"},
		"vramMi":             {freeTokenBase + "}, vramMi: 1", "spec.local.vramMi"},
		"memoryRequiredMi":   {freeTokenBase + "}, memoryRequiredMi: 16", "spec.local.memoryRequiredMi"},
		"args":               {freeTokenBase + "}, args: [--x]", "spec.local.args"},
		"env":                {freeTokenBase + "}, env: {A: b}", "spec.local.env"},
		"limit too small":    {freeTokenBase + "}, cpuResources: {limitMillicores: 3999}", "spec.local.cpuResources.limitMillicores"},
		"block on VLLM":      {"url: hf://a/b, vram: 1Gi, freetoken: {gpuDevice: 'n/0000:01:00.0', gpuMemoryMi: 1, systemMemoryMi: 1}", "spec.local.freetoken"},
		"preset without it":  {strings.Replace(freeTokenBase, "url: hf://a/b", "preset: qwen3827b", 1) + "}", "spec.local.preset"},
	} {
		t.Run(name, func(t *testing.T) {
			refusal := refuse(t, facts(t, test.local))
			assert.Equal(t, test.field, refusal.Field)
			assert.Equal(t, conditions.ModelActivationReasonInvalidModelSpec, refusal.Reason)
		})
	}
	t.Run("strategies are listed", func(t *testing.T) {
		assert.Equal(t, []string{"auto", "gpu-first", "gpu-only"}, refuse(t, facts(t, freeTokenBase+", memoryStrategy: magic}")).Allowed)
	})
}

// Further settings are what the catalog defines (H20).
func TestFreeTokenAdvanced(t *testing.T) {
	f := facts(t, freeTokenBase+", advanced: {speed: fast, cache: /x}}")
	var err error
	f.Engines, err = catalogs.ParseEngines([]byte(strings.Replace(string(shipped.ShippedEngineCatalogJSON()), `"freetoken":{`,
		`"freetoken":{"advanced":{"cache":{"title":"C","args":["--cache","{value}"]},"speed":{"title":"S","values":["fast"],"args":["--speed={value}"]}},`, 1)))
	require.NoError(t, err)
	resolved, err := Resolve(f)
	require.NoError(t, err)
	assert.Equal(t, []string{"--cache", "/x", "--speed=fast"}, resolved.Args[len(resolved.Args)-3:])
	f.Activation.Spec.Local.Freetoken.Advanced["speed"] = "slow"
	assert.Equal(t, []string{"fast"}, refuse(t, f).Allowed)
}

// realtimeBase is the start of a realtime activation with the given profile.
func realtimeBase(profile string) string {
	return "url: hf://Qwen/Qwen3-Omni, realtime: {gpuNode: worker-1, profile: " + profile
}

// The target follows from the profile, and the module from the target
// (contract/appliance.md C.6).
func TestRealtimeProfiles(t *testing.T) {
	for _, test := range []struct {
		profile, target, modules, resource string
		devices                            int64
	}{
		{"omni-cuda", "nvidia-gpu", "gpu litellm model-catalog", "nvidia.com/gpu", 1},
		{"omni-rocm", "amd-gpu", "amd-gpu litellm model-catalog", "amd.com/gpu", 1},
		{"omni-xpu", "intel-gpu", "intel-gpu litellm model-catalog", "gpu.intel.com/xe", 1},
		{"omni-cpu", "cpu", "litellm model-catalog", "", 0},
	} {
		for _, given := range append([]string{""}, allTargets...) {
			t.Run(test.profile+"/"+given, func(t *testing.T) {
				local := realtimeBase(test.profile) + "}"
				if given != "" {
					local += ", computeTarget: " + given
				}
				f := facts(t, local)
				if given != "" && given != test.target {
					refusal := refuse(t, f)
					assert.Equal(t, "spec.local.computeTarget", refusal.Field)
					assert.Equal(t, []string{test.target}, refusal.Allowed)
					return
				}
				resolved, err := Resolve(f)
				require.NoError(t, err)
				assert.Equal(t, test.target, string(resolved.Target))
				assert.Equal(t, "VLLM", string(resolved.Engine))
				assert.Equal(t, "realtime/model", resolved.ModelRef())
				assert.Equal(t, test.modules, strings.Join(resolved.Modules, " "))
				assert.Equal(t, test.devices, resolved.Devices)
				assert.Equal(t, catalogs.CPU{RequestMillicores: 4000}, resolved.CPU)
				assert.True(t, resolved.MemoryLimited)
				assert.Zero(t, resolved.VRAMMi)
				requests := *EngineOf(resolved).Render(resolved, Settings{}).Deployment.Spec.Template.Spec.Containers[0].Resources.Requests
				assert.Len(t, requests, 2+int(test.devices), "S056: cpu asks for no GPU")
				if test.resource != "" {
					assert.Equal(t, "1", requests.Name(corev1.ResourceName(test.resource), "").String())
				}
			})
		}
	}
}

// Case S057 and the plans for exclusive devices.
func TestRealtimeDevices(t *testing.T) {
	for _, test := range []struct {
		profile string
		count   string
		shared  bool
		want    int64 // -1: refused
		allowed string
	}{
		{"omni-cuda", "", false, 1, ""},
		{"omni-cuda", "1", false, 1, ""},
		{"omni-cuda", "2", false, 2, ""},
		{"omni-cuda", "0", false, -1, "1 2"},
		{"omni-cuda", "3", false, -1, "1 2"},
		{"omni-cuda", "", true, 1, ""},
		{"omni-cuda", "1", true, 1, ""},
		{"omni-cuda", "2", true, -1, "1"},
		{"omni-rocm", "2", true, -1, "1"},
		{"omni-cpu", "", false, 0, ""},
		{"omni-cpu", "0", false, 0, ""},
		{"omni-cpu", "1", false, -1, "0"},
		{"omni-cpu", "", true, 0, ""},
	} {
		f := facts(t, realtimeBase(test.profile)+"}")
		if test.count != "" {
			f = facts(t, realtimeBase(test.profile)+", gpuCount: "+test.count+"}")
		}
		f.SharedDevice = test.shared
		if test.want < 0 {
			refusal := refuse(t, f)
			assert.Equal(t, "spec.local.realtime.gpuCount", refusal.Field, test)
			assert.Equal(t, test.allowed, strings.Join(refusal.Allowed, " "), test)
			continue
		}
		resolved, err := Resolve(f)
		require.NoError(t, err, test)
		assert.Equal(t, test.want, resolved.Devices, test)
	}
}

func TestRealtimeSettings(t *testing.T) {
	resolved := resolve(t, realtimeBase("omni-cuda")+", gpuCount: 2, systemMemoryMi: 1000, gpuMemoryFraction: 0.75, thinkerCpuOffloadGiB: 16, restartNonce: again}, contextWindow: 4096, maxNumSeqs: 2")
	assert.Equal(t, []string{"vllm", "serve", "Qwen/Qwen3-Omni", "--omni"}, resolved.Direct.Command)
	assert.Equal(t, []string{"--host=0.0.0.0", "--port=8000", "--served-model-name=model", "--max-model-len=4096", "--max-num-seqs=2",
		"--gpu-memory-utilization=0.75", `--stage-overrides={"0":{"devices":"0","cpu_offload_gb":16},"1":{"devices":"1"},"2":{"devices":"1"}}`}, resolved.Args)
	assert.EqualValues(t, 1000, resolved.MemoryMi)
	assert.Equal(t, map[string]string{AnnotationRestartNonce: "again"}, resolved.Direct.PodAnnotations)

	resolved = resolve(t, realtimeBase("omni-cuda")+", thinkerCpuOffloadGiB: 0}")
	assert.EqualValues(t, 65536, resolved.MemoryMi, "the plan's advice")
	assert.Equal(t, "--gpu-memory-utilization=0.9", resolved.Args[len(resolved.Args)-1], "no overrides without need")

	resolved = resolve(t, realtimeBase("omni-cuda")+", thinkerCpuOffloadGiB: 4}")
	assert.Equal(t, `--stage-overrides={"0":{"cpu_offload_gb":4}}`, resolved.Args[len(resolved.Args)-1])

	for name, test := range map[string]struct{ local, field string }{
		"unknown profile":    {realtimeBase("omni-tpu") + "}", "spec.local.realtime.profile"},
		"no node":            {"url: hf://a/b, realtime: {profile: omni-cuda}", "spec.local.realtime.gpuNode"},
		"fraction above one": {realtimeBase("omni-cuda") + ", gpuMemoryFraction: 1.01}", "spec.local.realtime.gpuMemoryFraction"},
		"fraction below 0":   {realtimeBase("omni-cuda") + ", gpuMemoryFraction: -0.1}", "spec.local.realtime.gpuMemoryFraction"},
		"fraction on cpu":    {realtimeBase("omni-cpu") + ", gpuMemoryFraction: 0.5}", "spec.local.realtime.gpuMemoryFraction"},
		"offload on cpu":     {realtimeBase("omni-cpu") + ", thinkerCpuOffloadGiB: 1}", "spec.local.realtime.thinkerCpuOffloadGiB"},
		"other engine":       {realtimeBase("omni-cuda") + "}, engine: OLlama", "spec.local.engine"},
		"folder in url":      {strings.Replace(realtimeBase("omni-cuda"), "hf://Qwen/Qwen3-Omni", "hf://a/b/c", 1) + "}", "spec.local.url"},
		"bucket":             {strings.Replace(realtimeBase("omni-cuda"), "hf://Qwen/Qwen3-Omni", "s3://a/b", 1) + "}", "spec.local.url"},
		"two replicas":       {realtimeBase("omni-cuda") + "}, maxReplicas: 2", "spec.local.maxReplicas"},
		"vllm":               {realtimeBase("omni-cuda") + "}, vllm: {}", "spec.local.vllm"},
		"kvCacheType":        {realtimeBase("omni-cuda") + "}, kvCacheType: auto", "spec.local.kvCacheType"},
		"kvCacheMemoryBytes": {realtimeBase("omni-cuda") + "}, kvCacheMemoryBytes: 1", "spec.local.kvCacheMemoryBytes"},
		"cpuOffloading":      {realtimeBase("omni-cuda") + "}, cpuOffloading: false", "spec.local.cpuOffloading"},
		"cpuOffloadMi":       {realtimeBase("omni-cuda") + "}, cpuOffloadMi: 0", "spec.local.cpuOffloadMi"},
		"ollamaGpuLayers":    {realtimeBase("omni-cuda") + "}, ollamaGpuLayers: 1", "spec.local.ollamaGpuLayers"},
		"vram":               {realtimeBase("omni-cuda") + "}, vram: 1Gi", "spec.local.vram"},
		"vramMi":             {realtimeBase("omni-cuda") + "}, vramMi: 1", "spec.local.vramMi"},
		"memoryRequiredMi":   {realtimeBase("omni-cuda") + "}, memoryRequiredMi: 16", "spec.local.memoryRequiredMi"},
		"args":               {realtimeBase("omni-cuda") + "}, args: [--x]", "spec.local.args"},
		"env":                {realtimeBase("omni-cuda") + "}, env: {A: b}", "spec.local.env"},
		"cpuResources":       {realtimeBase("omni-cuda") + "}, cpuResources: {}", "spec.local.cpuResources"},
		"freetoken":          {realtimeBase("omni-cuda") + "}, freetoken: {gpuDevice: 'n/0000:01:00.0', gpuMemoryMi: 1, systemMemoryMi: 1}", "spec.local.freetoken"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.field, refuse(t, facts(t, test.local)).Field) })
	}
}

// What a preset says of the ordinary engine does not leak in; its address does.
func TestRealtimeFromPreset(t *testing.T) {
	resolved := resolve(t, "preset: qwen3827b, realtime: {gpuNode: worker-1, profile: omni-cuda}")
	assert.Equal(t, "hf://cyankiwi/Qwen3.8-27B-AWQ-INT4", resolved.URL)
	assert.Equal(t, "awq-int4", resolved.Artifact)
	assert.Zero(t, resolved.ContextWindow)
	assert.Zero(t, resolved.MaxNumSeqs)
	for _, arg := range resolved.Args {
		assert.NotContains(t, arg, "parser")
	}
}

// An image of the user's own is run as it is; the patch belongs to the catalog's.
func TestRealtimeImage(t *testing.T) {
	f := facts(t, realtimeBase("omni-cuda")+"}")
	var err error
	f.Realtime, err = catalogs.ParseRealtime([]byte(strings.Replace(string(shipped.ShippedRealtimeCatalogJSON()), `"backend":"cuda"`,
		`"backend":"cuda","sourcePatch":{"configMap":"fix","key":"a.diff","root":"/opt/vllm"}`, 1)))
	require.NoError(t, err)
	resolved, err := Resolve(f)
	require.NoError(t, err)
	assert.Equal(t, "vllm/vllm-omni:v0.22.0", resolved.Direct.Image)
	assert.Equal(t, &SourcePatch{ConfigMap: "fix", Key: "a.diff", Root: "/opt/vllm"}, resolved.Direct.Patch)
	assert.Equal(t, "/bin/sh", resolved.Direct.Command[0])
	assert.Equal(t, []string{"sh", "vllm", "serve", "Qwen/Qwen3-Omni", "--omni"}, resolved.Direct.Command[3:])

	empty, own := "", "registry.example.com/omni:v1"
	f.Activation.Spec.Local.Realtime.RuntimeImage = &empty
	again, err := Resolve(f)
	require.NoError(t, err)
	assert.Equal(t, resolved, again, "empty is the catalog's")
	f.Activation.Spec.Local.Realtime.RuntimeImage = &own
	resolved, err = Resolve(f)
	require.NoError(t, err)
	assert.Equal(t, own, resolved.Direct.Image)
	assert.Nil(t, resolved.Direct.Patch)
	assert.Equal(t, "vllm", resolved.Direct.Command[0])
}

// The name of a direct runtime becomes the name of a Service.
func TestRuntimeName(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, strings.Repeat("a", 55): true, strings.Repeat("a", 56): false, "gpt-4.1": false, "4o": false, "a-1": true,
	} {
		f := facts(t, freeTokenBase+"}")
		f.Activation.Name = name
		_, err := Resolve(f)
		assert.Equal(t, valid, err == nil, name)
		f = facts(t, realtimeBase("omni-cpu")+"}")
		f.Activation.Name = name
		if _, err = Resolve(f); !valid {
			assert.ErrorContains(t, err, "metadata.name")
		} else {
			assert.NoError(t, err)
		}
	}
}

func TestReasonsOfDirectRuntimes(t *testing.T) {
	assert.Equal(t, APIReasons{"RealtimePermissionDenied", "RealtimeApiRejected", "RealtimeApiUnavailable"}, realtime{}.Reasons())
	assert.Equal(t, APIReasons{"FreeTokenPermissionDenied", "FreeTokenApiRejected", "FreeTokenApiUnavailable"}, freeToken{}.Reasons())
	assert.Equal(t, []Runtime{RuntimeExternal, RuntimeFreeToken, RuntimeOLlama, RuntimeRealtime, RuntimeVLLM}, Runtimes())
	for _, runtime := range Runtimes() {
		known := conditions.ModelActivation
		reasons := engines[runtime].Reasons()
		for _, reason := range []string{reasons.PermissionDenied, reasons.Rejected, reasons.Unavailable} {
			if reason == "" {
				continue
			}
			found := false
			for _, phase := range known.Phases {
				for _, listed := range phase.Reasons {
					found = found || listed == reason
				}
			}
			assert.True(t, found, reason)
		}
	}
}
