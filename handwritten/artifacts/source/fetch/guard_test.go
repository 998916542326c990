package fetch

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

func TestPublic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"8.8.8.8": true, "18.155.68.1": true, "2606:4700::6810:1": true, "::ffff:8.8.8.8": true, "64:ff9b::808:808": true, "172.32.0.1": true, "100.128.0.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "0.0.0.0": false, "::": false, "::ffff:127.0.0.1": false, "0.1.2.3": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "fd00::1": false, "fc00::1": false, "::ffff:10.0.0.1": false,
		"169.254.169.254": false, "fd00:ec2::254": false, "168.63.129.16": false, "100.100.100.200": false, "fe80::1": false, "fe80::1%eth0": false,
		"224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false, "192.0.2.1": false, "198.18.0.1": false, "203.0.113.9": false,
		"2001:db8::1": false, "2002:7f00:1::": false, "2001::1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::808:808": false, "::7f00:1": false,
	} {
		require.Equal(t, want, public(netip.MustParseAddr(text)), text)
	}
}

// names answers every question for an A record with the next of the addresses.
func names(t *testing.T, addresses ...netip.Addr) *net.Resolver {
	t.Helper()
	server, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	var asked atomic.Int64
	go func() {
		packet := make([]byte, 1500)
		for {
			n, client, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			question := packet[12:n]
			end := 0
			for question[end] != 0 {
				end += int(question[end]) + 1
			}
			question = question[:end+5]
			answer := append([]byte{packet[0], packet[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
			if binary.BigEndian.Uint16(question[end+1:]) == 1 { // A
				answer[7] = 1
				address := addresses[min(int(asked.Add(1)), len(addresses))-1].As4()
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				answer = append(answer, address[:]...)
			}
			_, _ = server.WriteTo(answer, client)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

func patient() source.Retry {
	return source.Retry{Attempts: 2, Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

// A name that first leads to an allowed address and then, for the next connection,
// to one of this machine.
func TestGuard_name_whose_address_changes(t *testing.T) {
	t.Parallel()
	allowed, err := standin.Start(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	require.NoError(t, err)
	t.Cleanup(allowed.Close)
	port := allowed.Address().Port()
	inside, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.2:%d", port))
	require.NoError(t, err)
	t.Cleanup(func() { _ = inside.Close() })
	reached := make(chan struct{}, 9)
	go func() {
		for {
			connection, err := inside.Accept()
			if err != nil {
				return
			}
			reached <- struct{}{}
			_ = connection.Close()
		}
	}()
	client := New(Options{Hosts: []string{fmt.Sprintf("models.example.org:%d", port)}, PlainHTTP: true, Private: []netip.AddrPort{allowed.Address()},
		Resolver: names(t, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")), Retry: patient()})
	defer client.Close()
	at := &url.URL{Scheme: "http", Host: fmt.Sprintf("models.example.org:%d", port), Path: "/"}
	answer, err := client.Do(t.Context(), Request{URL: at})
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	_, err = client.Do(t.Context(), Request{URL: at})
	require.ErrorIs(t, err, source.ErrBlocked)
	require.Equal(t, conditions.ModelReasonUnsupportedSource, source.Reason(err))
	require.Empty(t, reached)
}

func TestClient_untrusted_certificate_is_final(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	client := New(Options{Hosts: []string{at.Host}, Private: []netip.AddrPort{netip.MustParseAddrPort(at.Host)}, Retry: patient()})
	defer client.Close()
	_, err = client.Do(t.Context(), Request{URL: at})
	require.Error(t, err)
	require.False(t, source.Temporary(err), err)
	require.ErrorContains(t, err, "certificate")
}

// Through a proxy, which may be anywhere, hosts are still compared with the list.
func TestClient_proxy(t *testing.T) {
	t.Parallel()
	proxy, err := standin.Start(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			w.Header().Set("Location", "http://intranet.example.org/")
			w.WriteHeader(http.StatusFound)
		}
		_, _ = fmt.Fprint(w, r.URL.Host)
	})
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	client := New(Options{Hosts: []string{"models.example.org"}, PlainHTTP: true, Proxy: proxy.URL(), Retry: patient()})
	defer client.Close()
	data, _, err := client.ReadAll(t.Context(), Request{URL: &url.URL{Scheme: "http", Host: "models.example.org"}}, 100, func(*Response) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "models.example.org", string(data))
	_, err = client.Do(t.Context(), Request{URL: &url.URL{Scheme: "http", Host: "models.example.org", Path: "/away"}})
	require.ErrorIs(t, err, source.ErrBlocked)
}

func TestClient_redirects_are_bounded_and_lose_the_token(t *testing.T) {
	t.Parallel()
	var second *standin.Server
	first, err := standin.Start(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/round":
			w.Header().Set("Location", "/round")
			w.WriteHeader(http.StatusFound)
		case "/nowhere":
			w.WriteHeader(http.StatusFound)
		case "/there":
			w.Header().Set("Location", second.URL().String()+"/back?secret=signature")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	require.NoError(t, err)
	t.Cleanup(first.Close)
	second, err = standin.Start(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" {
			w.Header().Set("Location", first.URL().String()+"/end")
			w.WriteHeader(http.StatusFound)
		}
	})
	require.NoError(t, err)
	t.Cleanup(second.Close)
	client := New(Options{Hosts: []string{first.Address().String(), second.Address().String()}, PlainHTTP: true,
		Private: []netip.AddrPort{first.Address(), second.Address()}, Retry: patient()})
	defer client.Close()

	_, err = client.Do(t.Context(), Request{URL: first.URL().JoinPath("round"), Token: "secret"})
	require.ErrorContains(t, err, "redirects")
	require.Len(t, first.Requests(), 6)
	_, err = client.Do(t.Context(), Request{URL: first.URL().JoinPath("nowhere"), Token: "secret"})
	require.ErrorContains(t, err, "nowhere")

	first.Forget()
	answer, err := client.Do(t.Context(), Request{URL: first.URL().JoinPath("there"), Token: "secret"})
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "/end", answer.URL.Path)
	require.Len(t, second.Requests(), 1)
	require.Empty(t, second.Requests()[0].Header.Get("Authorization"))
	require.Len(t, first.Requests(), 2)
}

func TestClient_answers_are_bounded(t *testing.T) {
	t.Parallel()
	server, err := standin.Start(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/header" {
			w.Header().Set("X", string(make([]byte, 0)))
			for i := range 400 {
				w.Header().Set(fmt.Sprintf("X-%d", i), fmt.Sprintf("%01000d", i))
			}
		}
		for range 200 {
			_, _ = w.Write(make([]byte, 1000))
		}
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client := New(Options{Hosts: []string{server.Address().String()}, PlainHTTP: true, Private: []netip.AddrPort{server.Address()}, Retry: patient()})
	defer client.Close()
	fine := func(*Response) error { return nil }
	_, _, err = client.ReadAll(t.Context(), Request{URL: server.URL()}, 100_000, fine)
	require.ErrorIs(t, err, source.ErrTooLarge)
	data, _, err := client.ReadAll(t.Context(), Request{URL: server.URL()}, 200_000, fine)
	require.NoError(t, err)
	require.Len(t, data, 200_000)
	_, err = client.Do(t.Context(), Request{URL: server.URL().JoinPath("header")})
	require.Error(t, err)
}

// A mirror that the operator of a cluster has named may be on any address; where it
// redirects to may not.
func TestClient_trusted_mirror(t *testing.T) {
	t.Parallel()
	inside, err := standin.Start(func(http.ResponseWriter, *http.Request) {})
	require.NoError(t, err)
	t.Cleanup(inside.Close)
	mirror, err := standin.Start(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			w.Header().Set("Location", inside.URL().String())
			w.WriteHeader(http.StatusFound)
		}
	})
	require.NoError(t, err)
	t.Cleanup(mirror.Close)
	host := fmt.Sprintf("mirror.example.org:%d", mirror.Address().Port())
	client := New(Options{Hosts: []string{host, inside.Address().String()}, Trusted: []string{host}, PlainHTTP: true,
		Resolver: names(t, netip.MustParseAddr("127.0.0.1")), Retry: patient()})
	defer client.Close()
	answer, err := client.Do(t.Context(), Request{URL: &url.URL{Scheme: "http", Host: host}})
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	_, err = client.Do(t.Context(), Request{URL: &url.URL{Scheme: "http", Host: host, Path: "/away"}})
	require.ErrorIs(t, err, source.ErrBlocked)
	require.Empty(t, inside.Requests())
}
