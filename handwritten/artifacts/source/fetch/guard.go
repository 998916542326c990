package fetch

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// dialTimeout bounds the making of a connection (contract/models.md C.3).
const dialTimeout = 10 * time.Second

// special are ranges that netip does not know as private and that lead to no
// server of the internet: RFC 6890, RFC 6598 and the metadata service of Azure.
var special = parsePrefixes(
	"0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// globalUnicast is all of IPv6 that is given out; translated is how networks
// without IPv4 reach it (RFC 6052).
var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	translated    = netip.MustParsePrefix("64:ff9b::/96")
)

func parsePrefixes(texts ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	return prefixes
}

// public tells an address of the internet from one of this machine, its networks
// or its cloud.
func public(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if translated.Contains(address) {
		bytes := address.As16()
		return public(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	if address.Is6() && !globalUnicast.Contains(address) {
		return false
	}
	return address.IsGlobalUnicast() && !address.IsPrivate() &&
		!slices.ContainsFunc(special, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// guard refuses connections at the last moment, when the name is resolved: neither
// a redirect nor a name whose address changes leads past it.
type guard struct {
	private  []netip.AddrPort
	trusted  []string // host:port of what may be anywhere
	resolver *net.Resolver
}

func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: g.resolver}
	if !slices.Contains(g.trusted, strings.ToLower(address)) {
		dialer.Control = g.control
	}
	return dialer.DialContext(ctx, network, address)
}

func (g *guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuseAddress(address)
	}
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	if public(target.Addr()) || slices.Contains(g.private, target) {
		return nil
	}
	return refuseAddress(target.Addr().String())
}

func refuseAddress(address string) error {
	return source.Fail(conditions.ModelReasonUnsupportedSource, source.ErrBlocked,
		"connecting to %s: it is no address of the internet", address)
}

// hostPort is the address that the transport dials for a URL.
func hostPort(u *url.URL) string {
	if port := u.Port(); port != "" {
		return net.JoinHostPort(u.Hostname(), port)
	}
	if u.Scheme == "http" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}
