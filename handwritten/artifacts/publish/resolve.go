package publish

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingface"
)

// Origins say where sources are looked for.
type Origins struct {
	// HuggingFace is the root of a mirror of the Hugging Face Hub, "" for the Hub. The
	// mirror of a person who named it may be on this machine and speak plain http.
	HuggingFace string
	// Hosts are further hosts that the mirror leads to, host or host:port; they may be on this machine, too.
	Hosts []string
	// Token is that of a person at Hugging Face, "" for none.
	Token string
	// Notice hears of repetitions; nil for nobody.
	Notice func(message string)
}

// Resolve pins what a person calls a source to its present files: a local
// file or folder when there is one of that name, else a model of Hugging Face. close ends the
// connections when the files were read.
func Resolve(ctx context.Context, text string, origins Origins) (snapshot source.Snapshot, closing func(), err error) {
	if isLocal(text) {
		snapshot, err = openLocal(text)
		return snapshot, func() {}, err
	}
	reference, err := huggingface.Parse(text)
	if err != nil {
		return source.Snapshot{}, nil, err
	}
	options := huggingface.Options{Token: origins.Token, Fetch: fetch.Options{Notice: origins.Notice}}
	if origins.HuggingFace != "" {
		if options.Endpoint, options.Fetch, err = mirror(origins, options.Fetch); err != nil {
			return source.Snapshot{}, nil, err
		}
	}
	hub := huggingface.New(options)
	snapshot, err = hub.Resolve(ctx, reference)
	if err != nil {
		hub.Close()
		return source.Snapshot{}, nil, err
	}
	return snapshot, hub.Close, nil
}

// isLocal tells paths from references: owner/repo is a path only when it exists.
func isLocal(text string) bool {
	if strings.Contains(text, "://") {
		return false
	}
	if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") || text == "." || text == ".." {
		return true
	}
	_, err := os.Stat(text)
	return err == nil
}

// mirror allows what a person has named: those hosts, and http when the address of the mirror says so.
func mirror(origins Origins, options fetch.Options) (*url.URL, fetch.Options, error) {
	endpoint, err := url.Parse(origins.HuggingFace)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil, options, source.Fail(conditions.ModelReasonUnsupportedSource, nil, "reading the address of the Hugging Face mirror: it is not http:// or https:// with a host")
	}
	options.PlainHTTP = endpoint.Scheme == "http"
	options.Hosts = origins.Hosts
	for _, host := range append([]string{endpoint.Host}, origins.Hosts...) {
		if address, err := netip.ParseAddrPort(host); err == nil {
			options.Private = append(options.Private, address)
		}
	}
	return endpoint, options, nil
}

// Narrow keeps the files that a person wants: the one that the reference named, or what the
// globs leave.
func Narrow(snapshot source.Snapshot, include, exclude []string) (source.Snapshot, error) {
	if snapshot.Wanted != "" && len(include) == 0 {
		at := slices.IndexFunc(snapshot.Files, func(file source.File) bool { return file.Path == snapshot.Wanted })
		if at < 0 {
			return snapshot, source.Fail(conditions.ModelReasonUnsupportedSource, source.ErrNotFound, "looking for the file %q of %s", snapshot.Wanted, snapshot.Origin)
		}
		snapshot.Files = snapshot.Files[at : at+1]
	}
	var err error
	if snapshot.Files, err = source.Select(snapshot.Files, include, exclude); err != nil {
		return snapshot, fmt.Errorf("choosing files of %s: %w", snapshot.Origin, err)
	}
	return snapshot, nil
}
