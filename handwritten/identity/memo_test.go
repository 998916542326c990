package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
)

func token(i int) (digest [sha256.Size]byte) {
	binary.BigEndian.PutUint64(digest[:], uint64(i))
	return digest
}

func TestMemo_forgets_with_the_keys(t *testing.T) {
	before, after := &keySet{}, &keySet{}
	var m memo
	m.remember(before, token(1), verified{person: Person{ID: "ada"}})
	found, known := m.recall(before, token(1))
	assert.True(t, known)
	assert.Equal(t, "ada", found.person.ID)
	_, known = m.recall(before, token(2))
	assert.False(t, known, "another token")
	_, known = m.recall(after, token(1))
	assert.False(t, known, "other keys")
	_, known = m.recall(nil, token(1))
	assert.False(t, known, "no keys")
	m.remember(after, token(2), verified{})
	_, known = m.recall(after, token(1))
	assert.False(t, known, "what the keys before said is gone")
	_, known = m.recall(before, token(1))
	assert.False(t, known, "and does not come back with them")
}

func TestMemo_is_bounded(t *testing.T) {
	keys := &keySet{}
	var m memo
	for i := range 3*memoSize + 7 {
		m.remember(keys, token(i), verified{})
		assert.LessOrEqual(t, len(m.known), memoSize)
		_, known := m.recall(keys, token(i))
		assert.True(t, known)
	}
}
