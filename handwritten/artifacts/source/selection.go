package source

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"magicstick.dev/operator/generated/conditions"
)

// maxGlobs and maxGlobBytes bound what a person gives.
const (
	maxGlobs     = 64
	maxGlobBytes = 256
)

// Select keeps the files that match a glob of include, or all when there is none,
// and no glob of exclude.
//
// In a glob, * stands for any characters but /, ? for one, [a-c] and [!a-c] for
// one of a set, ** for any number of folders. A glob without / is compared with
// the last part of a path, others with the whole path. Upper and lower case
// differ. A glob of include that no file matches is an error, because it is a
// misspelling.
func Select(files []File, include, exclude []string) ([]File, error) {
	wanted, err := compile("include", include)
	if err != nil {
		return nil, err
	}
	unwanted, err := compile("exclude", exclude)
	if err != nil {
		return nil, err
	}
	var selected []File
	hit := make([]bool, len(wanted))
	for _, file := range files {
		take := len(wanted) == 0
		for i, glob := range wanted {
			if glob.MatchString(file.Path) {
				take, hit[i] = true, true
			}
		}
		if take && !slices.ContainsFunc(unwanted, func(glob *regexp.Regexp) bool { return glob.MatchString(file.Path) }) {
			selected = append(selected, file)
		}
	}
	if missed := slices.Index(hit, false); missed >= 0 {
		return nil, Fail(conditions.ModelReasonUnsupportedFormat, nil, "include %q: none of the %d files matches it", include[missed], len(files))
	}
	if len(selected) == 0 && len(files) > 0 {
		return nil, Fail(conditions.ModelReasonUnsupportedFormat, nil, "include and exclude leave none of the %d files", len(files))
	}
	return selected, nil
}

func compile(field string, globs []string) ([]*regexp.Regexp, error) {
	if len(globs) > maxGlobs {
		return nil, Fail(conditions.ModelReasonUnsupportedSource, ErrTooLarge, "%s: %d globs, allowed are %d", field, len(globs), maxGlobs)
	}
	compiled := make([]*regexp.Regexp, 0, len(globs))
	for _, glob := range globs {
		expression, err := translate(glob)
		if err != nil {
			return nil, Fail(conditions.ModelReasonUnsupportedSource, err, "%s %.80q", field, glob)
		}
		compiled = append(compiled, expression)
	}
	return compiled, nil
}

// translate turns a glob into a regular expression; those of Go need linear time
// whatever the glob.
func translate(glob string) (*regexp.Regexp, error) {
	if glob == "" || len(glob) > maxGlobBytes {
		return nil, fmt.Errorf("a glob has 1 to %d bytes", maxGlobBytes)
	}
	var out strings.Builder
	out.WriteString(`^`)
	if !strings.Contains(glob, "/") {
		out.WriteString(`(?:.*/)?`)
	}
	for rest := strings.TrimPrefix(glob, "/"); rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			out.WriteString(`(?:.*/)?`)
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			out.WriteString(`.*`)
			rest = rest[2:]
		case rest[0] == '*':
			out.WriteString(`[^/]*`)
			rest = rest[1:]
		case rest[0] == '?':
			out.WriteString(`[^/]`)
			rest = rest[1:]
		case rest[0] == '[':
			set, after, found := strings.Cut(rest[1:], "]")
			if !found || set == "" || set == "!" {
				return nil, errors.New("[ without ] or without characters")
			}
			negated, plain := strings.CutPrefix(set, "!")
			out.WriteString(`[`)
			if plain {
				out.WriteString(`^/`)
			}
			out.WriteString(strings.NewReplacer(`\`, `\\`, `[`, `\[`, `^`, `\^`).Replace(negated) + `]`)
			rest = after
		default:
			size := 1
			for size < len(rest) && rest[size]&0xc0 == 0x80 {
				size++
			}
			out.WriteString(regexp.QuoteMeta(rest[:size]))
			rest = rest[size:]
		}
	}
	out.WriteString(`$`)
	expression, err := regexp.Compile(`(?s)` + out.String())
	if err != nil {
		return nil, errors.New("it is no glob")
	}
	return expression, nil
}
