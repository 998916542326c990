package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the storage of the registry
	"github.com/sirupsen/logrus"
)

// registrySecret signs the state of running uploads. It is fixed, so that an
// upload goes on after a restart; on loopback it protects nothing from anyone.
const registrySecret = "magicstick-dev"

// registry is an OCI registry on 127.0.0.1 with its blobs in a folder.
type registry struct {
	address string
	server  *http.Server
	ended   chan error
}

// startRegistry serves a registry from <dataDir>/registry, on any free port.
func startRegistry(ctx context.Context, dataDir string) (*registry, error) {
	// The library logs every request to the global logger, in the middle of our table.
	logrus.SetOutput(io.Discard)
	var listenConfig net.ListenConfig
	listener, err := listenConfig.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the registry: %w", err)
	}
	config := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": {"rootdirectory": filepath.Join(dataDir, "registry")},
			"delete":     {"enabled": true},
			// The other kinds of maintenance would start timers that walk the whole folder.
			"maintenance": {"uploadpurging": map[any]any{"enabled": false}},
		},
	}
	config.HTTP.Secret = registrySecret
	config.HTTP.Addr = listener.Addr().String()
	app := handlers.NewApp(ctx, config)
	r := &registry{
		address: listener.Addr().String(),
		server:  &http.Server{Handler: app, ReadHeaderTimeout: 10 * time.Second},
		ended:   make(chan error, 1),
	}
	go func() { r.ended <- r.server.Serve(listener) }()
	return r, nil
}

// stop lets running requests end for a moment and then cuts them.
func (r *registry) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		_ = r.server.Close()
	}
	if err := <-r.ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the registry: %w", err)
	}
	return nil
}
