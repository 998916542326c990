package fetch

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "300": 5 * time.Minute, "301": 5 * time.Minute, "9223372036854775807": 5 * time.Minute, "99999999999999999999": 0, "-1": 0, "1.5": 0, "soon": 0,
		"Mon, 30 Nov 2026 12:00:30 GMT": 30 * time.Second, "Mon, 30 Nov 2026 11:00:00 GMT": 0, "Mon, 30 Nov 2099 11:00:00 GMT": 5 * time.Minute,
	} {
		require.Equal(t, want, retryAfter(text, now), text)
	}
}

func TestParseContentRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]contentRange{
		"bytes 0-9/100": {0, 9, 100}, "Bytes 5-5/6": {5, 5, 6}, "bytes 0-9/*": {0, 9, -1}, "bytes */100": {-1, -1, 100},
	} {
		got, valid := parseContentRange(text)
		require.True(t, valid, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "bytes", "bytes 0-9", "bytes 9-0/100", "bytes 0-100/100", "bytes -1-9/100", "bytes 0-9/-1", "bytes */*", "items 0-9/100", "bytes 0-9/1e3", "bytes +0-9/10",
		"bytes 0-9223372036854775807/*", "bytes 0-99999999999999999999/*", "bytes 0 - 9/100"} {
		_, valid := parseContentRange(text)
		require.False(t, valid, text)
	}
}

func FuzzContentRange(f *testing.F) {
	for _, seed := range []string{"bytes 0-9/100", "bytes */100", "bytes 0-9/*", "bytes 18446744073709551615-0/1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, valid := parseContentRange(text)
		if !valid {
			return
		}
		if got.first > got.last || got.total >= 0 && got.last >= got.total || got.last+1 < got.first {
			t.Fatalf("%q gives %+v", text, got)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"7", "Mon, 30 Nov 2026 12:00:30 GMT", "-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if wait := retryAfter(text, time.Unix(0, 0)); wait < 0 || wait > maxRetryAfter {
			t.Fatalf("%q gives %s", text, wait)
		}
	})
}

func TestStrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"a"`: `"a"`, `W/"a"`: "", "a": "", `"`: "", "": "", `""`: `""`} {
		require.Equal(t, want, strong(text), text)
	}
}

func TestClient_asks_allowed_hosts_only(t *testing.T) {
	t.Parallel()
	client := New(Options{Hosts: []string{"huggingface.co", ".hf.co", "127.0.0.1:8080"}})
	for text, want := range map[string]bool{
		"https://huggingface.co/a": true, "https://HuggingFace.co./a": true, "https://huggingface.co:443/a": true, "https://cdn-lfs.hf.co/a?b": true, "https://a.b.hf.co/": true, "https://127.0.0.1:8080/": true,
		"http://huggingface.co/a": false, "https://huggingface.co:8443/a": false, "https://hf.co/": false, "https://evilhf.co/": false, "https://huggingface.co.evil.org/": false, "https://www.huggingface.co/": false,
		"https://user@huggingface.co/": false, "https://127.0.0.1/": false, "https://127.0.0.1:8081/": false, "ftp://huggingface.co/": false, "https:///a": false, "https://cdn-lfs.hf.co:80/": false,
	} {
		at, err := url.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, client.allowed(at) == nil, text)
	}
}
