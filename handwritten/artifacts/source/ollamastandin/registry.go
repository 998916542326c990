// Package ollamastandin stands in for the Ollama registry: the pull side of OCI
// Distribution with the media types of Ollama, blobs behind a redirect to storage,
// and a token service when it is asked for. Tests check it with oras-go.
//
// For tests, benchmarks and a try-out without internet; it listens on loopback.
package ollamastandin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

// Layer is one layer of a model.
type Layer struct {
	// MediaType is application/vnd.ollama.image.<kind>.
	MediaType string
	// Content of the blob.
	Content standin.Content
}

// Model is what a tag names.
type Model struct {
	// Name is "namespace/name", Tag its tag.
	Name, Tag string
	// Config is the JSON of the configuration.
	Config map[string]any
	// Layers in order.
	Layers []Layer
	// Change, when not nil, changes the manifest before it is served.
	Change func(manifest map[string]any)
}

// Registry is the stand-in: the registry, and the storage of its blobs.
type Registry struct {
	// Site and Storage have switches for faults and records of requests.
	Site, Storage *standin.Server
	// Locked registries give nothing without a token of their own service.
	Locked bool

	mutex     sync.Mutex
	manifests map[string][]byte // by name:tag and name@digest
	blobs     map[string]standin.Content
	epoch     int // tokens and addresses of an older one have expired
}

// Start starts the servers; Close it.
func Start() (*Registry, error) {
	r := &Registry{manifests: map[string][]byte{}, blobs: map[string]standin.Content{}}
	var err error
	if r.Site, err = standin.Start(r.serveSite); err != nil {
		return nil, err
	}
	if r.Storage, err = standin.Start(r.serveStorage); err != nil {
		r.Site.Close()
		return nil, err
	}
	return r, nil
}

// Close ends both servers.
func (r *Registry) Close() {
	r.Site.Close()
	r.Storage.Close()
}

// URL is the root of the registry.
func (r *Registry) URL() *url.URL { return r.Site.URL() }

// Addresses are those of both servers.
func (r *Registry) Addresses() []netip.AddrPort {
	return []netip.AddrPort{r.Site.Address(), r.Storage.Address()}
}

// Hosts are host:port of both servers.
func (r *Registry) Hosts() []string {
	return []string{r.Site.Address().String(), r.Storage.Address().String()}
}

// Expire makes all tokens and addresses that were given out so far invalid.
func (r *Registry) Expire() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.epoch++
}

// Add makes a tag name a model, and returns the digest of its manifest.
func (r *Registry) Add(model Model) (string, error) {
	configuration, err := json.Marshal(model.Config)
	if err != nil {
		return "", err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	describe := func(mediaType string, content standin.Content) map[string]any {
		digest := "sha256:" + standin.SHA256(content)
		r.blobs[digest] = content
		return map[string]any{"mediaType": mediaType, "digest": digest, "size": content.Size()}
	}
	layers := make([]any, 0, len(model.Layers))
	for _, layer := range model.Layers {
		layers = append(layers, describe(layer.MediaType, layer.Content))
	}
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": describe("application/vnd.docker.container.image.v1+json", standin.Bytes(configuration)), "layers": layers,
	}
	if model.Change != nil {
		model.Change(manifest)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	r.manifests[model.Name+":"+model.Tag] = data
	r.manifests[model.Name+":"+digest] = data
	return digest, nil
}

// refuse answers as OCI Distribution says.
func refuse(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": text}}})
}

func (r *Registry) serveSite(w http.ResponseWriter, request *http.Request) {
	fault := r.Site.Faults.Strike(request)
	if fault.Kind == standin.Status || fault.Kind == standin.Redirect {
		standin.Serve(w, request, nil, "", fault)
		return
	}
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	r.mutex.Lock()
	token := fmt.Sprintf("stand-in-token-%d", r.epoch)
	r.mutex.Unlock()
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	switch {
	case request.URL.Path == "/token":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 300})
	case r.Locked && request.Header.Get("Authorization") != "Bearer "+token:
		scope := ""
		if len(parts) > 3 {
			scope = fmt.Sprintf(`,scope="repository:%s/%s:pull"`, parts[1], parts[2])
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="stand-in"%s`, r.URL(), scope))
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
	case len(parts) == 1 && parts[0] == "v2":
		_, _ = w.Write([]byte("{}"))
	case len(parts) == 5 && parts[0] == "v2" && parts[3] == "manifests":
		r.manifest(w, request, parts[1]+"/"+parts[2]+":"+parts[4], fault)
	case len(parts) == 5 && parts[0] == "v2" && parts[3] == "blobs":
		r.blob(w, parts[4])
	default:
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "repository name not known to registry")
	}
}

func (r *Registry) manifest(w http.ResponseWriter, request *http.Request, name string, fault standin.Fault) {
	r.mutex.Lock()
	data, known := r.manifests[name]
	r.mutex.Unlock()
	if !known {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
		return
	}
	var kind struct {
		MediaType string `json:"mediaType"`
	}
	_ = json.Unmarshal(data, &kind)
	if kind.MediaType == "" {
		kind.MediaType = "application/vnd.oci.image.manifest.v1+json"
	}
	sum := sha256.Sum256(data)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	w.Header().Set("Content-Type", kind.MediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	standin.Serve(w, request, standin.Bytes(data), digest, fault)
}

// blob leads to the storage, with a signature.
func (r *Registry) blob(w http.ResponseWriter, digest string) {
	r.mutex.Lock()
	_, known := r.blobs[digest]
	location := r.Storage.URL().JoinPath("blobs", digest)
	location.RawQuery = url.Values{"X-Amz-Signature": {strconv.Itoa(r.epoch)}}.Encode()
	r.mutex.Unlock()
	if !known {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown to registry")
		return
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Location", location.String())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

func (r *Registry) serveStorage(w http.ResponseWriter, request *http.Request) {
	fault := r.Storage.Faults.Strike(request)
	if fault.Kind == standin.Status || fault.Kind == standin.Redirect {
		standin.Serve(w, request, nil, "", fault)
		return
	}
	digest := strings.TrimPrefix(request.URL.Path, "/blobs/")
	r.mutex.Lock()
	found := r.blobs[digest]
	valid := request.URL.Query().Get("X-Amz-Signature") == strconv.Itoa(r.epoch)
	r.mutex.Unlock()
	switch {
	case request.Header.Get("Authorization") != "":
		http.Error(w, "InvalidRequest: only one auth mechanism allowed", http.StatusBadRequest)
	case !valid:
		http.Error(w, "AccessDenied: Request has expired", http.StatusForbidden)
	case found == nil:
		http.Error(w, "NoSuchKey", http.StatusNotFound)
	default:
		standin.Serve(w, request, found, "storage-"+digest[len(digest)-32:], fault)
	}
}
