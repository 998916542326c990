package gotypes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNames is row 24 and the naming contract of the API packages.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"vramMi": "VRAMMi", "nodeUid": "NodeUID", "apiBase": "APIBase", "localURL": "LocalURL", "gpuMemoryMi": "GPUMemoryMi",
		"kvCacheType": "KVCacheType", "openAPIV3Schema": "OpenAPIV3Schema", "HTTPRoute": "HTTPRoute", "podIPs": "PodIPs",
		"nodeIds": "NodeIDs", "podIPsReady": "PodIPsReady", "URLs": "URLs", "url": "URL", "https": "HTTPS", "os": "OS", "draDriver": "DRADriver",
		"imageId": "ImageID", "identity": "Identity", "cpuOffloadGiB": "CPUOffloadGiB", "foo-bar.baz": "FooBarBaz", "3scale": "X3scale",
		"$ref": "Ref", "": "X", "--": "X", "ca_cert": "CACert", "qwen2505bcpu": "Qwen2505bcpu", "x509": "X509",
	} {
		require.Equal(t, want, goName(name), name)
	}
	for kind, want := range map[string]string{
		"HTTPRoute": "HTTPRoute", "model": "Model", "Object": "Object", "string": "String", "NIMService": "NIMService", "DNS": "DNS", "ipPool": "IpPool",
	} {
		require.Equal(t, want, KindName(kind), kind)
	}
}

func TestConstantNames(t *testing.T) {
	for value, want := range map[string]string{
		"": "Empty", "nvidia-gpu": "NvidiaGPU", "bool:true": "BoolTrue", "*": "Star", "301": "301", "4x": "4x", "x": "X", "-x": "X", "Ready": "Ready", "f16": "F16",
	} {
		require.Equal(t, want, constName(value), value)
	}
}

// TestCommentLines: what a description may hold, and that nothing in it acts.
func TestCommentLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"one\ntwo", "one two"},
		{"one\n\n\n\ntwo", "one\n\ntwo"},
		{"- a\n- b", "- a\n- b"},
		{"+optional", `\+optional`},
		{"text\n+optional", "text +optional"},
		{"TODO later", `\TODO later`},
		{"a\n--- b", "a --- b"},
		{"a\r\nb\u2028c\x07\ufeff", "a b c"},
		{"\xff", "\ufffd"},
		{"", ""},
	} {
		require.Equal(t, c.want, strings.Join(commentLines(c.text), "\n"), c.text)
	}
	for _, line := range commentLines(strings.Repeat("word +marker ", 100)) {
		require.False(t, strings.HasPrefix(line, "+"), line)
	}
}
