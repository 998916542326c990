package huggingface_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

// Whatever a source does, in whatever order: either every byte is right, or there is
// an error. A reader that is given up and started again from its checkpoint is part
// of it.
func TestRead_under_random_faults(t *testing.T) {
	t.Parallel()
	outcomes := make([]string, 60)
	t.Run("all", func(t *testing.T) {
		for seed := range outcomes {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				outcomes[seed] = underRandomFaults(t, uint64(seed))
			})
		}
	})
	counts := map[string]int{}
	for _, outcome := range outcomes {
		counts[outcome]++
	}
	t.Log(counts)
	require.Positive(t, counts["right"])
	require.Positive(t, counts[conditions.ModelReasonIntegrityCheckFailed])
}

func underRandomFaults(t *testing.T, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 99))
	w := newWorld(t, "")
	file := w.file(t, "model.safetensors")
	size := file.Size
	healing := []standin.Kind{standin.Reset, standin.Cut, standin.Status, standin.NoRanges, standin.Reset, standin.Cut}
	lying := []standin.Kind{standin.WrongByte, standin.Changed, standin.Truncate, standin.Shifted, standin.Encoded}
	for range random.IntN(8) {
		fault := standin.Fault{Kind: healing[random.IntN(len(healing))], At: random.Int64N(400_000), Times: 1 + random.IntN(3), Status: []int{429, 500, 503, 403, 404}[random.IntN(5)]}
		if random.IntN(12) == 0 {
			fault.Kind, fault.At = lying[random.IntN(len(lying))], random.Int64N(size)
		}
		w.CDN.Faults.Add(fault)
	}
	var got bytes.Buffer
	var state []byte
	for {
		reader, err := source.NewReader(t.Context(), file, source.ReadOptions{Offset: int64(got.Len()), State: state, Connections: 1 + random.IntN(4),
			Buffers: source.NewBuffers(2+random.IntN(4), 100_000+random.IntN(400_000)), Retry: w.retry()})
		require.NoError(t, err)
		in := &io.LimitedReader{R: reader, N: 2 * size}
		if random.IntN(3) == 0 {
			in.N = random.Int64N(size)
		}
		_, err = got.ReadFrom(in)
		state = reader.State()
		require.EqualValues(t, got.Len(), reader.Offset())
		require.NoError(t, reader.Close())
		switch {
		case err != nil && source.Temporary(err):
			// Given up for now; a worker starts again where it was. The lies of this
			// source are finite.
		case err != nil:
			return source.Reason(err)
		case in.N > 0: // the reader has ended by itself
			require.True(t, bytes.Equal(all(t, w.large), got.Bytes()), "wrong bytes were accepted")
			return "right"
		}
		if random.IntN(4) == 0 {
			w.Expire()
		}
	}
}
