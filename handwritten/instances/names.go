package instances

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"magicstick.dev/operator/handwritten/kube"
)

// Suffixes of the objects of an instance (contract/appliance.md C.4).
const (
	suffixLocal    = "local"
	suffixPublic   = "public"
	suffixCallback = "-callback"
	suffixPolicy   = "-sso"
	suffixGrant    = "route-access"
)

// hashed is how a name ends to which a hash was added.
var hashed = regexp.MustCompile(`-[0-9a-f]{8}$`)

// objectName is <instance>-<suffix> as a DNS label. A name that had to be
// changed for that carries a hash of the instance's name, and so does one that
// looks as if it did: two instances never share an object.
func objectName(instance, suffix string) string {
	limit := 62 - len(suffix)
	prefix := kube.Label(instance)
	if prefix != instance || len(prefix) > limit || hashed.MatchString(instance) {
		hash := shortHash(instance)
		prefix = strings.TrimRight(prefix[:min(len(prefix), limit-len(hash)-1)], "-") + "-" + hash
	}
	return strings.TrimLeft(prefix, "-") + "-" + suffix
}

// shortHash is the first 8 hexadecimal digits of the SHA-256 of a text.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// Names of the cookies that hold a session. They are unique per route: cookies
// are set on the whole domain, and two applications must neither share nor
// overwrite a session (contract/rulings.md 2, field report D12).
func accessTokenCookie(route string) string { return "MagicStickAccessToken-" + shortHash(route) }
func idTokenCookie(route string) string     { return "MagicStickIDToken-" + shortHash(route) }
