package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/opencontainers/go-digest"
)

// How an upload is done. A registry that refuses one way gets the next.
const (
	// byChunks sends requests of a bounded size, with their place in a header.
	byChunks = iota
	// byStream sends everything with one request and then commits it.
	byStream
	// byWhole knows the digest first and sends everything with the commit. The source is read twice.
	byWhole
)

const (
	// minChunk is the size in bytes below which a chunk is not made smaller.
	minChunk = 1 << 20
	// maxRefusals is how often in a row, without progress, a registry may refuse what it
	// announced itself before another way is tried.
	maxRefusals = 3
)

// errOffset says that the registry has other bytes than it was sent.
var errOffset = errors.New("the registry counts other bytes than were sent")

// upload brings one blob into the registry.
type upload struct {
	*pusher
	blob    *Blob
	buffers []*block

	hashed  position
	session *session
	at      int64 // how many bytes the registry has
	sent    int64 // how many bytes of the session were sent at most
	unsure  bool  // at has to be asked for
	tried   int64 // the size of chunks that was tried last
	shown   int64 // what the meter counts as done

	refusals  int
	restarted bool // once more from the start, because the registry found other bytes
}

// run makes sure that the registry has the blob.
func (u *upload) run(ctx context.Context) (Pushed, error) {
	saved := u.ledger.blob(u.blob.Name)
	expected := u.blob.Expected
	if u.blob.Unpinned {
		if saved.Digest != "" {
			expected = saved.Digest
		}
		saved.Digest, saved.Hashed = "", position{}
	}
	if found, err := u.known(ctx, saved.Digest); err != nil || found != "" {
		return Pushed{Digest: found, Present: true}, err
	}
	if u.blob.Size <= smallBlob {
		return u.small(ctx)
	}
	if saved.Hashed.At <= u.blob.Size {
		u.hashed = saved.Hashed
	}
	if _, err := u.hashed.open(u.blob); err != nil {
		u.options.Warn(err)
		u.hashed = position{}
	}
	if saved.Session != "" && strings.HasPrefix(saved.Session, u.target.base[:strings.Index(u.target.base, "://")]) {
		u.session, u.unsure, u.sent = &session{target: u.target, location: saved.Session}, true, u.blob.Size
	}
	if u.session == nil && expected != "" && u.resembles(ctx, expected) {
		d, err := u.hash(ctx, nil)
		if err != nil {
			return Pushed{}, err
		}
		if found, err := u.present(ctx, d, ""); err != nil || found {
			return Pushed{Digest: d, Present: true}, err
		}
	}
	d, err := u.send(ctx)
	return Pushed{Digest: d}, err
}

// known looks for the blob by the digests that it had before.
func (u *upload) known(ctx context.Context, saved digest.Digest) (digest.Digest, error) {
	if saved != "" {
		if found, err := u.present(ctx, saved, ""); err != nil || found {
			return saved, err
		}
	}
	if u.options.Index == nil || u.blob.Key == "" {
		return "", nil
	}
	known, found, err := u.options.Index.Find(ctx, u.blob.Key)
	if err != nil {
		u.options.Warn(fmt.Errorf("looking for an earlier push of %q: %w", u.blob.Name, err))
	}
	if err != nil || !found || known.Digest.Validate() != nil {
		return "", nil
	}
	if found, err := u.present(ctx, known.Digest, known.Repository); err != nil || found {
		return known.Digest, err
	}
	return "", nil
}

// present asks the registry for the blob, and to take it from another of its
// repositories, host/name, when it lies there.
func (u *upload) present(ctx context.Context, d digest.Digest, other string) (bool, error) {
	found := false
	err := u.options.Retry.again(ctx, func(ctx context.Context) (err error) {
		found, err = u.target.hasBlob(ctx, d, u.blob.Size)
		return err
	})
	if err != nil {
		return false, err
	}
	host := u.target.repository.Reference.Registry + "/"
	if name, same := strings.CutPrefix(other, host); !found && same && other != u.target.Repository() {
		up, err := u.target.begin(ctx, &mount{digest: d, from: name})
		if up != nil {
			up.cancel(ctx)
		}
		if err == nil && up == nil {
			found, err = u.target.hasBlob(ctx, d, u.blob.Size)
		}
		if err != nil { // then the bytes are sent
			u.options.Warn(fmt.Errorf("taking %q from the repository %q: %w", u.blob.Name, name, err))
			found = false
		}
	}
	if found {
		u.options.Meter.present.Add(u.blob.Size)
		u.finished(ctx, d)
	}
	return found, nil
}

// finished notes that the registry has the blob.
func (u *upload) finished(ctx context.Context, d digest.Digest) {
	u.show(u.blob.Size)
	u.ledger.update(u.blob.Name, true, func(r *blobRecord) { *r = blobRecord{Digest: d} })
	if u.options.Index == nil || u.blob.Key == "" {
		return
	}
	if err := u.options.Index.Add(ctx, u.blob.Key, Known{Digest: d, Repository: u.target.Repository()}); err != nil {
		u.options.Warn(fmt.Errorf("remembering the digest of %q: %w", u.blob.Name, err))
	}
}

// show sets what the meter counts as done.
func (u *upload) show(at int64) {
	u.options.Meter.done.Add(at - u.shown)
	u.shown = at
}

// small reads the blob into memory and sends it when the registry lacks it.
func (u *upload) small(ctx context.Context) (Pushed, error) {
	var content bytes.Buffer
	content.Grow(int(u.blob.Size))
	d, err := u.hash(ctx, &content)
	if err != nil {
		return Pushed{}, err
	}
	if found, err := u.present(ctx, d, ""); err != nil || found {
		return Pushed{Digest: d, Present: true}, err
	}
	err = u.options.Retry.again(ctx, func(ctx context.Context) error {
		up, err := u.target.begin(ctx, nil)
		if err != nil {
			return err
		}
		u.options.Meter.sent.Add(u.blob.Size)
		return up.finishWith(ctx, d, bytes.NewReader(content.Bytes()), u.blob.Size)
	})
	if err == nil {
		err = u.confirm(ctx, d)
	}
	return Pushed{Digest: d}, err
}

// hash reads the blob to its end without sending it, and copies it when asked to.
func (u *upload) hash(ctx context.Context, keep *bytes.Buffer) (digest.Digest, error) {
	s, err := openStream(ctx, u.blob, u.hashed.At, u.hashed, u.buffers, u.options.Meter, u.options.Retry)
	if err != nil {
		return "", err
	}
	c := &cursor{stream: s, marked: u.mark}
	for err == nil {
		if err = c.fill(); err == nil {
			if keep != nil {
				keep.Write(c.block.data)
			}
			c.at = c.block.end()
		}
	}
	err = s.failure()
	c.drop()
	u.settle(ctx, s)
	if err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return u.hashed.digest(u.blob)
}

// mark notes a position that a checkpoint may name.
func (u *upload) mark(at position) {
	if u.blob.Unpinned {
		return
	}
	u.ledger.update(u.blob.Name, false, func(r *blobRecord) { r.Hashed = at })
}

// settle stops a stream and keeps how far its hashes are. Bytes that broke a promise leave no trace.
func (u *upload) settle(ctx context.Context, s *stream) {
	u.hashed = s.stop()
	if errors.Is(s.failure(), ErrIntegrity) {
		u.hashed = position{}
		if u.session != nil {
			u.session.cancel(ctx)
			u.session = nil
		}
		u.ledger.update(u.blob.Name, true, func(r *blobRecord) { *r = blobRecord{} })
		return
	}
	u.mark(u.hashed)
}

// send uploads the blob, over as many connections and sessions as it takes.
func (u *upload) send(ctx context.Context) (digest.Digest, error) {
	patience := u.options.Retry.begin()
	best := int64(0)
	for {
		d, err := u.attempt(ctx)
		if err == nil {
			return d, u.confirm(ctx, d)
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if progress := u.at + u.hashed.At; progress > best {
			best = progress
			u.refusals = 0
			patience.progress()
		}
		u.unsure = true
		if !u.adapt(ctx, err) && !temporary(err) {
			return "", err
		}
		if patience.tries == 0 {
			u.options.Warn(fmt.Errorf("pushing %q, trying again: %w", u.blob.Name, err))
		}
		if err := patience.wait(ctx, err); err != nil {
			return "", err
		}
	}
}

// attempt goes on with the upload until it is committed or something fails.
func (u *upload) attempt(ctx context.Context) (digest.Digest, error) {
	if u.mode.Load() == byWhole {
		return u.whole(ctx)
	}
	if found, err := u.committed(ctx); err != nil || found != "" {
		return found, err
	}
	if err := u.locate(ctx); err != nil {
		return "", err
	}
	if u.hashed.At < u.blob.Size || u.at < u.blob.Size {
		if err := u.transmit(ctx); err != nil {
			return "", err
		}
	}
	if u.hashed.At != u.blob.Size {
		return "", fmt.Errorf("hashing: only %d of %d bytes came", u.hashed.At, u.blob.Size)
	}
	d, err := u.hashed.digest(u.blob)
	if err != nil {
		return "", err
	}
	u.ledger.update(u.blob.Name, true, func(r *blobRecord) { r.Digest = d })
	return d, u.session.finish(ctx, d)
}

// committed looks, after a failure, whether the commit went through and only its
// answer was lost.
func (u *upload) committed(ctx context.Context) (digest.Digest, error) {
	if !u.unsure || u.hashed.At < u.blob.Size {
		return "", nil
	}
	d, err := u.hashed.digest(u.blob)
	if err != nil {
		return "", err
	}
	found, err := u.target.hasBlob(ctx, d, u.blob.Size)
	if err != nil || !found {
		return "", err
	}
	return d, nil
}

// locate finds out how many bytes the registry has, and starts a new session when
// the old one is lost or cannot be believed.
func (u *upload) locate(ctx context.Context) error {
	if u.session != nil && u.unsure {
		at, err := u.session.offset(ctx)
		switch status := statusOf(err); {
		case err == nil && (at > u.sent || at > u.blob.Size):
			u.session.cancel(ctx)
			u.session = nil
		case err == nil:
			u.at = at
		case status >= http.StatusBadRequest && status < http.StatusInternalServerError && !temporary(err) && !errors.Is(err, ErrDenied):
			u.session = nil
		default:
			return err
		}
	}
	if u.session == nil {
		up, err := u.target.begin(ctx, nil)
		if err != nil {
			return err
		}
		u.session, u.at, u.sent = up, 0, 0
		u.noteSession(true) // a session that nobody remembers is sent for nothing
	}
	u.unsure = false
	u.show(u.at)
	u.noteSession(false)
	return nil
}

// noteSession puts the location of the upload into the checkpoint.
func (u *upload) noteSession(urgent bool) {
	location := u.session.location
	u.ledger.update(u.blob.Name, urgent, func(r *blobRecord) { r.Session = location })
}

// transmit sends what the registry lacks and hashes what was not hashed.
func (u *upload) transmit(ctx context.Context) error {
	s, err := openStream(ctx, u.blob, min(u.at, u.hashed.At), u.hashed, u.buffers, u.options.Meter, u.options.Retry)
	if err != nil {
		return err
	}
	c := &cursor{stream: s, at: u.at, marked: u.mark}
	for err == nil && u.at < u.blob.Size {
		err = u.sendChunk(ctx, c)
	}
	if err == nil {
		err = c.rest()
	}
	failure := s.failure()
	c.drop()
	u.settle(ctx, s)
	if failure != nil && ctx.Err() == nil {
		return failure
	}
	return err
}

// sendChunk sends one chunk.
func (u *upload) sendChunk(ctx context.Context, c *cursor) error {
	length, ranged := u.blob.Size-u.at, false
	if u.mode.Load() == byChunks {
		u.tried = u.chunk.Load()
		length, ranged = min(length, max(u.tried, u.session.minChunk)), true
	}
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	body := newSection(c, u.at+length, u.count, cancel)
	u.sent = max(u.sent, u.at+length)
	got, err := u.session.patch(sending, body, u.at, length, ranged)
	if err != nil {
		c.stream.cancel() // so that a read that waits for the source ends
	}
	body.detach()
	if err != nil {
		return stalled(ctx, sending, err)
	}
	if got >= 0 && got != u.at+length || c.at != u.at+length {
		return fmt.Errorf("sending a chunk: %w: %d instead of %d", errOffset, got, u.at+length)
	}
	u.at += length
	u.refusals = 0
	u.show(u.at)
	u.noteSession(false)
	return nil
}

// count notes bytes on their way to the registry.
func (u *upload) count(n int64) {
	u.options.Meter.sent.Add(n)
	u.show(u.shown + n)
}

// stalled gives the end of a request for lack of movement its name.
func stalled(ctx, sending context.Context, err error) error {
	if sending.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("sending a chunk: the registry took no byte for %s", stallTimeout)
	}
	return err
}

// whole hashes the blob and sends it with its commit.
func (u *upload) whole(ctx context.Context) (digest.Digest, error) {
	d, err := u.hash(ctx, nil)
	if err != nil {
		return "", err
	}
	if found, err := u.present(ctx, d, ""); err != nil || found {
		return d, err
	}
	if u.session, err = u.target.begin(ctx, nil); err != nil {
		return "", err
	}
	u.at, u.sent = 0, 0
	u.show(0)
	s, err := openStream(ctx, u.blob, 0, u.hashed, u.buffers, u.options.Meter, u.options.Retry)
	if err != nil {
		return "", err
	}
	c := &cursor{stream: s, marked: func(position) {}}
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	body := newSection(c, u.blob.Size, u.count, cancel)
	err = u.session.finishWith(sending, d, body, u.blob.Size)
	failure := s.failure()
	s.cancel()
	body.detach()
	c.drop()
	s.stop()
	u.session = nil
	if failure != nil && ctx.Err() == nil {
		return "", failure
	}
	return d, stalled(ctx, sending, err)
}

// confirm asks the registry whether it has what it was sent.
func (u *upload) confirm(ctx context.Context, d digest.Digest) error {
	if err := u.target.Confirm(ctx, u.options.Retry, d, u.blob.Size); err != nil {
		return err
	}
	u.finished(ctx, d)
	return nil
}
