package activations

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

var asked = types.NamespacedName{Namespace: "ai-system", Name: "qwen"}

var (
	_ manager.Runnable               = &Sampler{}
	_ manager.LeaderElectionRunnable = &Sampler{}
)

// loadedModel is the answer of /api/ps with one model, in Mi.
func loadedModel(size, vram int64) string {
	return fmt.Sprintf(`{"models":[{"name":"qwen2.5:0.5b","model":"qwen2.5:0.5b","size":%d,"size_vram":%d,"digest":"3f","details":{"format":"gguf"},"expires_at":"2318-01-01T00:00:00Z"}]}`, size<<20, vram<<20)
}

// replica is an Ollama Pod on an address of its own.
func replica(t *testing.T, answer http.HandlerFunc) (address string) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func saying(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/api/ps" || request.Method != http.MethodGet {
			http.NotFound(w, request)
			return
		}
		_, _ = w.Write([]byte(text))
	}
}

// sampling starts a sampler; told receives one value for every call of changed.
func sampling(t *testing.T, options SamplerOptions) (sampler *Sampler, told chan types.NamespacedName) {
	t.Helper()
	told = make(chan types.NamespacedName, 100)
	sampler = NewSampler(func(name types.NamespacedName) { told <- name }, options)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sampler.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			assert.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("the sampler did not stop")
		}
	})
	return sampler, told
}

func wait[T any](t *testing.T, events <-chan T) T {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(time.Minute):
		t.Fatal("nothing happened within a minute")
		panic("not reached")
	}
}

func TestSampleSumsReplicas(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 5000, time.FixedZone("CET", 3600))
	sampler, told := sampling(t, SamplerOptions{Now: func() time.Time { return now }})
	_, known := sampler.Latest(asked)
	assert.False(t, known, "nobody was asked")
	sampler.Watch(asked, []string{
		replica(t, saying(loadedModel(1000, 400))),
		replica(t, saying(`{"models":[{"size":3,"size_vram":0},{"size":1048576,"size_vram":1048576}]}`)),
	})
	assert.Equal(t, asked, wait(t, told))
	usage, known := sampler.Latest(asked)
	assert.True(t, known)
	assert.Equal(t, &MemoryUsage{
		RAMMi: 601, VRAMMi: 401, TotalMi: 1002, Replicas: 2, Source: "ollama-api-ps",
		SampledAt: metav1.NewTime(time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)),
	}, usage)
	usage.RAMMi = 7
	again, _ := sampler.Latest(asked)
	assert.EqualValues(t, 601, again.RAMMi, "a copy")

	sampler.Watch(asked, nil)
	_, known = sampler.Latest(asked)
	assert.False(t, known, "forgotten")
}

// Case S103 and the ruling on sampling: whatever a replica answers but figures
// clears the figures.
func TestSampleThatIsNone(t *testing.T) {
	secret := replica(t, saying(loadedModel(1, 1)))
	for name, answer := range map[string]http.HandlerFunc{
		"nothing loaded":  saying(`{"models":[]}`),
		"no list":         saying(`{}`),
		"null":            saying(`{"models":null}`),
		"empty":           saying(``),
		"garbage":         saying("\x00\xff\x1f\x8b{{{"),
		"HTML":            saying("<!doctype html><title>502</title>"),
		"a list":          saying(`[]`),
		"trailing text":   saying(loadedModel(1, 1) + "}"),
		"no size":         saying(`{"models":[{"size_vram":1}]}`),
		"size of zero":    saying(`{"models":[{"size":0}]}`),
		"negative":        saying(`{"models":[{"size":-5}]}`),
		"negative vram":   saying(`{"models":[{"size":5,"size_vram":-1}]}`),
		"vram above size": saying(`{"models":[{"size":5,"size_vram":6}]}`),
		"absurd size":     saying(`{"models":[{"size":17592186044417}]}`),
		"absurd sum":      saying(`{"models":[{"size":17592186044416},{"size":1}]}`),
		"overflow":        saying(`{"models":[{"size":99999999999999999999}]}`),
		"fraction":        saying(`{"models":[{"size":1.5}]}`),
		"text":            saying(`{"models":[{"size":"5"}]}`),
		"deep nesting":    saying(`{"models":` + strings.Repeat("[", 100000)),
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"models":[` + strings.Repeat(" ", maxSampleBytes) + `]}`))
		},
		"endless": func(w http.ResponseWriter, request *http.Request) {
			for chunk := []byte(strings.Repeat(" ", 1<<16)); request.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"huge header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Filler", strings.Repeat("x", maxSampleHeader+1))
			_, _ = w.Write([]byte(loadedModel(1, 1)))
		},
		"error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, loadedModel(1, 1), http.StatusInternalServerError)
		},
		"created": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(loadedModel(1, 1)))
		},
		"redirect": func(w http.ResponseWriter, request *http.Request) {
			http.Redirect(w, request, "http://"+secret+"/api/ps", http.StatusTemporaryRedirect)
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9999")
			_, _ = w.Write([]byte(loadedModel(1, 1)))
		},
		"hangs up":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"never begins": func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() },
		"drips": func(w http.ResponseWriter, request *http.Request) {
			for request.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sampler, told := sampling(t, SamplerOptions{Timeout: 300 * time.Millisecond})
			sampler.Watch(asked, []string{replica(t, answer), replica(t, saying(loadedModel(10, 10)))})
			wait(t, told)
			usage, known := sampler.Latest(asked)
			assert.True(t, known)
			assert.Nil(t, usage, "the other replica's figure would be read as the sum")
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := listener.Addr().String()
		require.NoError(t, listener.Close())
		sampler, told := sampling(t, SamplerOptions{})
		sampler.Watch(asked, []string{address})
		wait(t, told)
		usage, known := sampler.Latest(asked)
		assert.True(t, known)
		assert.Nil(t, usage)
	})
}

// Figures appear, move, stay and clear, and only what is worth writing is told.
func TestSampleTellsWhatIsWorthWriting(t *testing.T) {
	var answer atomic.Value
	answer.Store(loadedModel(1000, 0))
	rounds := make(chan struct{})
	address := replica(t, func(w http.ResponseWriter, request *http.Request) {
		select {
		case rounds <- struct{}{}:
		case <-request.Context().Done():
			return
		}
		saying(answer.Load().(string))(w, request)
	})
	sampler, told := sampling(t, SamplerOptions{Interval: time.Millisecond})
	sampler.Watch(asked, []string{address})
	total := func() int64 {
		usage, _ := sampler.Latest(asked)
		if usage == nil {
			return -1
		}
		return usage.TotalMi
	}
	wait(t, rounds)
	wait(t, told)
	assert.EqualValues(t, 1000, total())
	sampler.Watch(asked, []string{address})

	answer.Store(loadedModel(1009, 0))
	for range 3 {
		wait(t, rounds)
	}
	assert.Empty(t, told, "less than one percent")
	assert.EqualValues(t, 1000, total())

	answer.Store(loadedModel(1010, 0))
	wait(t, rounds)
	go drain(t, rounds)
	wait(t, told)
	assert.EqualValues(t, 1010, total())

	answer.Store(`{"models":[]}`)
	wait(t, told)
	assert.EqualValues(t, -1, total())
	answer.Store(loadedModel(1010, 0))
	wait(t, told)
	assert.EqualValues(t, 1010, total())
}

// drain lets the rest of the rounds pass.
func drain(t *testing.T, rounds <-chan struct{}) {
	t.Helper()
	for {
		select {
		case <-rounds:
		case <-t.Context().Done():
			return
		}
	}
}

// An answer about Pods that are no longer meant is not taken.
func TestSampleOfFormerPods(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	old := replica(t, func(w http.ResponseWriter, request *http.Request) {
		begun <- struct{}{}
		<-release
		saying(loadedModel(1, 0))(w, request)
	})
	sampler, told := sampling(t, SamplerOptions{})
	sampler.Watch(asked, []string{old})
	wait(t, begun)
	sampler.Watch(asked, []string{replica(t, saying(loadedModel(2, 0)))})
	close(release)
	wait(t, told)
	usage, _ := sampler.Latest(asked)
	assert.EqualValues(t, 2, usage.TotalMi)

	t.Run("forgotten while asked", func(t *testing.T) {
		begun, release, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
		slow := replica(t, func(w http.ResponseWriter, request *http.Request) {
			close(begun)
			<-release
			saying(loadedModel(1, 0))(w, request)
			close(gone)
		})
		other := types.NamespacedName{Name: "other"}
		sampler.Watch(other, []string{slow})
		wait(t, begun)
		sampler.Watch(other, nil)
		close(release)
		wait(t, gone)
		_, known := sampler.Latest(other)
		assert.False(t, known)
	})
}

// No more Pods than allowed are asked at a time, slow ones hold up nobody, and
// nothing is left over at the end.
func TestSampleBoundsAndLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	var under, most atomic.Int64
	begun, release := make(chan struct{}, 100), make(chan struct{})
	handler := func(_ http.ResponseWriter, request *http.Request) {
		most.Store(max(most.Load(), under.Add(1)))
		begun <- struct{}{}
		select {
		case <-release:
		case <-request.Context().Done():
		}
		under.Add(-1) // before the answer frees the place
	}
	t.Run("run", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(handler))
		t.Cleanup(server.Close)
		sampler, told := sampling(t, SamplerOptions{Timeout: time.Minute, Parallel: 3})
		for i := range 12 {
			sampler.Watch(types.NamespacedName{Name: fmt.Sprint(i)}, []string{server.Listener.Addr().String()})
		}
		for range 3 {
			wait(t, begun)
		}
		for range 12 {
			release <- struct{}{}
			wait(t, told)
		}
		for range 9 {
			wait(t, begun)
		}
		assert.LessOrEqual(t, most.Load(), int64(3))
		assert.Empty(t, told)
		// Stopped in the middle of a round.
		sampler.Watch(asked, []string{server.Listener.Addr().String()})
		wait(t, begun)
	})
	deadline := time.Now().Add(30 * time.Second)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before, "goroutines")
}

// Only addresses are asked, on Ollama's port unless they say another one.
func TestSampleTargets(t *testing.T) {
	sampler := NewSampler(nil, SamplerOptions{})
	for address, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:8000", "10.0.0.1:99": "10.0.0.1:99", "fd00::1": "[fd00::1]:8000", "[fd00::1]:99": "[fd00::1]:99",
		"": "", "localhost": "", "example.com:80": "", "10.0.0.1/x": "", "10.0.0.1:99/x": "", "user@10.0.0.1": "",
	} {
		got, err := sampler.target(address)
		assert.Equal(t, want, got, address)
		assert.Equal(t, want == "", err != nil, address)
	}
}

func TestUsageChanged(t *testing.T) {
	usage := func(ram, vram int64) *MemoryUsage {
		return &MemoryUsage{RAMMi: ram, VRAMMi: vram, TotalMi: ram + vram, Replicas: 1, Source: "ollama-api-ps", SampledAt: metav1.Now()}
	}
	two := usage(1000, 0)
	two.Replicas = 2
	for name, test := range map[string]struct {
		before, after *MemoryUsage
		want          bool
	}{
		"nothing and nothing":       {nil, nil, false},
		"appears":                   {nil, usage(1, 1), true},
		"clears":                    {usage(1, 1), nil, true},
		"the same":                  {usage(5000, 100), usage(5000, 100), false},
		"just below one percent":    {usage(10000, 0), usage(10099, 0), false},
		"one percent up":            {usage(10000, 0), usage(10100, 0), true},
		"just below one percent, -": {usage(10000, 0), usage(9901, 0), false},
		"one percent down":          {usage(10000, 0), usage(9900, 0), true},
		"one figure moves":          {usage(10000, 100), usage(10000, 101), true},
		"from zero":                 {usage(10000, 0), usage(9999, 1), true},
		"to zero":                   {usage(10000, 1), usage(10001, 0), true},
		"another replica":           {usage(1000, 0), two, true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, usageChanged(test.before, test.after))
			next := NextUsage(test.before, test.after, true)
			if test.want {
				assert.Same(t, test.after, next)
			} else {
				assert.Same(t, test.before, next)
			}
			assert.Same(t, test.before, NextUsage(test.before, test.after, false), "not asked yet")
		})
	}
}

func FuzzParseLoaded(f *testing.F) {
	f.Add([]byte(loadedModel(1000, 400)))
	f.Add([]byte(`{"models":[]}`))
	f.Add([]byte(`<html>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		total, err := parseLoaded(body)
		if err == nil && (total.bytes < 1 || total.vramBytes < 0 || total.vramBytes > total.bytes) {
			t.Errorf("accepted %+v from %q", total, body)
		}
	})
}

// Watching and asking at the same time is safe; the race detector looks at it.
func TestSampleConcurrently(t *testing.T) {
	address := replica(t, saying(loadedModel(1, 0)))
	sampler, told := sampling(t, SamplerOptions{Interval: time.Millisecond})
	go func() {
		for range told {
		}
	}()
	var under sync.WaitGroup
	for worker := range 4 {
		under.Go(func() {
			name := types.NamespacedName{Name: fmt.Sprint(worker % 2)}
			for i := range 200 {
				if i%3 == 0 {
					sampler.Watch(name, nil)
				} else {
					sampler.Watch(name, []string{address})
				}
				sampler.Latest(name)
			}
		})
	}
	under.Wait()
}
