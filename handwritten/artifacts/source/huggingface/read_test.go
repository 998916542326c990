package huggingface_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingface"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

func TestRead_F07_source_ignores_ranges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	file := w.file(t, "model.safetensors")
	w.CDN.Faults.Add(standin.Fault{Kind: standin.NoRanges})
	_, err := file.Open(t.Context(), 100, 10)
	require.ErrorIs(t, err, source.ErrNoRanges)
	data, err := w.read(t, file)
	require.NoError(t, err)
	require.Equal(t, all(t, w.large), data)

	// And the connection breaks: what was received is skipped, not repeated.
	w.CDN.Faults.Clear()
	w.CDN.Faults.Add(standin.Fault{Kind: standin.NoRanges, Times: 6})
	w.CDN.Faults.Add(standin.Fault{Kind: standin.Cut, At: 1 << 20, Times: 1})
	data, err = w.read(t, file)
	require.NoError(t, err)
	require.Equal(t, all(t, w.large), data)
}

func TestRead_survives(t *testing.T) {
	t.Parallel()
	tests := map[string]standin.Fault{
		"reset_at_the_first_byte": {Kind: standin.Reset, Times: 3},
		"reset_in_the_middle":     {Kind: standin.Reset, At: 100_000, Times: 9},
		"cut_in_the_middle":       {Kind: standin.Cut, At: 100_000, Times: 9},
		"500_now_and_then":        {Kind: standin.Status, Status: 500, Times: 5},
		"404_of_the_storage":      {Kind: standin.Status, Status: 404, Times: 1},
		"slow":                    {Kind: standin.Slow, Delay: time.Millisecond},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			file := w.file(t, "model.safetensors")
			body, err := file.Open(t.Context(), 0, 1) // the redirect is known
			require.NoError(t, err)
			require.NoError(t, body.Close())
			w.CDN.Faults.Add(fault)
			data, err := w.read(t, file)
			require.NoError(t, err)
			require.Equal(t, all(t, w.large), data)
		})
	}
}

func TestRead_goes_on_at_the_last_byte(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	file := w.file(t, "model.safetensors")
	w.CDN.Faults.Add(standin.Fault{Kind: standin.Cut, At: 100_000, Times: 5})
	_, err := w.read(t, file)
	require.NoError(t, err)
	starts := map[string]int{}
	for _, request := range w.CDN.Requests() {
		first, _, _ := strings.Cut(request.Header.Get("Range"), "-")
		starts[first]++
	}
	for first, count := range starts {
		require.Equal(t, 1, count, "%s was asked for twice", first)
	}
	require.GreaterOrEqual(t, len(starts), 13+4, "13 ranges, and one more for every cut that struck a large one")
	require.Contains(t, starts, "bytes=100000")
}

func TestRead_asks_the_Hub_once_for_a_large_file(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	file := w.file(t, "model.safetensors")
	_, err := w.read(t, file)
	require.NoError(t, err)
	require.Len(t, resolves(w.Site.Requests()), 1)

	// Until the signature has expired.
	w.Expire()
	_, err = w.read(t, file)
	require.NoError(t, err)
	require.Len(t, resolves(w.Site.Requests()), 2)
}

func TestRead_never_accepts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault standin.Fault
		cause error
	}{
		"truncated_content":                {standin.Fault{Kind: standin.Truncate, At: 1 << 20}, source.ErrChanged},
		"right_size_with_a_wrong_byte":     {standin.Fault{Kind: standin.WrongByte, At: 2 << 20}, source.ErrDigest},
		"wrong_last_byte":                  {standin.Fault{Kind: standin.WrongByte, At: 3<<20 + 76}, source.ErrDigest},
		"entity_tag_changed_in_the_middle": {standin.Fault{Kind: standin.Changed, At: 1 << 20}, source.ErrChanged},
		"another_range_than_asked_for":     {standin.Fault{Kind: standin.Shifted}, nil},
		"another_encoding":                 {standin.Fault{Kind: standin.Encoded}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			file := w.file(t, "model.safetensors")
			w.CDN.Faults.Add(test.fault)
			_, err := w.read(t, file)
			require.Error(t, err)
			require.Equal(t, conditions.ModelReasonIntegrityCheckFailed, source.Reason(err), err)
			require.False(t, source.Temporary(err))
			if test.cause != nil {
				require.ErrorIs(t, err, test.cause)
			}
		})
	}
	// Small files are checked by their git object id.
	w := newWorld(t, "")
	w.Site.Faults.Add(standin.Fault{Kind: standin.WrongByte, At: 3, Path: "/resolve/"})
	_, err := w.read(t, w.file(t, "config.json"))
	require.ErrorIs(t, err, source.ErrDigest)
}

func TestRead_gives_up_when_nothing_comes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	file := w.file(t, "model.safetensors")
	w.CDN.Faults.Add(standin.Fault{Kind: standin.Reset})
	_, err := w.read(t, file)
	require.True(t, source.Temporary(err), err)
	require.Equal(t, conditions.ModelReasonPublicationFailed, source.Reason(err))
}

func TestRead_idle_connection_is_given_up(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(options *huggingface.Options) { options.Fetch.Idle = 50 * time.Millisecond })
	file := w.file(t, "model.safetensors")
	w.CDN.Faults.Add(standin.Fault{Kind: standin.Hold, At: 1000, Times: 1})
	data, err := w.read(t, file)
	require.NoError(t, err)
	require.Equal(t, all(t, w.large), data)
}

func TestRead_ends_with_its_context(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	file := w.file(t, "model.safetensors")
	w.CDN.Faults.Add(standin.Fault{Kind: standin.Hold, At: 1000})
	ctx, cancel := context.WithCancel(t.Context())
	reader, err := source.NewReader(ctx, file, source.ReadOptions{})
	require.NoError(t, err)
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = io.Copy(io.Discard, reader)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, reader.Close())
}
