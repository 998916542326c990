package kube

import (
	"cmp"
	"strings"
)

// Keys of the ConfigMap with the appliance's settings (contract/appliance.md C.1, annex 1).
const (
	SettingPublicDomain      = "AI_APPLIANCE_DOMAIN"
	SettingDashboardHost     = "AI_APPLIANCE_DASHBOARD_HOST"
	SettingMDNSDomain        = "AI_APPLIANCE_MDNS_DOMAIN"
	SettingMDNSName          = "AI_APPLIANCE_MDNS_NAME"
	SettingDashboardMDNSName = "AI_APPLIANCE_DASHBOARD_MDNS_NAME"
)

// maxDomain is how long a domain may be, so that <instance>.<application>.<domain>
// stays a host name (253 characters).
const maxDomain = 253 - 2*(63+1)

// Domains are the names under which the appliance is reached.
type Domains struct {
	// MDNS ends in .local and is resolved in the local network only.
	MDNS string `json:"mdns"`
	// Public is the domain of everything that is reached from elsewhere.
	Public string `json:"public"`
	// Dashboard is the public host name of the dashboard.
	Dashboard string `json:"dashboard"`
}

// DefaultDomains apply while the settings say nothing that can be used.
var DefaultDomains = Domains{MDNS: "magicstick.local", Public: "magicstick.example.com", Dashboard: "magicstick.example.com"}

// DomainsFrom derives the domains from the settings (contract/appliance.md C.1).
// A value that is no usable domain counts as absent; defaults.Dashboard is not
// looked at, because that host follows the public domain.
func DomainsFrom(settings map[string]string, defaults Domains) Domains {
	found := Domains{MDNS: defaults.MDNS, Public: defaults.Public}
	if given := strings.TrimSpace(settings[SettingMDNSDomain]); given != "" {
		if domain := domain(given); strings.HasSuffix(domain, ".local") {
			found.MDNS = domain
		}
	} else if name := Label(cmp.Or(strings.TrimSpace(settings[SettingMDNSName]), settings[SettingDashboardMDNSName])); name != "" {
		if domain := domain(name + ".local"); domain != "" {
			found.MDNS = domain
		}
	}
	if domain := domain(settings[SettingPublicDomain]); domain != "" && !isLocal(domain) {
		found.Public = domain
	}
	found.Dashboard = cmp.Or(domain(settings[SettingDashboardHost]), found.Public)
	return found
}

// Issuer is the OpenID issuer of the appliance's realm; it is the same for
// public hosts (contract/appliance.md F.2).
func (d Domains) Issuer() string { return "https://id." + d.MDNS + "/realms/magicstick" }

func isLocal(domain string) bool { return domain == "local" || strings.HasSuffix(domain, ".local") }

// domain normalises label by label; empty when nothing usable is left.
func domain(text string) string {
	var labels []string
	for part := range strings.SplitSeq(text, ".") {
		label := Label(part)
		if len(label) > 63 {
			return ""
		}
		if label != "" {
			labels = append(labels, label)
		}
	}
	joined := strings.Join(labels, ".")
	if len(joined) > maxDomain {
		return ""
	}
	return joined
}

// Label lower-cases and turns every run of characters that a DNS label cannot
// have into one hyphen; none at the ends. It does not cut (contract/appliance.md C.1).
func Label(text string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			out.WriteRune(r)
		case !strings.HasSuffix(out.String(), "-"):
			out.WriteByte('-')
		}
	}
	return strings.Trim(out.String(), "-")
}
