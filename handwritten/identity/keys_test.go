package identity_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/identity"
	"magicstick.dev/operator/handwritten/identity/identitytest"
)

// clock is a time that tests move by hand.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return epoch.Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

// pause is longer than the pause between two fetches.
const pause = 11 * time.Second

func person(now time.Time) map[string]any {
	return identitytest.Claims(now, ada, []string{"magicstick-user"}, nil, nil)
}

func TestKeys_follow_a_rotation(t *testing.T) {
	issuer, time := identitytest.New(t), &clock{}
	v := verifier(t, issuer, rules(), time.now)
	old := issuer.Token(t, person(epoch))

	for _, algorithm := range []jose.SignatureAlgorithm{jose.ES256, jose.PS256, jose.ES384, jose.RS512} {
		issuer.Rotate(t, algorithm)
		time.advance(pause)
		_, state := v.Verify(t.Context(), issuer.Token(t, person(time.now())))
		assert.Equal(t, "Valid", state.String(), "the first token of a new %s key waits for the key", algorithm)
		_, state = v.Verify(t.Context(), old)
		assert.Equal(t, "Valid", state.String(), "the old key is still published")
	}
	assert.Equal(t, 5, issuer.Requests(), "one fetch at the start and one for each new key")

	issuer.Rotate(t, jose.RS256)
	issuer.Drop()
	time.advance(pause)
	_, state := v.Verify(t.Context(), issuer.Token(t, person(time.now())))
	assert.Equal(t, "Valid", state.String())
	_, state = v.Verify(t.Context(), old)
	assert.Equal(t, "UnknownKey", state.String(), "a key that the realm dropped is refused, though its tokens have not expired")
}

func TestKeys_forged_IDs_cause_one_fetch_per_pause(t *testing.T) {
	issuer, time := identitytest.New(t), &clock{}
	v := verifier(t, issuer, rules(), time.now)
	key := identitytest.NewKey(t, jose.ES256)
	var tokens []string
	for i := range 200 {
		key.ID = fmt.Sprintf("forged-%d", i)
		tokens = append(tokens, identitytest.Sign(t, key, person(epoch)))
	}
	before := issuer.Requests()
	for range 3 {
		time.advance(pause)
		var group sync.WaitGroup
		for _, token := range tokens {
			group.Go(func() {
				_, state := v.Verify(context.Background(), token)
				assert.Equal(t, "UnknownKey", state.String())
			})
		}
		group.Wait()
	}
	assert.Equal(t, before+3, issuer.Requests())
}

// TestKeys_survive_a_failing_realm: a failing fetch takes nothing away, so
// people who are signed in stay in; and what cannot be known is denied.
func TestKeys_survive_a_failing_realm(t *testing.T) {
	for name, mode := range map[string]identitytest.Mode{
		"down": identitytest.Down, "connection broken off": identitytest.Reset, "HTML instead of keys": identitytest.HTML,
		"no keys": identitytest.Empty, "endless answer": identitytest.Endless, "redirect": identitytest.Redirect,
	} {
		t.Run(name, func(t *testing.T) {
			issuer, time := identitytest.New(t), &clock{}
			v := verifier(t, issuer, rules(), time.now)
			known := issuer.Token(t, person(epoch))
			issuer.SetMode(mode)
			issuer.Rotate(t, jose.ES256)
			time.advance(pause)
			fresh := issuer.Token(t, person(time.now()))
			_, state := v.Verify(t.Context(), fresh)
			assert.Equal(t, "UnknownKey", state.String())
			_, state = v.Verify(t.Context(), known)
			assert.Equal(t, "Valid", state.String())

			issuer.SetMode(identitytest.Up)
			_, state = v.Verify(t.Context(), fresh)
			assert.Equal(t, "UnknownKey", state.String(), "not asked again so soon")
			time.advance(pause)
			_, state = v.Verify(t.Context(), fresh)
			assert.Equal(t, "Valid", state.String(), "after the repair")
		})
	}
}

func TestKeys_too_old_deny(t *testing.T) {
	issuer, clock := identitytest.New(t), &clock{}
	v := verifier(t, issuer, rules(), clock.now)
	issuer.SetMode(identitytest.Down)
	clock.advance(59 * time.Minute)
	_, state := v.Verify(t.Context(), issuer.Token(t, person(clock.now())))
	assert.Equal(t, "Valid", state.String())
	clock.advance(time.Minute)
	_, state = v.Verify(t.Context(), issuer.Token(t, person(clock.now())))
	assert.Equal(t, "KeysUnavailable", state.String())
}

func TestKeys_a_hanging_realm_holds_a_check_for_two_seconds_at_most(t *testing.T) {
	issuer, clock := identitytest.New(t), &clock{}
	v := verifier(t, issuer, rules(), clock.now)
	known := issuer.Token(t, person(epoch))
	issuer.SetMode(identitytest.Hang)
	issuer.Rotate(t, jose.ES256)
	clock.advance(pause)
	fresh := issuer.Token(t, person(clock.now()))
	start := time.Now()
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			_, state := v.Verify(context.Background(), fresh)
			assert.Equal(t, "UnknownKey", state.String())
		})
	}
	_, state := v.Verify(t.Context(), known)
	assert.Equal(t, "Valid", state.String(), "known keys do not wait")
	group.Wait()
	assert.GreaterOrEqual(t, time.Since(start), 2*time.Second)
	assert.Equal(t, 2, issuer.Requests())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, state = v.Verify(ctx, fresh)
	assert.Equal(t, "UnknownKey", state.String(), "a caller who left waits for nothing")
}

// TestKeys_bound_who_waits: beyond 256 checks nobody else is held, so forged key
// IDs cannot pile up requests behind a slow realm.
func TestKeys_bound_who_waits(t *testing.T) {
	issuer, clock := identitytest.New(t), &clock{}
	v := verifier(t, issuer, rules(), clock.now)
	issuer.SetMode(identitytest.Hang)
	issuer.Rotate(t, jose.ES256)
	clock.advance(pause)
	fresh := issuer.Token(t, person(clock.now()))
	var held, refused atomic.Int64
	var group sync.WaitGroup
	together := make(chan struct{})
	for range 300 {
		group.Go(func() {
			<-together
			start := time.Now()
			_, state := v.Verify(context.Background(), fresh)
			assert.Equal(t, "UnknownKey", state.String())
			if time.Since(start) >= 2*time.Second {
				held.Add(1)
			} else {
				refused.Add(1)
			}
		})
	}
	close(together)
	group.Wait()
	assert.Positive(t, held.Load())
	assert.Positive(t, refused.Load(), "300 checks at once are more than may wait")
}

func TestKeys_none_yet_deny_until_the_realm_answers(t *testing.T) {
	issuer := identitytest.New(t)
	issuer.SetMode(identitytest.Down)
	var logged lockedBuffer
	keys, err := identity.NewKeys(issuer.KeysURL(), slog.New(slog.NewTextHandler(&logged, nil)), newMetrics(t), time.Now)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go keys.Run(ctx)
	v, err := identity.NewVerifier(rules(), keys, time.Now)
	require.NoError(t, err)
	token := issuer.Token(t, person(time.Now()))
	_, state := v.Verify(t.Context(), token)
	assert.Equal(t, "KeysUnavailable", state.String())
	require.Eventually(t, func() bool { return issuer.Requests() >= 2 }, 20*time.Second, 10*time.Millisecond, "it tries again on its own")
	issuer.SetMode(identitytest.Up)
	require.Eventually(t, func() bool {
		_, state := v.Verify(t.Context(), token)
		return state == identity.TokenValid
	}, 20*time.Second, 10*time.Millisecond)
	assert.Contains(t, logged.String(), "503")
	assert.NotContains(t, logged.String(), token)
}

type lockedBuffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.String()
}

// TestKeys_take_only_public_signing_keys: a realm lists other keys too, and a
// published secret must never verify anything.
func TestKeys_take_only_public_signing_keys(t *testing.T) {
	issuer, clock := identitytest.New(t), &clock{}
	v := verifier(t, issuer, rules(), clock.now)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	private := identitytest.NewKey(t, jose.RS256)
	private.ID = "private"
	encrypting := identitytest.NewKey(t, jose.RS256)
	encrypting.ID = "encrypting"
	short := identitytest.Key{ID: "short", Algorithm: jose.RS256, Private: weak}
	issuer.Publish(jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "symmetric", Algorithm: "HS256", Use: "sig"})
	issuer.Publish(jose.JSONWebKey{Key: private.Private, KeyID: private.ID, Algorithm: "RS256", Use: "sig"})
	issuer.Publish(jose.JSONWebKey{Key: encrypting.Private.Public(), KeyID: encrypting.ID, Algorithm: "RSA-OAEP", Use: "enc"})
	issuer.Publish(jose.JSONWebKey{Key: weak.Public(), KeyID: short.ID, Algorithm: "RS256", Use: "sig"})
	clock.advance(pause)
	for _, key := range []identitytest.Key{private, encrypting, short} {
		_, state := v.Verify(t.Context(), identitytest.Sign(t, key, person(clock.now())))
		assert.Equal(t, "UnknownKey", state.String(), key.ID)
		clock.advance(pause)
	}
	_, state := v.Verify(t.Context(), issuer.Token(t, person(clock.now())))
	assert.Equal(t, "Valid", state.String(), "the others do not spoil the good key")
}

func TestNewKeys_refuses_an_address_that_cannot_work(t *testing.T) {
	for _, address := range []string{"", "keycloak", "file:///etc/keys", "http://user:secret@host/certs", "http://user:secret@host/%zz", "http://"} {
		_, err := identity.NewKeys(address, silent(), newMetrics(t), time.Now)
		require.ErrorContains(t, err, "URL of the realm's keys", "%q", address)
		assert.NotContains(t, err.Error(), "secret")
	}
}
