package ollama

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
)

// site is where the registry stands; content is where it and its storage are.
const site = "https://registry.ollama.ai"

var content = []string{"ollama.ai", ".ollama.ai", "ollama.com", ".ollama.com", ".r2.cloudflarestorage.com"}

// Options say which registry is asked.
type Options struct {
	// Endpoint is https://registry.ollama.ai when nil; the root of a mirror otherwise.
	Endpoint *url.URL
	// Fetch says how; its Hosts are added to those of the registry, or to the Endpoint.
	Fetch fetch.Options
}

// Registry reads models. It may be used by any number of goroutines.
type Registry struct {
	endpoint *url.URL
	client   *fetch.Client
}

// New returns a registry; Close it.
func New(options Options) *Registry {
	r := &Registry{endpoint: options.Endpoint}
	known := content
	if r.endpoint == nil {
		r.endpoint, _ = url.Parse(site) // a constant
	} else {
		known = []string{strings.ToLower(r.endpoint.Host)}
	}
	options.Fetch.Hosts = append(append([]string{}, known...), options.Fetch.Hosts...)
	r.client = fetch.New(options.Fetch)
	return r
}

// Close closes the connections that wait for another request.
func (r *Registry) Close() { r.client.Close() }

// model is one model under way.
type model struct {
	*Registry
	reference Reference
	access    access
}

// Resolve pins a model to the layer that its tag names now. Nothing after this call
// asks for the tag again. When the reference names a layer, and the tag has moved
// to another one, the error wraps source.ErrChanged: whoever goes on with earlier
// work never mixes two models.
func (r *Registry) Resolve(ctx context.Context, reference Reference) (source.Snapshot, error) {
	m := &model{Registry: r, reference: reference}
	chosen, err := m.manifest(ctx)
	if err != nil {
		return source.Snapshot{}, err
	}
	if reference.Layer != "" && reference.Layer != chosen.model.Digest {
		return source.Snapshot{}, source.Broken(source.ErrChanged, "pinning %s: asked for layer %s, the tag now names %s", reference, reference.Layer, chosen.model.Digest)
	}
	declared, err := m.config(ctx, chosen.config)
	if err != nil {
		return source.Snapshot{}, err
	}
	snapshot := source.Snapshot{
		Kind: source.KindOllama, Origin: reference.String(), Revision: reference.Tag + "@" + chosen.model.Digest,
		Files: []source.File{m.file(fileName(reference, declared.FileType), chosen.model)},
		Declared: source.Declared{Family: declared.Family, Quantization: declared.FileType,
			ParameterCount: parameterCount(declared.Type), Features: declared.features()},
	}
	if chosen.projector != nil {
		snapshot.Files = append(snapshot.Files, m.file("mmproj-"+fileName(reference, ""), *chosen.projector))
	}
	if err := m.small(ctx, &snapshot.Declared, chosen); err != nil {
		return source.Snapshot{}, err
	}
	for _, file := range snapshot.Files {
		if err := probe(ctx, file); err != nil {
			return source.Snapshot{}, err
		}
	}
	snapshot.Files, err = source.Arrange(snapshot.Files)
	return snapshot, err
}

// at is a URL of the model.
func (m *model) at(verb, what string) *url.URL {
	return m.endpoint.JoinPath("v2", m.reference.Namespace, m.reference.Name, verb, what)
}

// manifest reads the manifest that the tag names.
func (m *model) manifest(ctx context.Context) (parts, error) {
	at := m.at("manifests", m.reference.Tag)
	var challenged *http.Response
	for try := 0; ; try++ {
		request := fetch.Request{URL: at, Token: m.access.current(), Header: http.Header{"Accept": {dockerManifest + ", " + ociManifest}}}
		data, answer, err := m.client.ReadAll(ctx, request, maxManifest, func(answer *fetch.Response) error {
			switch {
			case answer.StatusCode == http.StatusOK:
				return nil
			case answer.StatusCode == http.StatusUnauthorized && try == 0:
				challenged = answer.Response
			}
			return m.explain(answer.Response, "")
		})
		if err != nil && challenged != nil && try == 0 {
			if err := m.renew(ctx, challenged); err != nil {
				return parts{}, err
			}
			continue
		}
		if err != nil {
			return parts{}, err
		}
		digest := sha256.Sum256(data)
		if said := answer.Header.Get("Docker-Content-Digest"); said != "" && said != "sha256:"+hex.EncodeToString(digest[:]) {
			return parts{}, source.Broken(source.ErrDigest, "reading the manifest of %s: the registry promised %.80s", m.reference, said)
		}
		chosen, err := parseManifest(data)
		if err != nil {
			return parts{}, source.Fail(conditions.ModelReasonUnsupportedFormat, nil, "reading the manifest of %s: %v", m.reference, err)
		}
		return chosen, nil
	}
}

func (m *model) config(ctx context.Context, blob descriptor) (config, error) {
	data, err := source.ReadFile(ctx, m.file("config", blob), maxConfig)
	if err != nil {
		return config{}, err
	}
	parsed, err := parseConfig(data)
	if err != nil {
		return config{}, source.Fail(conditions.ModelReasonUnsupportedFormat, nil, "reading the configuration of %s: %v", m.reference, err)
	}
	return parsed, nil
}

// small reads what the small layers declare.
func (m *model) small(ctx context.Context, declared *source.Declared, chosen parts) error {
	if chosen.params != nil {
		data, err := source.ReadFile(ctx, m.file("params", *chosen.params), maxSmall)
		if err != nil {
			return err
		}
		declared.ContextWindowTokens = contextWindow(data)
	}
	if chosen.license != nil {
		data, err := source.ReadFile(ctx, m.file("license", *chosen.license), maxSmall)
		if err != nil {
			return err
		}
		declared.License = firstLine(data)
	}
	return nil
}

// file makes a blob one that can be opened.
func (m *model) file(name string, blob descriptor) source.File {
	made := source.File{Path: name, Size: blob.Size, SHA256: strings.TrimPrefix(blob.Digest, "sha256:")}
	remote := &fetch.Remote{
		Client: m.client, Path: name, URL: m.at("blobs", blob.Digest), Size: blob.Size,
		Token:   func(context.Context) (string, error) { return m.access.current(), nil },
		Renew:   m.renew,
		Explain: func(answer *http.Response) error { return m.explain(answer, name) },
		Check: func(answer *http.Response) error {
			if said := answer.Header.Get("Docker-Content-Digest"); said != "" && said != blob.Digest {
				return source.Broken(source.ErrChanged, "opening %s: the registry has %.80s there, asked for %s", name, said, blob.Digest)
			}
			return nil
		},
	}
	made.Open = remote.Open
	return made
}

// probe looks at the first bytes of a file.
func probe(ctx context.Context, file source.File) error {
	const magic = "GGUF"
	body, err := file.Open(ctx, 0, int64(len(magic)))
	if err != nil {
		return err
	}
	defer body.Close()
	first := make([]byte, len(magic))
	if n, err := io.ReadFull(body, first); err != nil && n == len(first) || source.Temporary(err) {
		return err
	}
	if string(first) != magic {
		return source.Fail(conditions.ModelReasonUnsupportedFormat, nil, "looking at %s: it does not begin like a GGUF file", file.Path)
	}
	return nil
}

// explain makes an error of a status; file is "" when the model is meant. The body
// is the server's and is not passed on.
func (m *model) explain(answer *http.Response, file string) error {
	what := m.reference.String()
	if file != "" {
		what = file + " of " + what
	}
	switch status := answer.StatusCode; status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return source.Fail(conditions.ModelReasonAuthenticationFailed, source.ErrDenied, "asking for %s: the registry does not give it to everybody", what)
	case http.StatusNotFound, http.StatusGone:
		return source.Fail(conditions.ModelReasonSourceNotFound, source.ErrNotFound, "asking for %s", what)
	default:
		return source.Fail(conditions.ModelReasonPublicationFailed, nil, "asking for %s: the registry answers %d %s", what, status, http.StatusText(status))
	}
}
