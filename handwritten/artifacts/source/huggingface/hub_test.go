package huggingface_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingface"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingfacestandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

const (
	token  = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
	pinned = "1111111111222222222233333333334444444444"
)

// world is a stand-in with one public, one private and one gated repository, and a
// client whose pauses take no time.
type world struct {
	*huggingfacestandin.Hub
	client *huggingface.Hub
	large  standin.Content

	mutex   sync.Mutex
	pauses  []time.Duration
	notices []string
}

func newWorld(t *testing.T, token string, change ...func(*huggingface.Options)) *world {
	t.Helper()
	hub, err := huggingfacestandin.Start()
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	w := &world{Hub: hub, large: standin.Pattern(1, 3<<20+77)}
	files := map[string]standin.Content{
		"config.json": standin.Bytes([]byte(`{"model_type":"qwen3"}`)), "empty.txt": standin.Bytes(nil),
		"model.safetensors": w.large, "sub dir/täst#1?.json": standin.Bytes([]byte(`{}`)),
	}
	public := huggingfacestandin.Repository{Name: "a/public", Commit: pinned, Files: files, LFSBytes: 1 << 20, Refs: []string{"refs/pr/1"},
		PipelineTag: "text-generation", License: "apache-2.0", TaskTypes: []string{"text-generation", "translation"}}
	private, gated := public, public
	private.Name, private.Private, private.Tokens = "a/private", true, []string{token}
	gated.Name, gated.Gated, gated.Tokens = "a/gated", true, []string{token}
	hub.Add(public)
	hub.Add(private)
	hub.Add(gated)
	if token != "" {
		hub.AddToken(token, "member")
	}
	hub.AddToken("hf_somebody_else", "somebody-else")
	options := huggingface.Options{Endpoint: hub.URL(), Token: token, Fetch: fetch.Options{
		Hosts: hub.Hosts(), PlainHTTP: true, Private: hub.Addresses(), Retry: w.retry(),
		Notice: func(message string) {
			w.mutex.Lock()
			defer w.mutex.Unlock()
			w.notices = append(w.notices, message)
		},
	}}
	for _, f := range change {
		f(&options)
	}
	w.client = huggingface.New(options)
	t.Cleanup(w.client.Close)
	return w
}

func (w *world) retry() source.Retry {
	return source.Retry{Pause: func(ctx context.Context, pause time.Duration) error {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.pauses = append(w.pauses, pause)
		return ctx.Err()
	}}
}

func (w *world) resolve(t *testing.T, reference string) (source.Snapshot, error) {
	t.Helper()
	parsed, err := huggingface.Parse(reference)
	require.NoError(t, err)
	return w.client.Resolve(t.Context(), parsed)
}

func (w *world) file(t *testing.T, name string) source.File {
	t.Helper()
	snapshot, err := w.resolve(t, "a/public")
	require.NoError(t, err)
	return find(t, snapshot, name)
}

func find(t *testing.T, snapshot source.Snapshot, name string) source.File {
	t.Helper()
	at := slices.IndexFunc(snapshot.Files, func(file source.File) bool { return file.Path == name })
	require.GreaterOrEqual(t, at, 0, name)
	return snapshot.Files[at]
}

func (w *world) read(t *testing.T, file source.File) ([]byte, error) {
	t.Helper()
	reader, err := source.NewReader(t.Context(), file, source.ReadOptions{Connections: 3, Buffers: source.NewBuffers(4, 256<<10), Retry: w.retry()})
	require.NoError(t, err)
	defer reader.Close()
	return io.ReadAll(reader)
}

func all(t *testing.T, content standin.Content) []byte {
	t.Helper()
	data, err := io.ReadAll(io.NewSectionReader(content, 0, content.Size()))
	require.NoError(t, err)
	return data
}

func TestResolve_pins_and_lists(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for _, reference := range []string{"a/public", "a/public@refs/pr/1", "a/public@" + pinned, "hf://a/public@main/model.safetensors"} {
		snapshot, err := w.resolve(t, reference)
		require.NoError(t, err, reference)
		require.Equal(t, pinned, snapshot.Revision, reference)
		require.Equal(t, source.KindHuggingFace, snapshot.Kind)
		require.Equal(t, "a/public", snapshot.Origin)
		require.Equal(t, source.Declared{PipelineTag: "text-generation", License: "apache-2.0", TaskTypes: []string{"text-generation", "translation"}}, snapshot.Declared)
		var names []string
		for _, file := range snapshot.Files {
			names = append(names, file.Path)
		}
		require.Equal(t, []string{"config.json", "empty.txt", "model.safetensors", "sub dir/täst#1?.json"}, names)
		require.Equal(t, strings.HasPrefix(reference, "hf://"), snapshot.Wanted == "model.safetensors")
		large := find(t, snapshot, "model.safetensors")
		require.Equal(t, w.large.Size(), large.Size)
		require.Equal(t, standin.SHA256(w.large), large.SHA256)
		require.Empty(t, find(t, snapshot, "config.json").SHA256)
		require.Len(t, find(t, snapshot, "config.json").GitBlob, 40)
	}
}

func TestResolve_asks_for_the_revision_once(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	snapshot, err := w.resolve(t, "a/public")
	require.NoError(t, err)
	for _, file := range snapshot.Files {
		_, err := w.read(t, file)
		require.NoError(t, err)
	}
	floating := 0
	for _, request := range w.Site.Requests() {
		if !strings.Contains(request.Path, pinned) {
			floating++
			require.Equal(t, "/api/models/a/public/revision/main", request.Path)
		}
	}
	require.Equal(t, 1, floating)
}

func TestResolve_reads_all_pages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	files := map[string]standin.Content{}
	for i := range 25 {
		files[fmt.Sprintf("d%d/f%02d", i%3, i)] = standin.Bytes([]byte{byte(i)})
	}
	w.Add(huggingfacestandin.Repository{Name: "a/many", Commit: pinned, Files: files})
	w.PageSize = 4
	snapshot, err := w.resolve(t, "a/many")
	require.NoError(t, err)
	require.Len(t, snapshot.Files, 25)
	pages := 0
	for _, request := range w.Site.Requests() {
		if strings.Contains(request.Path, "/tree/") {
			pages++
		}
	}
	require.Equal(t, 7, pages)
}

func TestResolve_F01_info_without_a_commit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.Add(huggingfacestandin.Repository{Name: "a/nosha", Commit: pinned, NoSHA: true, Files: map[string]standin.Content{"x": standin.Bytes([]byte("x"))}})
	snapshot, err := w.resolve(t, "a/nosha@"+pinned)
	require.NoError(t, err)
	require.Equal(t, pinned, snapshot.Revision)
	_, err = w.resolve(t, "a/nosha@main")
	require.ErrorContains(t, err, "names no commit")
	_, err = w.resolve(t, "a/nosha")
	require.ErrorContains(t, err, "names no commit")
}

func TestResolve_says_who_may_not_read_what(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		token, reference string
		reason           string
		cause            error
	}{
		"private_without_token":         {"", "a/private", conditions.ModelReasonAuthenticationFailed, source.ErrDenied},
		"private_with_token_of_another": {"hf_somebody_else", "a/private", conditions.ModelReasonAuthenticationFailed, source.ErrDenied},
		"unknown_token":                 {"hf_unknown", "a/public", conditions.ModelReasonAuthenticationFailed, source.ErrDenied},
		"token_with_a_line_break":       {"hf_a\nX-Evil: 1", "a/public", conditions.ModelReasonAuthenticationFailed, source.ErrDenied},
		"missing_without_token":         {"", "a/missing", conditions.ModelReasonAuthenticationFailed, source.ErrDenied},
		"missing_with_token":            {"hf_somebody_else", "a/missing", conditions.ModelReasonSourceNotFound, source.ErrNotFound},
		"missing_revision":              {"", "a/public@nope", conditions.ModelReasonSourceNotFound, source.ErrNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, token)
			client := huggingface.New(huggingface.Options{Endpoint: w.URL(), Token: test.token,
				Fetch: fetch.Options{PlainHTTP: true, Private: w.Addresses(), Retry: w.retry()}})
			defer client.Close()
			parsed, err := huggingface.Parse(test.reference)
			require.NoError(t, err)
			_, err = client.Resolve(t.Context(), parsed)
			require.ErrorIs(t, err, test.cause)
			require.Equal(t, test.reason, source.Reason(err))
			require.False(t, source.Temporary(err))
			if test.token != "" {
				require.NotContains(t, err.Error(), test.token)
			}
			require.Empty(t, w.pauses, "a final answer is not asked for again")
		})
	}
}

func TestOpen_gated(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]string{"without_token": "", "with_token_of_another": "hf_somebody_else"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, token)
			client := huggingface.New(huggingface.Options{Endpoint: w.URL(), Token: who, Fetch: fetch.Options{PlainHTTP: true, Private: w.Addresses()}})
			defer client.Close()
			snapshot, err := client.Resolve(t.Context(), huggingface.Reference{Owner: "a", Name: "gated"})
			require.NoError(t, err, "the list of a gated repository is public")
			file := find(t, snapshot, "config.json")
			_, err = file.Open(t.Context(), 0, -1)
			require.ErrorIs(t, err, source.ErrGated)
			require.Equal(t, conditions.ModelReasonAuthenticationFailed, source.Reason(err))
			require.ErrorContains(t, err, "licence")
			require.ErrorIs(t, file.Confirm(t.Context()), source.ErrGated)
		})
	}
	w := newWorld(t, token)
	snapshot, err := w.resolve(t, "a/gated")
	require.NoError(t, err)
	_, err = w.read(t, find(t, snapshot, "model.safetensors"))
	require.NoError(t, err)
}

func TestRead_every_file(t *testing.T) {
	t.Parallel()
	w := newWorld(t, token)
	snapshot, err := w.resolve(t, "a/private")
	require.NoError(t, err)
	for _, file := range snapshot.Files {
		require.NoError(t, file.Confirm(t.Context()), file.Path)
		data, err := w.read(t, file)
		require.NoError(t, err, file.Path)
		require.EqualValues(t, file.Size, len(data))
	}
	data, err := w.read(t, find(t, snapshot, "model.safetensors"))
	require.NoError(t, err)
	require.Equal(t, all(t, w.large), data)
}

func TestConfirm_F02_size_missing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	file := w.file(t, "config.json")
	require.NoError(t, file.Confirm(t.Context()))
	snapshot, err := w.resolve(t, "a/public")
	require.NoError(t, err)
	require.NoError(t, source.Confirm(t.Context(), snapshot.Files))
	w.Site.Faults.Add(standin.Fault{Kind: standin.NoLength, Method: http.MethodHead, Path: "/resolve/"})
	require.ErrorContains(t, file.Confirm(t.Context()), "does not tell")
	require.ErrorContains(t, source.Confirm(t.Context(), snapshot.Files), "does not tell")
	w.Site.Faults.Clear()
	w.Site.Faults.Add(standin.Fault{Kind: standin.Truncate, At: 3, Path: "/resolve/"})
	require.ErrorIs(t, file.Confirm(t.Context()), source.ErrChanged)
	require.Zero(t, gets(w.CDN.Requests())+gets(resolves(w.Site.Requests())), "no byte was asked for")
}

func gets(requests []standin.Request) int {
	count := 0
	for _, request := range requests {
		if request.Method == http.MethodGet {
			count++
		}
	}
	return count
}

func resolves(requests []standin.Request) []standin.Request {
	return slices.DeleteFunc(requests, func(request standin.Request) bool { return !strings.Contains(request.Path, "/resolve/") })
}

func TestToken_F03_goes_to_the_Hub_alone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, token)
	snapshot, err := w.resolve(t, "a/private")
	require.NoError(t, err)
	for _, file := range snapshot.Files {
		require.NoError(t, file.Confirm(t.Context()))
		_, err := w.read(t, file)
		require.NoError(t, err)
	}
	require.NotEmpty(t, w.Site.Requests())
	for _, request := range w.Site.Requests() {
		require.Equal(t, "Bearer "+token, request.Header.Get("Authorization"), request.Path)
		require.Equal(t, "magicstick", request.Header.Get("User-Agent"))
		require.NotContains(t, request.Path+request.Query, token)
	}
	require.NotEmpty(t, w.CDN.Requests())
	for _, request := range w.CDN.Requests() {
		require.NotContains(t, fmt.Sprint(request), token)
		require.Empty(t, request.Header.Get("Referer"))
	}
}

// Every way to fail that this package has, with a token: neither an error nor a
// notice nor another host may see it.
func TestToken_is_in_no_error(t *testing.T) {
	t.Parallel()
	evil, err := standin.Start(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	require.NoError(t, err)
	t.Cleanup(evil.Close)
	faults := []standin.Fault{
		{Kind: standin.Status, Status: 400}, {Kind: standin.Status, Status: 401}, {Kind: standin.Status, Status: 403}, {Kind: standin.Status, Status: 404},
		{Kind: standin.Status, Status: 410}, {Kind: standin.Status, Status: 416}, {Kind: standin.Status, Status: 429}, {Kind: standin.Status, Status: 451}, {Kind: standin.Status, Status: 500},
		{Kind: standin.Redirect, Location: evil.URL().String() + "/?t=" + token}, {Kind: standin.Redirect, Location: "https://user:" + token + "@huggingface.co/x"},
		{Kind: standin.Redirect, Location: "/again?t=" + token}, {Kind: standin.Redirect, Location: "::" + token}, {Kind: standin.Redirect, Location: "ftp://x/?" + token},
		{Kind: standin.Reset}, {Kind: standin.Cut}, {Kind: standin.Truncate, At: 1}, {Kind: standin.WrongByte, At: 1}, {Kind: standin.Changed, At: 1 << 20},
		{Kind: standin.Shifted}, {Kind: standin.Encoded},
	}
	for _, place := range []string{"/api/", "/resolve/", "cdn"} {
		w := newWorld(t, token)
		snapshot, err := w.resolve(t, "a/private")
		require.NoError(t, err)
		for _, fault := range faults {
			w.Site.Faults.Clear()
			w.CDN.Faults.Clear()
			if place == "cdn" {
				w.CDN.Faults.Add(fault)
			} else {
				fault.Path = place
				w.Site.Faults.Add(fault)
			}
			var failures []error
			if place == "/api/" {
				_, err = w.resolve(t, "a/private")
				failures = append(failures, err)
			} else {
				w.Expire()
				for _, name := range []string{"model.safetensors", "config.json"} {
					file := find(t, snapshot, name)
					_, err := w.read(t, file)
					failures = append(failures, err, file.Confirm(t.Context()))
				}
			}
			failed := 0
			for _, err := range failures {
				if err != nil {
					failed++
					require.NotContains(t, err.Error(), token, "%s %+v", place, fault)
					require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), token, "%s %+v", place, fault)
				}
			}
			if fault.Kind != standin.Changed && (fault.Kind != standin.WrongByte && fault.Kind != standin.Shifted || place != "/api/") {
				require.Positive(t, failed, "%s %+v", place, fault)
			}
		}
		require.NotContains(t, strings.Join(w.notices, "\n"), token)
		for _, request := range w.CDN.Requests() {
			require.NotContains(t, fmt.Sprint(request.Header), token)
		}
	}
	require.Empty(t, evil.Requests(), "an address that the Hub does not own was asked")
}

func TestResolve_F05_rate_limit_is_waited_for(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.Site.Faults.Add(standin.Fault{Kind: standin.Status, Status: 429, Times: 2, Header: map[string]string{"Retry-After": "77"}})
	_, err := w.resolve(t, "a/public")
	require.NoError(t, err)
	require.Equal(t, []time.Duration{77 * time.Second, 77 * time.Second}, w.pauses)
	require.Len(t, w.notices, 2)

	w.Site.Faults.Add(standin.Fault{Kind: standin.Status, Status: 429, Header: map[string]string{"Retry-After": "999999"}})
	_, err = w.resolve(t, "a/public")
	require.ErrorIs(t, err, source.ErrRateLimited)
	require.True(t, source.Temporary(err))
	require.Len(t, w.pauses, 2+7, "eight attempts")
	require.Equal(t, 5*time.Minute, w.pauses[5], "the longest pause that a server may ask for")
}

func TestResolve_pauses_grow(t *testing.T) {
	t.Parallel()
	for _, status := range []int{408, 425, 500, 502, 503, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			jitterless := huggingface.New(huggingface.Options{Endpoint: w.URL(), Fetch: fetch.Options{PlainHTTP: true, Private: w.Addresses(),
				Retry: source.Retry{Pause: w.retry().Pause, Jitter: func(limit time.Duration) time.Duration { return limit }}}})
			defer jitterless.Close()
			w.Site.Faults.Add(standin.Fault{Kind: standin.Status, Status: status})
			_, err := jitterless.Resolve(t.Context(), huggingface.Reference{Owner: "a", Name: "public"})
			require.True(t, source.Temporary(err), err)
			var seconds []float64
			for _, pause := range w.pauses {
				seconds = append(seconds, pause.Seconds())
			}
			require.Equal(t, []float64{0.5, 1, 2, 4, 8, 16, 30}, seconds)
		})
	}
}

func TestRedirect_to_loopback_is_refused(t *testing.T) {
	t.Parallel()
	inside, err := standin.Start(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	require.NoError(t, err)
	t.Cleanup(inside.Close)
	port := inside.Address().Port()
	for name, location := range map[string]string{
		"by_address":               inside.URL().String(),
		"by_name":                  fmt.Sprintf("http://localhost:%d/", port),
		"in_IPv6":                  fmt.Sprintf("http://[::ffff:127.0.0.1]:%d/", port),
		"to_the_metadata_service":  "http://169.254.169.254/latest/meta-data/",
		"to_a_file":                "file:///etc/passwd",
		"with_a_user":              fmt.Sprintf("http://u:p@127.0.0.1:%d/", port),
		"to_an_unknown_name":       "https://example.com/",
		"to_a_look-alike":          "https://evilhuggingface.co/",
		"to_another_port_of_known": "https://cdn-lfs.hf.co:8443/",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Hosts that the allow-list would let pass must fail at the connection.
			w := newWorld(t, "", func(options *huggingface.Options) {
				options.Fetch.Hosts = append(options.Fetch.Hosts, fmt.Sprintf("localhost:%d", port), inside.Address().String(), fmt.Sprintf("[::ffff:127.0.0.1]:%d", port), "169.254.169.254", ".hf.co")
			})
			w.Site.Faults.Add(standin.Fault{Kind: standin.Redirect, Location: location, Path: "/resolve/"})
			_, err := w.file(t, "config.json").Open(t.Context(), 0, -1)
			require.ErrorIs(t, err, source.ErrBlocked)
			require.Equal(t, conditions.ModelReasonUnsupportedSource, source.Reason(err))
			require.Empty(t, w.pauses)
		})
	}
	require.Empty(t, inside.Requests())
}

func TestEndpoint_on_a_private_address_is_refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(options *huggingface.Options) { options.Fetch.Private = []netip.AddrPort{} })
	_, err := w.resolve(t, "a/public")
	require.ErrorIs(t, err, source.ErrBlocked)
	require.Empty(t, w.Site.Requests())
}
