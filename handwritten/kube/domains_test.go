package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/kube"
)

func TestDomains(t *testing.T) {
	defaults := kube.DefaultDomains
	long := strings.Repeat("a", 63)
	for name, test := range map[string]struct {
		settings map[string]string
		want     kube.Domains
	}{
		"nothing said": {nil, defaults},
		"mDNS domain is normalised label by label": {
			map[string]string{kube.SettingMDNSDomain: " My Box.Home.LOCAL "},
			kube.Domains{MDNS: "my-box.home.local", Public: defaults.Public, Dashboard: defaults.Public},
		},
		"mDNS domain outside .local is refused": {map[string]string{kube.SettingMDNSDomain: "box.lan", kube.SettingMDNSName: "other"}, defaults},
		"mDNS name": {
			map[string]string{kube.SettingMDNSName: "Team_Box", kube.SettingDashboardMDNSName: "other"},
			kube.Domains{MDNS: "team-box.local", Public: defaults.Public, Dashboard: defaults.Public},
		},
		"mDNS name of the dashboard": {
			map[string]string{kube.SettingDashboardMDNSName: "desk"},
			kube.Domains{MDNS: "desk.local", Public: defaults.Public, Dashboard: defaults.Public},
		},
		"mDNS name without a usable character": {map[string]string{kube.SettingMDNSName: "***"}, defaults},
		"mDNS name that is too long":           {map[string]string{kube.SettingMDNSName: long + "a"}, defaults},
		"public domain, and the dashboard follows it": {
			map[string]string{kube.SettingPublicDomain: "AI.Example.ORG."},
			kube.Domains{MDNS: defaults.MDNS, Public: "ai.example.org", Dashboard: "ai.example.org"},
		},
		"public domain in .local is refused": {map[string]string{kube.SettingPublicDomain: "box.local"}, defaults},
		"public domain that is local":        {map[string]string{kube.SettingPublicDomain: "local"}, defaults},
		"public domain that leaves no room for hosts": {
			map[string]string{kube.SettingPublicDomain: long + "." + long}, defaults,
		},
		"dashboard host": {
			map[string]string{kube.SettingPublicDomain: "example.org", kube.SettingDashboardHost: "Start.example.org"},
			kube.Domains{MDNS: defaults.MDNS, Public: "example.org", Dashboard: "start.example.org"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, kube.DomainsFrom(test.settings, defaults))
		})
	}
	require.Equal(t, "https://id.magicstick.local/realms/magicstick", defaults.Issuer())
}

func FuzzDomains(f *testing.F) {
	f.Add("My Box.local", "name", "example.org")
	f.Add("..", "-", "local")
	f.Fuzz(func(t *testing.T, mdns, name, public string) {
		found := kube.DomainsFrom(map[string]string{kube.SettingMDNSDomain: mdns, kube.SettingMDNSName: name, kube.SettingPublicDomain: public}, kube.DefaultDomains)
		for _, host := range []string{found.MDNS, found.Public, found.Dashboard} {
			require.LessOrEqual(t, len(host), 125)
			for label := range strings.SplitSeq(host, ".") {
				require.Regexp(t, `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, label)
			}
		}
		require.True(t, strings.HasSuffix(found.MDNS, ".local"))
		require.False(t, strings.HasSuffix(found.Public, ".local"))
	})
}
