package adminserver_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/kube"
)

const (
	loadRate      = 1000 // checks a second
	loadRounds    = 10   // of one second each, guard and control in turns
	loadInstances = 1000
	loadPeople    = 50
)

// check is one request of the load and the answer that it must get.
type check struct {
	path, authorization string
	want                int
}

// BenchmarkOpenLoop sends 1000 checks a second over HTTP, whether the answers
// come or not, and measures each from the moment when it was due: a late start
// counts, as it would for the gateway. In every other second the same requests
// go to a handler that only says 200. Machine, client and load are the same, so
// the difference is the guard's.
func BenchmarkOpenLoop(b *testing.B) {
	h := newHouse(b, controlplanetest.Shared(b))
	for i := range loadInstances {
		h.create(fmt.Sprintf("openclaw-%d", i), func(s *appliancev1alpha1.AppInstanceSpec) {
			switch i % 4 {
			case 0:
				s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
			case 1:
				s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Role: "viewer"}
			default:
				s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{
					Mode: "selected", Users: crowd("user", 100), Groups: append(crowd("group", 99), builders),
				}}
			}
		})
	}
	registry := prometheus.NewRegistry()
	h.startWith(registry)
	h.ready()
	h.eventually(200, fmt.Sprintf("openclaw-%d", loadInstances-loadInstances%4-4), "none", "")
	control := httpControl(b)
	checks := h.checks()
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 128},
	}
	// Connections and caches of both are warm before anything counts.
	openLoop(b, client, h.server.Addr("guard"), checks, false)
	openLoop(b, client, control, checks, true)
	for b.Loop() {
		var guard, empty []time.Duration
		for range loadRounds {
			guard = append(guard, openLoop(b, client, h.server.Addr("guard"), checks, false)...)
			empty = append(empty, openLoop(b, client, control, checks, true)...)
		}
		report(b, "guard", guard)
		report(b, "control", empty)
		b.ReportMetric(0, "ns/op") // the length of the run says nothing
		b.ReportMetric(decidedWithin2ms(b, registry), "decided-in-2ms-%")
	}
}

func crowd(kind string, count int) []string {
	var ids []string
	for i := range count {
		ids = append(ids, fmt.Sprintf("%s-%d", kind, i))
	}
	return ids
}

// checks is a mix: three quarters with a token, most of them behind long
// allow-lists, some denied.
func (h *house) checks() []check {
	var tokens []string
	for i := range loadPeople {
		groups := []string{"elsewhere"}
		if i%2 == 0 {
			groups = append(groups, builders)
		}
		tokens = append(tokens, "Bearer "+h.token(fmt.Sprintf("person-%d", i), []string{"magicstick-user"}, groups))
	}
	var checks []check
	for i := range loadRate {
		mode, want := "sso", 403
		switch {
		case i%4 == 0:
			mode, want = "none", 200
		case i%4 != 1 && i%loadPeople%2 == 0:
			want = 200 // a builder
		}
		request := kube.GuardRequest{Namespace: h.namespace, Instance: fmt.Sprintf("openclaw-%d", i%loadInstances), Authentication: mode}
		one := check{path: request.Path() + "/api/v1/things?page=1", want: want}
		if mode == "sso" {
			one.authorization = tokens[i%loadPeople]
		}
		checks = append(checks, one)
	}
	return checks
}

func httpControl(b *testing.B) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// openLoop sends every check at its time within one second and returns how long
// each took from that time.
func openLoop(b *testing.B, client *http.Client, address string, checks []check, always200 bool) []time.Duration {
	b.Helper()
	took := make([]time.Duration, len(checks))
	var group sync.WaitGroup
	start := time.Now().Add(10 * time.Millisecond)
	for i, one := range checks {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(len(checks)))
		time.Sleep(time.Until(due))
		group.Go(func() {
			request, err := http.NewRequest(http.MethodGet, "http://"+address+one.path, nil)
			if err != nil {
				b.Error(err)
				return
			}
			if one.authorization != "" {
				request.Header.Set("Authorization", one.authorization)
			}
			response, err := client.Do(request)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			took[i] = time.Since(due)
			if want := one.want; response.StatusCode != want && !always200 {
				b.Errorf("%s answers %d, want %d", one.path, response.StatusCode, want)
			}
		})
	}
	group.Wait()
	return took
}

func report(b *testing.B, name string, took []time.Duration) {
	slices.Sort(took)
	at := func(percent float64) time.Duration { return took[int(float64(len(took)-1)*percent/100)] }
	for _, percent := range []float64{50, 99} {
		b.ReportMetric(float64(at(percent).Microseconds())/1000, fmt.Sprintf("%s-p%.0f-ms", name, percent))
	}
	b.Logf("%-8s %6d requests  p50 %-10s p90 %-10s p99 %-10s p99.9 %-10s max %s", name, len(took),
		at(50).Round(time.Microsecond), at(90).Round(time.Microsecond), at(99).Round(time.Microsecond), at(99.9).Round(time.Microsecond), at(100).Round(time.Microsecond))
}

// decidedWithin2ms is the share of decisions, by the process' own histogram,
// that took 2 ms or less.
func decidedWithin2ms(b *testing.B, registry *prometheus.Registry) float64 {
	b.Helper()
	families, err := registry.Gather()
	require.NoError(b, err)
	for _, family := range families {
		if family.GetName() != "magicstick_guard_decision_seconds" {
			continue
		}
		histogram := family.GetMetric()[0].GetHistogram()
		for _, bucket := range histogram.GetBucket() {
			if bucket.GetUpperBound() == 2e-3 {
				return 100 * float64(bucket.GetCumulativeCount()) / float64(histogram.GetSampleCount())
			}
		}
	}
	b.Fatal("there is no histogram of decisions")
	return 0
}
