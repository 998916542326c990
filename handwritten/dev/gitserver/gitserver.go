// Package gitserver serves one local Git repository over HTTP, so that Flux's
// source-controller can fetch from it exactly as it does from a forge.
//
// The protocol is spoken by `git http-backend`, a CGI program that every
// installation of Git brings.
package gitserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi" // #nosec G504 -- about Go before 1.6.3
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Branch is the branch that commits go to.
const Branch = "main"

const repositoryName = "repository.git"

// Server serves a repository on 127.0.0.1.
type Server struct {
	// URL is what a clone takes.
	URL string

	git      string
	dir      string
	env      []string
	server   *http.Server
	ended    chan error
	stopOnce sync.Once
	stopErr  error
	writing  sync.Mutex
}

// Start makes an empty repository below dir, which must exist and be empty, and
// serves it on any free port.
func Start(ctx context.Context, dir string) (*Server, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("starting the Git server: Git is not installed: %w", err)
	}
	s := &Server{git: git, dir: dir, ended: make(chan error, 1)}
	// Neither the user's nor the machine's configuration may change what happens.
	s.env = []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + dir, "PATH=" + os.Getenv("PATH"),
		"GIT_AUTHOR_NAME=magicstick", "GIT_AUTHOR_EMAIL=magicstick@localhost",
		"GIT_COMMITTER_NAME=magicstick", "GIT_COMMITTER_EMAIL=magicstick@localhost",
	}
	if err := os.RemoveAll(s.repository()); err != nil {
		return nil, fmt.Errorf("starting the Git server: removing the old repository: %w", err)
	}
	if err := s.run(ctx, "init", "--quiet", "--bare", "--initial-branch="+Branch, s.repository()); err != nil {
		return nil, fmt.Errorf("starting the Git server: %w", err)
	}
	var listenConfig net.ListenConfig
	listener, err := listenConfig.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the Git server: %w", err)
	}
	s.URL = fmt.Sprintf("http://%s/%s", listener.Addr(), repositoryName)
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &cgi.Handler{
		Path: git, Args: []string{"http-backend"}, Dir: dir,
		Env: append(s.env, "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"),
	}}
	go func() { s.ended <- s.server.Serve(listener) }()
	return s, nil
}

// Commit makes the given files, by their path with forward slashes, the whole
// content of the branch, and returns the commit's ID.
func (s *Server) Commit(ctx context.Context, message string, files map[string][]byte) (string, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	tree, err := os.MkdirTemp(s.dir, "tree-")
	if err != nil {
		return "", fmt.Errorf("committing %q: %w", message, err)
	}
	defer func() { _ = os.RemoveAll(tree) }()
	root, err := os.OpenRoot(tree)
	if err != nil {
		return "", fmt.Errorf("committing %q: %w", message, err)
	}
	defer func() { _ = root.Close() }()
	for name, content := range files {
		local := filepath.FromSlash(name)
		err := root.MkdirAll(filepath.Dir(local), 0o750)
		if err == nil {
			err = root.WriteFile(local, content, 0o600)
		}
		if err != nil {
			return "", fmt.Errorf("committing %q: writing %q: %w", message, name, err)
		}
	}
	where := []string{"--git-dir=" + s.repository(), "--work-tree=" + tree}
	for _, args := range [][]string{
		{"add", "--all", "--force", tree},
		{"commit", "--quiet", "--allow-empty", "--message=" + message},
	} {
		if err := s.run(ctx, append(where, args...)...); err != nil {
			return "", fmt.Errorf("committing %q: %w", message, err)
		}
	}
	command := s.command(ctx, append(where, "rev-parse", "HEAD")...)
	id, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("reading the ID of the commit %q: %w", message, err)
	}
	return strings.TrimSpace(string(id)), nil
}

// Stop ends the server; the repository stays. Further calls return the first result.
func (s *Server) Stop() error {
	s.stopOnce.Do(func() {
		_ = s.server.Close() // its error is that of closing idle connections
		if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) {
			s.stopErr = fmt.Errorf("serving Git: %w", err)
		}
	})
	return s.stopErr
}

func (s *Server) repository() string { return filepath.Join(s.dir, repositoryName) }

func (s *Server) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, s.git, args...) // #nosec G204 -- Git with our own arguments.
	command.Dir, command.Env = s.dir, s.env
	return command
}

func (s *Server) run(ctx context.Context, args ...string) error {
	output, err := s.command(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
