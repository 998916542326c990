package catalogs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/catalogs"
)

// One profile for each backend; those with devices have plans for one and two.
func TestShippedRealtimeProfiles(t *testing.T) {
	realtime, err := ParseRealtime(catalogs.ShippedRealtimeCatalogJSON())
	require.NoError(t, err)
	assert.Equal(t, []string{"omni-cpu", "omni-cuda", "omni-rocm", "omni-xpu"}, realtime.IDs())
	for id, want := range map[string]struct {
		target catalogs.ComputeTarget
		counts []int64
	}{
		"omni-cuda": {catalogs.ComputeTargetNvidiaGPU, []int64{1, 2}},
		"omni-rocm": {catalogs.ComputeTargetAmdGPU, []int64{1, 2}},
		"omni-xpu":  {catalogs.ComputeTargetIntelGPU, []int64{1, 2}},
		"omni-cpu":  {catalogs.ComputeTargetCPU, []int64{0}},
	} {
		profile, known := realtime.Get(id)
		require.True(t, known, id)
		assert.Equal(t, id, profile.ID)
		assert.Equal(t, want.target, profile.Target, id)
		assert.Equal(t, want.counts, profile.DeviceCounts(), id)
		for _, count := range want.counts {
			plan, planned := profile.Plan(count)
			require.True(t, planned, id)
			assert.Positive(t, plan.SystemMemoryMi, id)
		}
		_, planned := profile.Plan(3)
		assert.False(t, planned, id)
	}
	_, known := realtime.Get("omni")
	assert.False(t, known)
}

const smallRealtime = `{"profiles":{"a.b":{"title":"A","backend":"cuda","image":"a:b","plans":[{"gpuCount":1,"systemMemoryMi":64}]}}}`

func TestParseRealtimeRefuses(t *testing.T) {
	_, err := ParseRealtime([]byte(smallRealtime))
	require.NoError(t, err)
	for name, test := range map[string]struct{ old, replacement, want string }{
		"unknown backend":   {`"cuda"`, `"vulkan"`, `profiles["a.b"].backend: must be one of cuda, rocm, xpu, cpu, got "vulkan"`},
		"GPU on cpu":        {`"cuda"`, `"cpu"`, `profiles["a.b"].plans[0].gpuCount: must be 0 for the backend cpu and at least 1 for every other, got 1`},
		"no GPU on cuda":    {`"gpuCount":1`, `"gpuCount":0`, `profiles["a.b"].plans[0].gpuCount: must be 0 for the backend cpu`},
		"plan twice":        {`"plans":[`, `"plans":[{"gpuCount":1,"systemMemoryMi":64},`, `profiles["a.b"].plans[1].gpuCount: already planned by plans[0], got 1`},
		"no plan":           {`{"gpuCount":1,"systemMemoryMi":64}`, ``, `profiles["a.b"].plans: must have at least 1 items`},
		"fraction on cpu":   {`"cuda","image":"a:b","plans":[{"gpuCount":1`, `"cpu","image":"a:b","gpuMemoryFraction":0.5,"plans":[{"gpuCount":0`, `profiles["a.b"].gpuMemoryFraction: not for the backend cpu, got 0.5`},
		"fraction above 1":  {`"image"`, `"gpuMemoryFraction":1.1,"image"`, `profiles["a.b"].gpuMemoryFraction: must be at most 1`},
		"patch without key": {`"image"`, `"sourcePatch":{"configMap":"c","root":"/"},"image"`, `profiles["a.b"].sourcePatch.key: required`},
		"odd device list":   {`"systemMemoryMi":64`, `"systemMemoryMi":64,"stageDevices":["0;"]`, `profiles["a.b"].plans[0].stageDevices[0]: must match the pattern`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(smallRealtime, test.old, test.replacement, 1)
			require.NotEqual(t, smallRealtime, text)
			_, err := ParseRealtime([]byte(text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func FuzzParseRealtime(f *testing.F) {
	f.Add(string(catalogs.ShippedRealtimeCatalogJSON()))
	f.Add(smallRealtime)
	f.Fuzz(func(t *testing.T, text string) {
		realtime, err := ParseRealtime([]byte(text))
		if err != nil {
			return
		}
		for _, id := range realtime.IDs() {
			profile, _ := realtime.Get(id)
			for _, count := range profile.DeviceCounts() {
				if (count == 0) != (profile.Target == catalogs.ComputeTargetCPU) {
					t.Fatalf("profile %q: %d devices on %s", id, count, profile.Target)
				}
			}
		}
	})
}
