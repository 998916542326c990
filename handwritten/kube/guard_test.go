package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/kube"
)

func TestGuardPath(t *testing.T) {
	request := kube.GuardRequest{Namespace: "ai-system", Instance: "openclaw-demo", Authentication: "sso"}
	require.Equal(t, "/guard/ai-system/openclaw-demo/sso", request.Path())
	for name, path := range map[string]string{
		"alone":               request.Path(),
		"root":                request.Path() + "/",
		"a path":              request.Path() + "/chat/1",
		"dots are not walked": request.Path() + "/../../hermes-demo/none",
		"encoded slashes":     request.Path() + "/a%2Fb//c",
	} {
		t.Run(name, func(t *testing.T) {
			parsed, ok := kube.ParseGuardPath(path)
			require.True(t, ok)
			require.Equal(t, request, parsed)
		})
	}
	for name, path := range map[string]string{
		"empty": "", "prefix alone": "/guard", "too few": "/guard/ai-system/openclaw-demo",
		"empty part": "/guard/ai-system//sso", "other": "/other/ai-system/openclaw-demo/sso",
		"broken escape": "/guard/ai-system/%zz/sso",
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			_, ok := kube.ParseGuardPath(path)
			require.False(t, ok)
		})
	}
	odd := kube.GuardRequest{Namespace: "a/b", Instance: "c d", Authentication: "none"}
	parsed, ok := kube.ParseGuardPath(odd.Path() + "/x")
	require.True(t, ok)
	require.Equal(t, odd, parsed)
}
