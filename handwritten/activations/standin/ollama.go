package standin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// ollamas answer GET /api/ps for Pods of Ollama, each at an address of its own
// on the loopback device (https://github.com/ollama/ollama/blob/main/docs/api.md).
type ollamas struct {
	log     logr.Logger
	mutex   sync.Mutex
	servers map[string]*http.Server
}

// serve starts to answer for a Pod and returns the address, empty when that
// failed. A Pod keeps its address.
func (o *ollamas) serve(ctx context.Context, pod *corev1.Pod) string {
	sum := sha256.Sum256([]byte(pod.UID))
	address := net.IPv4(127, 64+sum[0]%64, sum[1], 1+sum[2]%254).String()
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if _, found := o.servers[pod.Name]; found {
		return address
	}
	var listenConfig net.ListenConfig
	listener, err := listenConfig.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		o.log.Error(err, "answering for Ollama", "pod", pod.Name)
		return ""
	}
	answer, err := psAnswer(pod)
	if err != nil {
		o.log.Error(errors.Join(err, listener.Close()), "answering for Ollama", "pod", pod.Name)
		return ""
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/ps", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	o.servers[pod.Name] = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.log.Error(err, "answering for Ollama", "pod", pod.Name)
		}
	}()
	return address
}

// psAnswer says that the model of a Pod takes all memory that the Pod asked for.
func psAnswer(pod *corev1.Pod) ([]byte, error) {
	type loaded struct {
		Name     string `json:"name"`
		Model    string `json:"model"`
		Size     int64  `json:"size"`
		SizeVRAM int64  `json:"size_vram"`
	}
	name := pod.Labels[LabelModel]
	text, err := json.Marshal(map[string][]loaded{"models": {
		{Name: name, Model: name, Size: pod.Spec.Containers[0].Resources.Requests.Memory().Value()},
	}})
	if err != nil {
		return nil, fmt.Errorf("writing the answer of Ollama: %w", err)
	}
	return text, nil
}

// stop ends the answers for a Pod, if there are any.
func (o *ollamas) stop(pod string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if server, found := o.servers[pod]; found {
		_ = server.Close()
		delete(o.servers, pod)
	}
}

// stopAll ends the answers for every Pod.
func (o *ollamas) stopAll() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for name, server := range o.servers {
		_ = server.Close()
		delete(o.servers, name)
	}
}
