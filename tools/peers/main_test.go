package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnly_keeps_what_is_asked_for(t *testing.T) {
	all, err := programs("build")
	require.NoError(t, err)
	names := func(wanted ...string) (names []string) {
		kept, err := only(all, wanted)
		require.NoError(t, err)
		for _, program := range kept {
			names = append(names, program.Name)
		}
		return names
	}
	require.Equal(t, []string{"kustomize-controller", "source-controller", "envoy-gateway"}, names())
	require.Equal(t, []string{"source-controller"}, names("source-controller"))
	_, err = only(all, []string{"kubelet"})
	require.EqualError(t, err, `choosing what to build: no program is called "kubelet"`)
}
