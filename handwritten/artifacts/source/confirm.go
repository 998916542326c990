package source

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// confirmations is how many files are asked for at the same time.
const confirmations = 8

// Confirm asks the source about all files, before the first byte is read: sizes and
// digests must be those that were listed. The first error ends it.
func Confirm(ctx context.Context, files []File) error {
	group, bounded := errgroup.WithContext(ctx)
	group.SetLimit(confirmations)
	for _, file := range files {
		if file.Confirm == nil {
			continue
		}
		if bounded.Err() != nil {
			break
		}
		group.Go(func() error { return file.Confirm(bounded) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}
