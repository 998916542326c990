package activations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Flags go in every spelling that vLLM understands (contract/appliance.md C.7).
func TestWithoutFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                           "",
		"--max-model-len=5":          "",
		"--max_model_len=5":          "",
		"--max-model-len 5":          "",
		"--max_model_len 5 --seed 1": "--seed 1",
		"--a --max-model-len 5 b --max_model-len":                "--a b",
		"--max-model-len --seed=1":                               "--seed=1",
		"--max-model-length=5":                                   "--max-model-length=5",
		"max-model-len=5 -max-model-len=5":                       "max-model-len=5 -max-model-len=5",
		"--max-model-len=5 --max-model-len 6 -x":                 "-x",
		`--limit-mm-per-prompt {"image":1} --max-model-len=4096`: `--limit-mm-per-prompt {"image":1}`,
	} {
		assert.Equal(t, strings.Fields(want), append([]string{}, withoutFlags(strings.Fields(args), "max-model-len")...), args)
	}
}

func TestWithoutSwitch(t *testing.T) {
	args := strings.Fields("--calculate-kv-scales x --no-calculate-kv-scales --calculate_kv_scales --calculate-kv-scales-too")
	assert.Equal(t, []string{"x", "--calculate-kv-scales-too"}, withoutSwitch(args, "calculate-kv-scales"))
	assert.Equal(t, "--calculate-kv-scales", args[0], "the given list stays")
}

func TestDeviceCount(t *testing.T) {
	for args, want := range map[string]int64{
		"":                               1,
		"--tensor-parallel-size=1":       1,
		"--tensor_parallel_size 2":       2,
		"-tp 4":                          4,
		"-tp=4":                          4,
		"--tensor-parallel-size=2 -pp 3": 6,
		"--pipeline-parallel-size=16":    16,
		"-tp 2 -tp 8":                    8, // the last one counts
	} {
		devices, err := deviceCount(strings.Fields(args))
		require.NoError(t, err, args)
		assert.Equal(t, want, devices, args)
	}
	for _, args := range []string{"-tp 0", "-tp", "-tp x", "-tp=-1", "--tensor-parallel-size=17", "-tp 8 -pp 4", "-tp 99999999999999999999"} {
		_, err := deviceCount(strings.Fields(args))
		assert.ErrorContains(t, err, "spec.local.args", args)
	}
}

func TestFill(t *testing.T) {
	assert.Equal(t, []string{"--model=a/b", "{other}", "{value} a/b"}, fill([]string{"--model={model}", "{other}", "{value} {model}"}, map[string]string{"model": "a/b"}))
	assert.Equal(t, []string{"{model}"}, fill([]string{"{name}"}, map[string]string{"name": "{model}", "model": "x"}), "what is filled in is not filled again")
}

// Stripping never fails, never keeps a flag that it was told to take away, and
// leaves everything else in its order.
func FuzzWithoutFlags(f *testing.F) {
	f.Add("--max-model-len 5 --seed=1")
	f.Add("--max_model_len=5")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		kept := withoutFlags(args, "max-model-len")
		next := 0
		for _, arg := range kept {
			if name, _ := flagName(arg); name == "max-model-len" {
				t.Fatalf("%q keeps %q", line, arg)
			}
			for next < len(args) && args[next] != arg {
				next++
			}
			if next == len(args) {
				t.Fatalf("%q becomes %q", line, kept)
			}
			next++
		}
		if _, err := deviceCount(args); err == nil {
			if again, _ := deviceCount(kept); again < 1 || again > maxDevices {
				t.Fatalf("%q has %d devices", line, again)
			}
		}
	})
}
