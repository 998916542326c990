package catalogs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/catalogs"
)

// The rows of contract/appliance.md D.2, and cases U002, U003.
func TestShippedApplications(t *testing.T) {
	applications, err := ParseApplications(catalogs.ShippedApplicationCatalogJSON())
	require.NoError(t, err)
	rows := map[string]struct {
		port          int64
		strip         bool
		modules       string
		crds          int
		service       string
		native        string
		nativeVersion string
		nativeName    string
	}{
		"openclaw":     {18789, false, "openclaw-operator litellm model-catalog", 1, "x-short", "OpenClawInstance", "openclaw.rocks/v1alpha1", "x-short"},
		"hermes":       {9119, true, "hermes-operator litellm model-catalog", 1, "x-short", "HermesInstance", "hermes.agent/v1", "x-short"},
		"paperclip":    {3100, false, "paperclip-operator agent-sandbox litellm model-catalog", 2, "x-short", "Instance", "paperclip.inc/v1alpha1", "x-short"},
		"kubeopencode": {4096, false, "kubeopencode litellm model-catalog", 2, "short", "Agent", "kubeopencode.io/v1alpha1", "short"},
		"odysseus":     {7000, false, "odysseus litellm model-catalog", 0, "x-short", "", "", ""},
	}
	require.Len(t, applications.All(), len(rows))
	for key, want := range rows {
		t.Run(key, func(t *testing.T) {
			application, found := applications.Get(key)
			require.True(t, found)
			assert.Equal(t, "magic-cluster/apps/instances/"+key, application.ChartPath)
			assert.Equal(t, want.port, application.Route.Port)
			assert.Equal(t, want.strip, application.Route.StripCookies)
			assert.Equal(t, catalogs.ApplicationRouteRequestTimeout0s, application.Route.RequestTimeout)
			assert.Equal(t, want.modules, strings.Join(application.RequiredModules, " "))
			assert.Len(t, application.RequiredCRDs, want.crds)
			assert.Equal(t, want.service, application.ServiceName("x-short", "short"))
			assert.Equal(t, want.native, application.NativeKind)
			assert.Equal(t, want.nativeVersion, application.NativeAPIVersion)
			assert.Equal(t, want.nativeName, application.NativeName("x-short", "short"))
		})
	}
	_, found := applications.Get("OpenClaw")
	assert.False(t, found)
}

func TestParseApplicationsRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no chart": {
			`{"applications":{"x":{"route":{"serviceName":"instance","port":1}}}}`, "applications.x.chartPath: required"},
		"request timeout": {
			`{"applications":{"x":{"chartPath":"c","route":{"serviceName":"instance","port":1,"requestTimeout":"30s"}}}}`,
			`applications.x.route.requestTimeout: must be one of 0s, got "30s"`},
		"service name": {
			`{"applications":{"x":{"chartPath":"c","route":{"serviceName":"mine","port":1}}}}`,
			`applications.x.route.serviceName: must be one of instance, shortName, got "mine"`},
		"port zero": {
			`{"applications":{"x":{"chartPath":"c","route":{"serviceName":"instance","port":0}}}}`,
			`applications.x.route.port: must be at least 1, got 0`},
		"half a native object": {
			`{"applications":{"x":{"chartPath":"c","nativeKind":"X","route":{"serviceName":"instance","port":1}}}}`,
			`applications.x.nativeApiVersion: required together with nativeKind`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseApplications([]byte(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestCheckModules(t *testing.T) {
	applications, err := ParseApplications([]byte(
		`{"applications":{"x":{"chartPath":"c","requiredModules":["litellm","nope"],"route":{"serviceName":"instance","port":1}}}}`))
	require.NoError(t, err)
	require.EqualError(t, applications.CheckModules(shippedModules(t)),
		`checking the application catalog: applications.x.requiredModules[1]: no such module, got "nope"`)
}

func FuzzParseApplications(f *testing.F) {
	f.Add(string(catalogs.ShippedApplicationCatalogJSON()))
	f.Add(`{"applications":{"x":{"chartPath":"c","nativeKind":"X","nativeApiVersion":"a/v1","nativeName":"instance","route":{"serviceName":"shortName","port":1}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		applications, err := ParseApplications([]byte(text))
		if err != nil {
			return
		}
		for _, application := range applications.All() {
			if application.ServiceName("a", "b") == "" || application.ChartPath == "" || application.DisplayName == "" {
				t.Fatalf("incomplete application %+v", application)
			}
			if (application.NativeKind == "") != (application.NativeName("a", "b") == "") {
				t.Fatalf("half a native object in %+v", application)
			}
		}
	})
}
