package transfer

import "sync/atomic"

// Meter counts the bytes of a push. It may be read at any time while the push goes on.
type Meter struct {
	total, done, read, sent, present atomic.Int64
	blobs, blobsDone                 atomic.Int64
}

// Totals are the counts of a Meter, all in bytes except for the blobs.
type Totals struct {
	// Total is the size of all blobs.
	Total int64
	// Done is how much of it the registry has. It falls when an upload has to start again.
	Done int64
	// Read is how much came from the source, repetitions included.
	Read int64
	// Sent is how much went to the registry, repetitions included.
	Sent int64
	// Present is the size of the blobs that the registry had already.
	Present int64
	// Blobs and BlobsDone count blobs.
	Blobs, BlobsDone int64
}

// Totals reads the counts.
func (m *Meter) Totals() Totals {
	return Totals{
		Total: m.total.Load(), Done: m.done.Load(), Read: m.read.Load(), Sent: m.sent.Load(), Present: m.present.Load(),
		Blobs: m.blobs.Load(), BlobsDone: m.blobsDone.Load(),
	}
}
