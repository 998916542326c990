package standin_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"github.com/go-logr/logr"
)

// lines keeps a log for tests.
type lines struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *lines) Write(data []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(data)
}

func (l *lines) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

func (l *lines) has(words string) bool { return strings.Contains(l.String(), words) }

func (l *lines) logger() logr.Logger { return logr.FromSlogHandler(slog.NewTextHandler(l, nil)) }
