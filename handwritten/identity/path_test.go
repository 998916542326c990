package identity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"magicstick.dev/operator/handwritten/identity"
	"magicstick.dev/operator/handwritten/kube"
)

const demo = "/guard/ai-system/openclaw-demo/sso"

func TestParseTarget(t *testing.T) {
	sso := identity.Question{Namespace: "ai-system", Name: "openclaw-demo", Authentication: "sso"}
	for target, want := range map[string]identity.Question{
		demo:                                    sso,
		demo + "/":                              sso,
		demo + "?":                              sso,
		demo + "/chat?session=a/b":              sso,
		demo + "/a//b/":                         sso,
		demo + "/files/a%2Fb":                   sso, // an escaped slash of the caller decides nothing
		demo + "/v1.2/...x/..y/.well":           sso, // dots in names are no dot segments
		demo + "/?next=/../../x":                sso, // a query is no path
		demo + "/%zz":                           sso, // whatever the application makes of it
		demo + "/caf%C3%A9":                     sso,
		demo + "/none":                          sso, // cannot change the mode
		demo + "/ai-system/other/none":          sso,
		"/guard/ai-system/openclaw-demo/none":   {Namespace: "ai-system", Name: "openclaw-demo", Authentication: "none"},
		"/guard/ai-system/openclaw-demo/none/x": {Namespace: "ai-system", Name: "openclaw-demo", Authentication: "none"},
		"/guard/ai/a.b/sso/":                    {Namespace: "ai", Name: "a.b", Authentication: "sso"},
	} {
		t.Run("understood "+target, func(t *testing.T) {
			got, understood := identity.ParseTarget(target)
			assert.True(t, understood)
			assert.Equal(t, want, got)
		})
	}
	for name, target := range map[string]string{
		"empty":                              "",
		"star":                               "*",
		"root":                               "/",
		"another service":                    "/healthz",
		"prefix only":                        "/guard",
		"prefix and slash":                   "/guard/",
		"namespace only":                     "/guard/ai-system",
		"no mode":                            "/guard/ai-system/openclaw-demo",
		"no mode, caller's path instead":     "/guard/ai-system/openclaw-demo/",
		"caller's path as mode":              "/guard/ai-system/openclaw-demo/index.html",
		"mode in capitals":                   "/guard/ai-system/openclaw-demo/SSO",
		"mode with a suffix":                 "/guard/ai-system/openclaw-demo/ssox/none",
		"mode and star":                      "/guard/ai-system/openclaw-demo/sso*",
		"empty namespace":                    "/guard//openclaw-demo/sso",
		"empty instance":                     "/guard/ai-system//sso",
		"doubled slash in front":             "//guard/ai-system/openclaw-demo/sso",
		"absolute form":                      "http://host/guard/ai-system/openclaw-demo/sso",
		"other prefix":                       "/guardian/ai-system/openclaw-demo/sso",
		"prefix in capitals":                 "/Guard/ai-system/openclaw-demo/sso",
		"escaped slash between the names":    "/guard/ai-system%2Fopenclaw-demo/sso",
		"escaped slash in the namespace":     "/guard/ai-system%2F..%2Fother/openclaw-demo/sso",
		"escaped slash before the mode":      "/guard/ai-system/openclaw-demo%2Fsso/none",
		"escaped letter in the instance":     "/guard/ai-system/openclaw%2Ddemo/sso",
		"escaped letter in the mode":         "/guard/ai-system/openclaw-demo/ss%6F",
		"bad escape in the instance":         "/guard/ai-system/openclaw-%zz/sso",
		"dots as instance":                   "/guard/ai-system/../sso",
		"dot as namespace":                   "/guard/./openclaw-demo/sso",
		"capitals in the namespace":          "/guard/AI-system/openclaw-demo/sso",
		"zero byte":                          "/guard/ai-system/openclaw-demo\x00/sso",
		"line break":                         "/guard/ai-system/openclaw-demo\r\n/sso",
		"space":                              "/guard/ai-system/openclaw demo/sso",
		"semicolon":                          "/guard/ai-system/openclaw-demo;v=1/sso",
		"fragment":                           "/guard/ai-system/openclaw-demo#/sso",
		"query in the names":                 "/guard/ai-system?/openclaw-demo/sso",
		"name too long":                      "/guard/ai-system/" + strings.Repeat("a", 254) + "/sso",
		"namespace too long":                 "/guard/" + strings.Repeat("a", 64) + "/openclaw-demo/sso",
		"whole target too long":              demo + "/" + strings.Repeat("a", 33<<10),
		"climbs to another instance":         demo + "/../../other/none",
		"climbs at the end":                  demo + "/..",
		"climbs, escaped":                    demo + "/%2e%2e/%2E%2e/other/none",
		"climbs, escaped slashes":            demo + "/..%2F..%2fother%2fnone",
		"climbs, escaped twice":              demo + "/%252e%252e/other",
		"climbs, escaped slashes twice":      demo + "/..%252fother",
		"climbs by backslashes":              demo + `/..\..\other\none`,
		"climbs by escaped backslashes":      demo + "/..%5c..%5Cother",
		"climbs behind a path parameter":     demo + "/..;x=1/other",
		"stays, but not cleaned":             demo + "/./x",
		"half escaped":                       demo + "/.%2e/other",
		"climbs before a query":              demo + "/..?a=b",
		"names as the gateway never renders": kube.GuardPathPrefix + "/ai-system/openclaw_demo/sso",
	} {
		t.Run("refused "+name, func(t *testing.T) {
			_, understood := identity.ParseTarget(target)
			assert.False(t, understood, "%q", target)
		})
	}
}

func TestParseTarget_understands_what_policies_render(t *testing.T) {
	for _, mode := range []string{"sso", "none"} {
		target := kube.GuardRequest{Namespace: "ai-system", Instance: "openclaw-demo", Authentication: mode}.Path()
		got, understood := identity.ParseTarget(target + "/any/path?of=the&caller")
		assert.True(t, understood)
		assert.Equal(t, identity.Question{Namespace: "ai-system", Name: "openclaw-demo", Authentication: authentication(mode)}, got)
	}
}

// FuzzParseTarget: whatever a caller appends to what a policy says, the question
// is the policy's or none at all; and whatever is understood is understood from
// its beginning alone.
func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"", "/", "/x?y", "/../../other/none", "/%2e%2e/x", "..", "none", "/none", "\x00", "?", "#", "%2Fnone", `\..`} {
		f.Add(seed)
		f.Add(demo + seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := identity.Question{Namespace: "ai-system", Name: "openclaw-demo", Authentication: "sso"}
		// Envoy's paths begin with a slash.
		if got, understood := identity.ParseTarget(demo + "/" + text); understood && got != want {
			t.Fatalf("%q turned the question into %+v", text, got)
		}
		got, understood := identity.ParseTarget(text)
		if !understood {
			return
		}
		canonical := kube.GuardRequest{Namespace: got.Namespace, Instance: got.Name, Authentication: string(got.Authentication)}.Path()
		if rest, found := strings.CutPrefix(text, canonical); !found || rest != "" && rest[0] != '/' && rest[0] != '?' {
			t.Fatalf("%q was understood as %+v", text, got)
		}
	})
}
