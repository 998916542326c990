package identity

import (
	"crypto/sha256"
	"sync"
)

// memoSize bounds the tokens that are remembered, about 1 MiB.
const memoSize = 4096

// memo remembers which tokens were found valid against one set of keys. A
// signature does not change its mind: the same bytes against the same keys give
// the same answer, so remembering it is no trust on credit. With new keys
// everything is forgotten, and what depends on time is judged anew each time.
// Refused tokens are not remembered, so forgeries cannot push anybody out.
type memo struct {
	mutex sync.RWMutex
	keys  *keySet
	known map[[sha256.Size]byte]verified
}

// verified is a token whose signature and unchanging claims are fine.
type verified struct {
	person Person
	times  times
}

func (m *memo) recall(keys *keySet, token [sha256.Size]byte) (verified, bool) {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	if keys == nil || m.keys != keys {
		return verified{}, false
	}
	found, ok := m.known[token]
	return found, ok
}

func (m *memo) remember(keys *keySet, token [sha256.Size]byte, found verified) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.keys != keys || len(m.known) >= memoSize {
		m.keys, m.known = keys, map[[sha256.Size]byte]verified{}
	}
	m.known[token] = found
}
