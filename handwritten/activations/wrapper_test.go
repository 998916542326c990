package activations

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// image stands for the container image of a model server: a Python of this
// machine, and tools that answer what the test says.
type image struct {
	t                    *testing.T
	python, bin, library string
}

// realPython is the program behind python3, empty when there is none. What is on
// the PATH may be a script that needs the PATH itself.
var realPython = sync.OnceValues(func() (string, error) {
	found, err := exec.LookPath("python3")
	if err != nil {
		return "", nil //nolint:nilerr // not having one is an answer
	}
	real, err := exec.CommandContext(context.Background(), found, "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(real)), err
})

func newImage(t *testing.T) *image {
	t.Helper()
	python, err := realPython()
	require.NoError(t, err)
	if python == "" {
		t.Skip("there is no python3 on this machine, so the wrapper around model servers is not run")
	}
	i := &image{t: t, python: python, bin: t.TempDir(), library: t.TempDir()}
	server := filepath.Join(i.library, "vllm", "entrypoints", "openai")
	require.NoError(t, os.MkdirAll(server, 0o755))
	for file, text := range map[string]string{
		"vllm/__init__.py": "", "vllm/entrypoints/__init__.py": "", "vllm/entrypoints/openai/__init__.py": "",
		"vllm/entrypoints/openai/api_server.py": "import json, sys\nprint(json.dumps(sys.argv[1:]))\n",
		"torch.py":                              "raise ImportError\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(i.library, file), []byte(text), 0o600))
	}
	return i
}

// tool makes an executable that says text.
func (i *image) tool(name, text string) *image {
	i.t.Helper()
	return i.script(name, "printf '%s\\n' '"+text+"'")
}

func (i *image) script(name, body string) *image {
	i.t.Helper()
	require.NoError(i.t, os.WriteFile(filepath.Join(i.bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	return i
}

// torch makes a library whose devices of a kind have the sizes in bytes.
func (i *image) torch(kind string, bytes ...string) *image {
	i.t.Helper()
	text := "class D:\n  sizes = [" + strings.Join(bytes, ",") + "]\n" +
		"  @classmethod\n  def device_count(c): return len(c.sizes)\n" +
		"  @classmethod\n  def get_device_properties(c, n):\n    class P: total_memory = c.sizes[n]\n    return P\n" + kind + " = D\n"
	require.NoError(i.t, os.WriteFile(filepath.Join(i.library, "torch.py"), []byte(text), 0o600))
	return i
}

// run starts a program of the ConfigMap with arguments and variables.
func (i *image) run(interpreter, program string, args []string, env ...string) (code int, stdout, stderr string) {
	i.t.Helper()
	file := filepath.Join(i.t.TempDir(), program)
	require.NoError(i.t, os.WriteFile(file, []byte(WrapperDocument("ai").Data[program]), 0o600))
	require.NoError(i.t, os.WriteFile(filepath.Join(filepath.Dir(file), WrapperKey), []byte(WrapperDocument("ai").Data[WrapperKey]), 0o600))
	arguments := append([]string{file}, args...)
	if interpreter == i.python {
		arguments = append([]string{"-S"}, arguments...) // without the packages of this machine, which take time
	}
	command := exec.CommandContext(i.t.Context(), interpreter, arguments...)
	command.Env = append([]string{"PATH=" + i.bin, "PYTHONPATH=" + i.library, "PYTHONDONTWRITEBYTECODE=1"}, env...)
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	err := command.Run()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(i.t, err, &exit)
	}
	return command.ProcessState.ExitCode(), out.String(), complaint.String()
}

// vllm wants vLLM to be started and gives its arguments.
func (i *image) vllm(args []string, env ...string) []string {
	i.t.Helper()
	code, stdout, stderr := i.run(i.python, WrapperKey, args, env...)
	require.Zero(i.t, code, stderr)
	var got []string
	require.NoError(i.t, json.Unmarshal([]byte(stdout), &got))
	return got
}

// refused wants exit code 2 and one line.
func (i *image) refused(args []string, env ...string) string {
	i.t.Helper()
	code, stdout, stderr := i.run(i.python, WrapperKey, args, env...)
	assert.Equal(i.t, 2, code)
	assert.Empty(i.t, stdout, "nothing was started")
	assert.Equal(i.t, 1, strings.Count(stderr, "\n"), stderr)
	line, ours := strings.CutPrefix(strings.TrimSpace(stderr), "magicstick wrapper: ")
	assert.True(i.t, ours, stderr)
	return line
}

const limit = "MAGICSTICK_VLLM_VRAM_LIMIT="

// The share of a device, from what each tool says of it.
func TestWrapperUtilization(t *testing.T) {
	t.Parallel()
	const amdSMI = `{"gpu_data":[{"gpu":0,"mem_usage":{"total_vram":{"value":20000,"unit":"MB"}}}]}`
	for name, test := range map[string]struct {
		prepare func(*image)
		args    string
		env     string
		want    string
	}{
		"NVIDIA":              {func(i *image) { i.tool("nvidia-smi", "24564") }, "--model=m", limit + "12Gi", "--model=m --gpu-memory-utilization=0.5002"},
		"NVIDIA by name":      {func(i *image) { i.tool("nvidia-smi", "20000") }, "", limit + "10000 MAGICSTICK_COMPUTE_TARGET=nvidia-gpu MAGICSTICK_ENGINE=VLLM", "--gpu-memory-utilization=0.5000"},
		"plain number is MiB": {func(i *image) { i.tool("nvidia-smi", "20000") }, "", limit + "5000", "--gpu-memory-utilization=0.2500"},
		"a fraction is cut":   {func(i *image) { i.tool("nvidia-smi", "10000") }, "", limit + "1.9999m", "--gpu-memory-utilization=0.0500"},
		"all of it":           {func(i *image) { i.tool("nvidia-smi", "20000") }, "", limit + "20000Mi", "--gpu-memory-utilization=0.9800"},
		"hardly any":          {func(i *image) { i.tool("nvidia-smi", "20000") }, "", limit + "1", "--gpu-memory-utilization=0.0500"},
		"the second device":   {func(i *image) { i.tool("nvidia-smi", "10000\n20000") }, "", limit + "15000 MAGICSTICK_GPU_DEVICE=1", "--gpu-memory-utilization=0.7500"},
		"two devices share":   {func(i *image) { i.tool("nvidia-smi", "20000\n10000") }, "-tp 2", limit + "15000", "-tp 2 --gpu-memory-utilization=0.7500"},
		"stages count as well": {
			func(i *image) { i.tool("nvidia-smi", "10000\n10000\n10000\n10000") }, "--pipeline_parallel_size=2 --tensor-parallel-size 2", limit + "20000",
			"--pipeline_parallel_size=2 --tensor-parallel-size 2 --gpu-memory-utilization=0.5000",
		},
		"NVIDIA without its tool":     {func(i *image) { i.torch("cuda", "10737418240") }, "", limit + "5Gi", "--gpu-memory-utilization=0.5000"},
		"NVIDIA with a failing tool":  {func(i *image) { i.script("nvidia-smi", "echo 1; exit 9").torch("cuda", "10737418240") }, "", limit + "5Gi", "--gpu-memory-utilization=0.5000"},
		"NVIDIA with a confused tool": {func(i *image) { i.tool("nvidia-smi", "[N/A]").torch("cuda", "10737418240") }, "", limit + "5Gi", "--gpu-memory-utilization=0.5000"},
		"AMD asks the library first":  {func(i *image) { i.tool("amd-smi", amdSMI).torch("cuda", "10737418240") }, "", limit + "5Gi MAGICSTICK_COMPUTE_TARGET=amd-gpu", "--gpu-memory-utilization=0.5000"},
		"AMD by amd-smi":              {func(i *image) { i.tool("amd-smi", amdSMI) }, "", limit + "5000 MAGICSTICK_COMPUTE_TARGET=amd-gpu", "--gpu-memory-utilization=0.2500"},
		"AMD by an older amd-smi":     {func(i *image) { i.tool("amd-smi", strings.TrimSuffix(strings.TrimPrefix(amdSMI, `{"gpu_data":`), "}")) }, "", limit + "5000 MAGICSTICK_COMPUTE_TARGET=amd-gpu", "--gpu-memory-utilization=0.2500"},
		"AMD by rocm-smi":             {func(i *image) { i.tool("rocm-smi", `{"card0":{"VRAM Total Memory (B)":"17179869184"},"system":{}}`) }, "", limit + "4Gi MAGICSTICK_COMPUTE_TARGET=amd-gpu", "--gpu-memory-utilization=0.2500"},
		"Intel by the library":        {func(i *image) { i.torch("xpu", "17179869184") }, "", limit + "8Gi MAGICSTICK_COMPUTE_TARGET=intel-gpu", "--gpu-memory-utilization=0.5000"},
		"Intel by xpu-smi": {func(i *image) {
			i.script("xpu-smi", `case "$*" in *--device*) echo '{"memory_physical_size_byte":"17179869184"}';; *) echo '{"device_list":[{"device_id":0}]}';; esac`)
		}, "", limit + "8Gi MAGICSTICK_COMPUTE_TARGET=intel-gpu", "--gpu-memory-utilization=0.5000"},
		"no limit changes nothing":     {func(*image) {}, "--gpu-memory-utilization 0.3", "", "--gpu-memory-utilization 0.3"},
		"an empty limit is none":       {func(*image) {}, "--model=m", limit, "--model=m"},
		"CPU asks nobody":              {func(i *image) { i.script("nvidia-smi", "exit 9") }, "--model=m --gpu-memory-utilization=0.9 --kv-cache-memory-bytes=5", "MAGICSTICK_COMPUTE_TARGET=cpu", "--model=m --kv-cache-memory-bytes=5"},
		"CPU has no use for the limit": {func(*image) {}, "--model=m", limit + "4Gi MAGICSTICK_COMPUTE_TARGET=cpu", "--model=m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := newImage(t)
			test.prepare(image)
			assert.Equal(t, test.want, strings.Join(image.vllm(strings.Fields(test.args), strings.Fields(test.env)...), " "))
		})
	}
}

// Whatever a person wrote about the share gives way, in every form.
func TestWrapperStripsTheSharesOfOthers(t *testing.T) {
	t.Parallel()
	image := newImage(t).tool("nvidia-smi", "20000")
	for _, form := range []string{
		"--gpu-memory-utilization=0.99", "--gpu_memory_utilization=0.99", "--gpu-memory-utilization 0.99", "--gpu_memory_utilization 0.99",
		"--gpu-memory_utilization=0.99", "--gpu-memory-utilization=0.1 --gpu_memory_utilization 0.2",
	} {
		got := image.vllm(strings.Fields("--model=m "+form+" --seed=1"), limit+"10000")
		assert.Equal(t, "--model=m --seed=1 --gpu-memory-utilization=0.5000", strings.Join(got, " "), form)
	}
	got := image.vllm([]string{"--gpu-memory-utilization", "--seed=1", "a b", "--x={\"y\": 1}", "--gpu-memory-utilization"}, limit+"10000")
	assert.Equal(t, []string{"--seed=1", "a b", `--x={"y": 1}`, "--gpu-memory-utilization=0.5000"}, got, "a flag without its value; other arguments untouched")
}

// The budget of weights in RAM becomes vLLM's, which counts GiB of each device.
func TestWrapperOffload(t *testing.T) {
	t.Parallel()
	image := newImage(t)
	for _, test := range []struct{ args, offload, want string }{
		{"--cpu-offload-gb=9", "", "--cpu-offload-gb=9"},
		{"--cpu-offload-gb=9", "16384", "--cpu-offload-gb=16.0000"},
		{"--cpu_offload_gb 9 --seed=1", "512", "--seed=1 --cpu-offload-gb=0.5000"},
		{"", "0", "--cpu-offload-gb=0.0000"},
		{"-tp=2", "4096", "-tp=2 --cpu-offload-gb=2.0000"},
	} {
		got := image.vllm(strings.Fields(test.args), "MAGICSTICK_VLLM_CPU_OFFLOAD_MI="+test.offload)
		assert.Equal(t, test.want, strings.Join(got, " "), test)
	}
}

// Nothing is started that could not work, and one line says why.
func TestWrapperRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ args, env, smi, want string }{
		"budget above the device":  {"", limit + "24Gi", "24564", "the budget of 24576 MiB is more than the 24564 MiB of 1 device(s) on nvidia-gpu"},
		"budget above two devices": {"-tp 2", limit + "20001", "10000\n12000", "the budget of 20001 MiB is more than the 20000 MiB of 2 device(s) on nvidia-gpu"},
		"unreadable budget":        {"", limit + "plenty", "24564", "MAGICSTICK_VLLM_VRAM_LIMIT must be an amount of memory such as 5Gi or 24062Mi, got 'plenty'"},
		"budget of nothing":        {"", limit + "0", "24564", "MAGICSTICK_VLLM_VRAM_LIMIT must be an amount of memory such as 5Gi or 24062Mi, got '0'"},
		"unknown unit":             {"", limit + "5Ti", "24564", "MAGICSTICK_VLLM_VRAM_LIMIT must be an amount of memory such as 5Gi or 24062Mi, got '5Ti'"},
		"a truth is no number":     {"", limit + "True", "24564", "MAGICSTICK_VLLM_VRAM_LIMIT must be an amount of memory such as 5Gi or 24062Mi, got 'True'"},
		"negative budget":          {"", limit + "-5Gi", "24564", "MAGICSTICK_VLLM_VRAM_LIMIT must be an amount of memory such as 5Gi or 24062Mi, got '-5Gi'"},
		"nobody knows":             {"", limit + "5Gi", "", "nothing in this image tells how much memory the devices of nvidia-gpu have"},
		"too few devices":          {"-tp 2", limit + "5Gi", "24564", "the server needs 2 device(s) from number 0 on, there are 1 on nvidia-gpu"},
		"no such device":           {"", limit + "5Gi MAGICSTICK_GPU_DEVICE=3", "24564", "the server needs 1 device(s) from number 3 on, there are 1 on nvidia-gpu"},
		"odd device":               {"", limit + "5Gi MAGICSTICK_GPU_DEVICE=0;id", "24564", "MAGICSTICK_GPU_DEVICE must be the number of a device, got '0;id'"},
		"odd parallelism":          {"--tensor-parallel-size=two", limit + "5Gi", "24564", "--tensor-parallel-size must be a number from 1, got 'two'"},
		"no parallelism":           {"-pp=0", limit + "5Gi", "24564", "--pipeline-parallel-size must be a number from 1, got '0'"},
		"odd offload":              {"", "MAGICSTICK_VLLM_CPU_OFFLOAD_MI=16Gi", "", "MAGICSTICK_VLLM_CPU_OFFLOAD_MI must be a number of MiB, got '16Gi'"},
		"unknown target":           {"", "MAGICSTICK_COMPUTE_TARGET=tpu", "", "MAGICSTICK_COMPUTE_TARGET must be one of nvidia-gpu, amd-gpu, intel-gpu, cpu, got 'tpu'"},
		"unknown engine":           {"", "MAGICSTICK_ENGINE=Ollama", "", "MAGICSTICK_ENGINE must be VLLM or OLlama, got 'Ollama'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := newImage(t)
			if test.smi != "" {
				image.tool("nvidia-smi", test.smi)
			}
			assert.Equal(t, test.want, image.refused(strings.Fields(test.args), strings.Fields(test.env)...))
		})
	}
	t.Run("tools that answer nonsense", func(t *testing.T) {
		t.Parallel()
		image := newImage(t).torch("cuda", "0").tool("amd-smi", `{"gpu_data":[{"gpu":0,"mem_usage":{"total_vram":{"value":"N/A","unit":"MB"}}},7]}`).tool("rocm-smi", `{"card1":{"VRAM Total Memory (B)":"17179869184"}}`).tool("xpu-smi", "not json")
		for _, target := range []string{"amd-gpu", "intel-gpu"} {
			assert.Equal(t, "nothing in this image tells how much memory the devices of "+target+" have", image.refused(nil, limit+"5Gi", "MAGICSTICK_COMPUTE_TARGET="+target))
		}
	})
	t.Run("no line holds what a secret could be in", func(t *testing.T) {
		t.Parallel()
		line := newImage(t).refused([]string{"--api-key=hunter2"}, limit+"5Gi", "HF_TOKEN=hf_secret")
		assert.NotContains(t, line, "hunter2")
		assert.NotContains(t, line, "hf_secret")
	})
}

// Ollama's own server runs as if nothing were around it, with and without Python
// in the image.
func TestWrapperOfOllama(t *testing.T) {
	t.Parallel()
	image := newImage(t).script("ollama", `printf 'ollama %s\n' "$*"`)
	for _, program := range []struct{ interpreter, file string }{{image.python, WrapperKey}, {"/bin/sh", WrapperShellKey}} {
		for _, test := range []struct{ args, want string }{{"", "ollama serve\n"}, {"serve --x", "ollama serve --x\n"}} {
			code, stdout, stderr := image.run(program.interpreter, program.file, strings.Fields(test.args), "MAGICSTICK_ENGINE=OLlama", "MAGICSTICK_COMPUTE_TARGET=nvidia-gpu", limit+"5Gi")
			assert.Zero(t, code, stderr)
			assert.Equal(t, test.want, stdout)
		}
	}
	t.Run("without Ollama in the image", func(t *testing.T) {
		image := newImage(t)
		if _, err := os.Stat("/bin/ollama"); err == nil {
			t.Skip("this machine has an Ollama at /bin/ollama")
		}
		assert.Equal(t, "starting /bin/ollama: No such file or directory", image.refused(nil, "MAGICSTICK_ENGINE=OLlama"))
	})
}

// The shell program hands everything else on to the Python of the image.
func TestWrapperShell(t *testing.T) {
	t.Parallel()
	args := []string{"--model=m", "a b", `--x={"y": 1}`}
	for _, python := range []string{"python3", "python"} {
		image := newImage(t)
		image.script(python, "exec "+image.python+` "$@"`)
		code, stdout, stderr := image.run("/bin/sh", WrapperShellKey, args, "MAGICSTICK_COMPUTE_TARGET=cpu")
		require.Zero(t, code, stderr)
		var got []string
		require.NoError(t, json.Unmarshal([]byte(stdout), &got))
		assert.Equal(t, args, got)
	}
	code, stdout, stderr := newImage(t).run("/bin/sh", WrapperShellKey, args)
	assert.Equal(t, 2, code)
	assert.Empty(t, stdout)
	assert.Equal(t, "magicstick wrapper: there is no Python in this image to start VLLM with\n", stderr)
}

// What the operator renders and what the wrapper reads are the same names.
func TestWrapperReadsWhatIsRendered(t *testing.T) {
	for _, name := range []string{envEngine, envComputeTarget, envVRAMLimit, envCPUOffloadMi} {
		assert.Contains(t, wrapperProgram, `"`+name+`"`)
	}
	document := WrapperDocument("ai")
	assert.Equal(t, "ai", *document.Namespace)
	assert.Equal(t, "magicstick-vllm-wrapper", *document.Name)
	assert.Equal(t, wrapperProgram, document.Data["wrapper.py"])
	assert.Less(t, len(wrapperProgram)+len(wrapperShell), 1<<20)
}
