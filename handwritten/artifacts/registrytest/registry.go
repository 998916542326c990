// Package registrytest runs the CNCF Distribution registry within a test, with the
// ways of logging in that real ones have, and breaks it on demand.
package registrytest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd" // one of the ways to log in
	_ "github.com/distribution/distribution/v3/registry/auth/token"    // the other
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // storage that outlives a restart
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"   // storage that does not
	"github.com/sirupsen/logrus"
)

const (
	// Username is the only user of a registry with Basic or Tokens.
	Username = "alice"
	// Password is that of the user.
	Password = "correct horse"
	// htpasswd holds that user, bcrypt with the lowest cost.
	htpasswd = Username + ":$2a$04$K99H1WpIBgWq3WYfC17rJeDpaY9NHNknSAZaCfHm5ZmAnuSfRwJzu\n"
)

// Options say what the registry is like. The zero value lets everybody in and
// keeps its blobs in memory.
type Options struct {
	// Scratch is a folder for the user file; needed with Basic.
	Scratch string
	// Folder keeps the blobs and outlives the registry; in memory when "".
	Folder string
	// Basic asks for name and password.
	Basic bool
	// Tokens asks for a token of that server; nil for none.
	Tokens *TokenServer
	// ReadOnly refuses everything that writes.
	ReadOnly bool
	// TLS serves https with this certificate; nil for http.
	TLS *tls.Certificate
	// Wrap stands in front of the registry, to break it; nil for nothing.
	Wrap func(http.Handler) http.Handler
}

// Registry is a running registry on 127.0.0.1.
type Registry struct {
	// Address is host:port.
	Address string
	options Options

	mu       sync.Mutex
	server   *http.Server
	shutdown func()
}

// Start serves a registry on a free port.
func Start(options Options) (*Registry, error) {
	// The library logs every request to the global logger.
	logrus.SetOutput(io.Discard)
	r := &Registry{options: options, Address: "127.0.0.1:0"}
	return r, r.Restart()
}

// Restart stops the registry and serves it again, on the same port. What is only in memory is lost.
func (r *Registry) Restart() error {
	r.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	config, err := r.configuration()
	if err != nil {
		return err
	}
	var listenConfig net.ListenConfig
	listener, err := listenConfig.Listen(context.Background(), "tcp", r.Address)
	if err != nil {
		return fmt.Errorf("starting the registry: %w", err)
	}
	r.Address = listener.Addr().String()
	config.HTTP.Addr = r.Address
	ctx, cancel := context.WithCancel(context.Background())
	app := handlers.NewApp(ctx, config)
	r.shutdown = func() {
		cancel()
		_ = app.Shutdown()
	}
	var handler http.Handler = app
	if r.options.Wrap != nil {
		handler = r.options.Wrap(handler)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	r.server = server
	if r.options.TLS != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*r.options.TLS}, MinVersion: tls.VersionTLS12})
	}
	go func() { _ = server.Serve(listener) }()
	return nil
}

// Stop cuts every connection, as a killed process does.
func (r *Registry) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		_ = r.server.Close()
		r.shutdown()
		r.server = nil
	}
}

func (r *Registry) configuration() (*configuration.Configuration, error) {
	config := &configuration.Configuration{Storage: configuration.Storage{
		"delete": {"enabled": true},
		"maintenance": {
			"uploadpurging": map[any]any{"enabled": false},
			"readonly":      map[any]any{"enabled": r.options.ReadOnly},
		},
	}}
	// Fixed, so that uploads go on after a restart.
	config.HTTP.Secret = "registrytest"
	if r.options.Folder == "" {
		config.Storage["inmemory"] = configuration.Parameters{}
	} else {
		config.Storage["filesystem"] = configuration.Parameters{"rootdirectory": r.options.Folder}
	}
	switch {
	case r.options.Basic:
		file := filepath.Join(r.options.Scratch, "htpasswd")
		if err := os.WriteFile(file, []byte(htpasswd), 0o600); err != nil {
			return nil, fmt.Errorf("starting the registry: %w", err)
		}
		config.Auth = configuration.Auth{"htpasswd": {"realm": "registrytest", "path": file}}
	case r.options.Tokens != nil:
		config.Auth = configuration.Auth{"token": r.options.Tokens.parameters()}
	}
	return config, nil
}

// Blobs are the digests of the blobs that the registry in the folder keeps, with
// their sizes in bytes, and Uploads how many uploads are unfinished.
func Blobs(folder string) (blobs map[string]int64, uploads int, err error) {
	blobs = map[string]int64{}
	err = filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}
		if entry.IsDir() || entry.Name() != "data" {
			return nil
		}
		if filepath.Base(filepath.Dir(filepath.Dir(path))) == "_uploads" {
			uploads++
			return nil
		}
		info, err := entry.Info()
		if err == nil {
			blobs["sha256:"+filepath.Base(filepath.Dir(path))] = info.Size()
		}
		return err
	})
	return blobs, uploads, err
}
