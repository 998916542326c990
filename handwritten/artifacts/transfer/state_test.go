package transfer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/registrytest"
)

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	registry := startRegistry(t, registrytest.Options{Folder: t.TempDir()})
	to := target(t, registry, "ai/model")
	data := content(1, 3<<20)
	blobs := []Blob{(&origin{}).blob("a", data)}
	push := func(saved string, fingerprint string) (warnings []string, err error) {
		options := quick(nil)
		options.State, options.Fingerprint = &memory{data: []byte(saved)}, fingerprint
		options.Warn = func(err error) { warnings = append(warnings, err.Error()) }
		_, err = to.Push(t.Context(), blobs, options)
		return warnings, err
	}
	valid := func(blob string) string {
		return fmt.Sprintf(`{"version":1,"fingerprint":"one","repository":%q,"blobs":{"a":%s}}`, to.Repository(), blob)
	}
	_, err := push(valid(`{}`), "two")
	require.ErrorIs(t, err, ErrPlanChanged)

	for name, saved := range map[string]string{
		"not_json":         `{"version`,
		"other_version":    `{"version":2}`,
		"broken_hash":      valid(`{"hashed":{"at":1000,"blob":"AAAA"}}`),
		"behind_the_end":   valid(`{"hashed":{"at":99999999999}}`),
		"negative":         valid(`{"hashed":{"at":-1}}`),
		"unknown_session":  valid(fmt.Sprintf(`{"session":"http://%s/v2/ai/model/blobs/uploads/8c9e3a52-57c5-4b8f-9d0c-0f6a3c0d1e2f"}`, registry.Address)),
		"foreign_protocol": valid(`{"session":"file:///etc/passwd"}`),
		"unknown_digest":   valid(`{"digest":"sha256:` + strings.Repeat("1", 64) + `"}`),
		"null":             valid(`null`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := push(saved, "one")
			require.NoError(t, err)
		})
	}
}
