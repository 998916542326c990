package publish

import (
	"errors"
	"fmt"
	"strings"

	"oras.land/oras-go/v2/registry"
)

// DefaultTag is the tag of a reference without one.
const DefaultTag = "latest"

// ParseReference splits host/name[:tag]. A digest is refused: it is the outcome.
func ParseReference(text string) (repository, tag string, err error) {
	fail := func(err error) (string, string, error) {
		return "", "", fmt.Errorf("reading the reference %.300q: %w", text, err)
	}
	if strings.Contains(text, "://") {
		return fail(errors.New("it has a scheme; write host/name[:tag]"))
	}
	reference, err := registry.ParseReference(text)
	if err != nil {
		return fail(err)
	}
	if strings.Contains(text, "@") {
		return fail(errors.New("it has a digest, which follows from the files; write host/name[:tag]"))
	}
	tag = reference.Reference
	if tag == "" {
		tag = DefaultTag
	}
	return reference.Registry + "/" + reference.Repository, tag, nil
}
