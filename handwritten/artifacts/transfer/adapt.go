package transfer

import (
	"context"
	"errors"
	"net/http"
)

// adapt changes what the registry refuses, and tells whether there is something
// else to try.
func (u *upload) adapt(ctx context.Context, err error) bool {
	if errors.Is(err, ErrRegistryBytes) {
		return u.startOver(ctx)
	}
	if errors.Is(err, errOffset) {
		return u.refused(ctx)
	}
	status := statusOf(err)
	switch status {
	case http.StatusRequestEntityTooLarge:
		return u.smaller()
	case http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusUnsupportedMediaType, http.StatusNotImplemented:
		return !errors.Is(err, ErrReadOnly) && u.otherWay(ctx)
	case http.StatusNotFound, http.StatusBadRequest, http.StatusConflict, http.StatusRequestedRangeNotSatisfiable:
		return u.refused(ctx)
	}
	return false
}

// startOver takes nothing for granted: neither the hash nor the bytes that
// were sent. It is done once.
func (u *upload) startOver(ctx context.Context) bool {
	if u.restarted {
		return false
	}
	u.restarted = true
	u.abandon(ctx)
	u.hashed = position{}
	u.ledger.update(u.blob.Name, true, func(r *blobRecord) { *r = blobRecord{} })
	return true
}

// refused asks the registry anew where it stands, then tries a new session, then another way.
func (u *upload) refused(ctx context.Context) bool {
	u.refusals++
	switch {
	case u.refusals < maxRefusals:
		return true
	case u.refusals == maxRefusals:
		u.abandon(ctx)
		return true
	default:
		return u.otherWay(ctx)
	}
}

// otherWay falls back to a way of uploading that asks less of a registry.
func (u *upload) otherWay(ctx context.Context) bool {
	mode := u.mode.Load()
	if mode == byWhole {
		return false
	}
	next := int32(byStream)
	if mode == byStream {
		next = byWhole
	}
	u.mode.CompareAndSwap(mode, next)
	u.refusals = 0
	u.abandon(ctx)
	return true
}

// smaller halves the chunks. A registry that takes no chunk at all is given up on.
func (u *upload) smaller() bool {
	chunk := u.chunk.Load()
	if chunk < u.tried {
		return true // another blob has met the same refusal
	}
	if u.mode.Load() != byChunks || chunk <= minChunk {
		return false
	}
	u.chunk.CompareAndSwap(chunk, max(chunk/2, minChunk))
	return true
}

// abandon forgets the session.
func (u *upload) abandon(ctx context.Context) {
	if u.session != nil {
		u.session.cancel(ctx)
	}
	u.session, u.at, u.sent = nil, 0, 0
	u.ledger.update(u.blob.Name, false, func(r *blobRecord) { r.Session = "" })
}
