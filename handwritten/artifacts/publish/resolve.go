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
	"magicstick.dev/operator/handwritten/artifacts/source/local"
	"magicstick.dev/operator/handwritten/artifacts/source/ollama"
)

// Origins say where sources are looked for.
type Origins struct {
	// HuggingFace is the root of a mirror of the Hugging Face Hub, Ollama that of one of
	// Ollama's registry; "" for the originals. A mirror of a person who named it may
	// be on this machine and speak plain http.
	HuggingFace, Ollama string
	// Hosts are further hosts that a mirror leads to, host or host:port; they may be on this machine, too.
	Hosts []string
	// Token is that of a person at Hugging Face, "" for none.
	Token string
	// Notice hears of repetitions; nil for nobody.
	Notice func(message string)
}

// Resolve pins what a person calls a source to its present files: a local file or
// folder when there is one of that name, a model of Ollama, else one of Hugging
// Face. closing ends the connections when the files were read.
func Resolve(ctx context.Context, text string, origins Origins) (snapshot source.Snapshot, closing func(), err error) {
	switch {
	case isLocal(text):
		snapshot, err = local.Resolve(text)
		return snapshot, func() {}, err
	case ollama.Handles(text):
		return origins.ollama(ctx, text)
	}
	return origins.huggingFace(ctx, text)
}

func (o Origins) ollama(ctx context.Context, text string) (source.Snapshot, func(), error) {
	reference, err := ollama.Parse(text)
	if err != nil {
		return source.Snapshot{}, nil, err
	}
	endpoint, options, err := o.options(o.Ollama)
	if err != nil {
		return source.Snapshot{}, nil, err
	}
	registry := ollama.New(ollama.Options{Endpoint: endpoint, Fetch: options})
	snapshot, err := registry.Resolve(ctx, reference)
	return opened(snapshot, registry.Close, err)
}

func (o Origins) huggingFace(ctx context.Context, text string) (source.Snapshot, func(), error) {
	reference, err := huggingface.Parse(text)
	if err != nil {
		return source.Snapshot{}, nil, err
	}
	endpoint, options, err := o.options(o.HuggingFace)
	if err != nil {
		return source.Snapshot{}, nil, err
	}
	hub := huggingface.New(huggingface.Options{Endpoint: endpoint, Token: o.Token, Fetch: options})
	snapshot, err := hub.Resolve(ctx, reference)
	return opened(snapshot, hub.Close, err)
}

// opened closes at once what nobody will read.
func opened(snapshot source.Snapshot, closing func(), err error) (source.Snapshot, func(), error) {
	if err != nil {
		closing()
		return source.Snapshot{}, nil, err
	}
	return snapshot, closing, nil
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

// options allow what a person has named, a mirror and the hosts that it leads to, and http
// when the address of the mirror says so.
func (o Origins) options(mirror string) (*url.URL, fetch.Options, error) {
	options := fetch.Options{Notice: o.Notice}
	if mirror == "" {
		return nil, options, nil
	}
	endpoint, err := url.Parse(mirror)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil, options, source.Fail(conditions.ModelReasonUnsupportedSource, nil, "reading the address of the mirror: it is not http:// or https:// with a host")
	}
	options.PlainHTTP = endpoint.Scheme == "http"
	options.Hosts = o.Hosts
	for _, host := range append([]string{endpoint.Host}, o.Hosts...) {
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
