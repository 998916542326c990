package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
)

// Options say how blobs are pushed. The zero value is the default.
type Options struct {
	// Parallel is how many blobs are under way at once; 4 when 0.
	Parallel int
	// BlockSize is the size of a buffer in bytes, and Blocks how many each blob under
	// way has; 256 KiB and 16 when 0. Memory is bounded by Parallel * Blocks * BlockSize.
	BlockSize, Blocks int
	// Chunk is the size in bytes of one request to the registry; 64 MiB when 0. It
	// takes no memory. A registry that refuses it gets smaller ones.
	Chunk int64
	// State keeps the checkpoint; nil for none.
	State State
	// Fingerprint identifies the blobs and the revision of their source: a checkpoint with
	// another one is ErrPlanChanged.
	Fingerprint string
	// CheckpointEvery is the pause between two checkpoints; 1 s when 0.
	CheckpointEvery time.Duration
	// Index knows blobs of earlier pushes; nil for none.
	Index Index
	// Retry is for the source and for the registry.
	Retry Retry
	// Meter counts; nil for nobody who looks.
	Meter *Meter
	// Warn hears of what went wrong without harm; nil for nobody who listens.
	Warn func(error)
}

// Pushed is a blob that the registry has.
type Pushed struct {
	// Digest is the SHA-256 of the blob.
	Digest digest.Digest
	// Present says that the registry had it before.
	Present bool
}

// smallBlob is the size in bytes up to which a blob is read into memory, so that
// it is sent only when the registry does not have it.
const smallBlob = 1 << 20

// withDefaults fills in what is not said.
func (o Options) withDefaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.BlockSize <= 0 {
		o.BlockSize = 256 << 10
	}
	if o.Blocks <= 0 {
		o.Blocks = 16
	}
	o.Blocks = max(o.Blocks, 4)
	if o.Chunk <= 0 {
		o.Chunk = 64 << 20
	}
	if o.CheckpointEvery <= 0 {
		o.CheckpointEvery = time.Second
	}
	if o.Meter == nil {
		o.Meter = &Meter{}
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	return o
}

// pusher is one push.
type pusher struct {
	target  *Target
	options Options
	ledger  *ledger
	// mode is how far the registry made us fall back, for all blobs; chunk is the size it takes.
	mode  atomic.Int32
	chunk atomic.Int64
}

// Push brings blobs into the registry, the largest first. It returns their digests in the
// order of the blobs, when the registry has confirmed every one. On an error what
// was done is in the checkpoint, and the same call goes on there.
func (t *Target) Push(ctx context.Context, blobs []Blob, options Options) ([]Pushed, error) {
	options = options.withDefaults()
	ledger, err := openLedger(ctx, options.State, options.Fingerprint, t.Repository(), options.Warn)
	if err != nil {
		return nil, err
	}
	p := &pusher{target: t, options: options, ledger: ledger}
	p.chunk.Store(options.Chunk)
	order := make([]int, len(blobs))
	for i := range blobs {
		order[i] = i
		options.Meter.total.Add(blobs[i].Size)
	}
	options.Meter.blobs.Add(int64(len(blobs)))
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(blobs[b].Size-blobs[a].Size, -1), 1)) })

	keeping, stopKeeping := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		ledger.keep(keeping, options.CheckpointEvery)
	}()
	pushed, err := p.all(ctx, blobs, order)
	stopKeeping()
	<-kept
	// Also when ctx has ended: the next process goes on where this one stops.
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	ledger.save(saving)
	return pushed, err
}

// all runs the workers. Each has its own buffers.
func (p *pusher) all(ctx context.Context, blobs []Blob, order []int) ([]Pushed, error) {
	pushed := make([]Pushed, len(blobs))
	next := make(chan int, len(order))
	for _, i := range order {
		next <- i
	}
	close(next)
	group, ctx := errgroup.WithContext(ctx)
	for range min(p.options.Parallel, len(blobs)) {
		group.Go(func() error {
			buffers := make([]*block, p.options.Blocks)
			memory := make([]byte, p.options.Blocks*p.options.BlockSize)
			for i := range buffers {
				start := i * p.options.BlockSize
				buffers[i] = &block{data: memory[start:start:min(start+p.options.BlockSize, len(memory))]}
			}
			for i := range next {
				up := &upload{pusher: p, blob: &blobs[i], buffers: buffers}
				var err error
				if pushed[i], err = up.run(ctx); err != nil {
					if errors.Is(err, context.Canceled) && ctx.Err() != nil {
						return interrupted(ctx)
					}
					return fmt.Errorf("pushing %q: %w", blobs[i].Name, err)
				}
				p.options.Meter.blobsDone.Add(1)
			}
			return nil
		})
	}
	return pushed, group.Wait()
}

// interrupted says that and why a context ended.
func interrupted(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}
