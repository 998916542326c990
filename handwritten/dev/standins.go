package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"magicstick.dev/operator/handwritten/activations"
	kubeai "magicstick.dev/operator/handwritten/activations/standin"
	"magicstick.dev/operator/handwritten/dev/flux"
	"magicstick.dev/operator/handwritten/dev/fluxstandin"
	"magicstick.dev/operator/handwritten/modelindex"
	litellm "magicstick.dev/operator/handwritten/modelindex/standin"
)

const (
	// podStartUp is how long a person sees a model start.
	podStartUp = 2 * time.Second
	// kubeAIRestart is how long KubeAI takes to know new resource profiles.
	kubeAIRestart = time.Second
	// modelNamespace is where KubeAI and LiteLLM are (contract/appliance.md Annex 1).
	modelNamespace = "ai"
	// providerSecret and providerKey are what the example of an external model names.
	providerSecret, providerKey = "external-openai-api-key", "api-key"
	// providerValue is honest about what it opens.
	providerValue = "stand-in, opens nothing"
)

// startStandIns plays what a real appliance has and this machine has not. Flux is
// played only where it does not run.
func (s *session) startStandIns(ctx context.Context) (string, error) {
	if !s.StandIns {
		return "", nil
	}
	log, err := s.openLog("stand-ins.log")
	if err != nil {
		return "", err
	}
	secrets, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return "", fmt.Errorf("starting the stand-ins: %w", err)
	}
	if err := s.startLiteLLM(ctx, secrets); err != nil {
		return "", err
	}
	made, err := ensureSecret(ctx, secrets, providerSecret, providerKey, providerValue)
	if err != nil {
		return "", err
	}
	if made == providerValue {
		s.out.line("  Secret %s/%s of the example of an external model has a key that opens nothing", modelNamespace, providerSecret)
	}
	played := []string{"KubeAI", "LiteLLM (" + s.liteLLM + ")"}
	if !s.Flux {
		if err := s.startFluxStandIn(ctx, log); err != nil {
			return "", err
		}
		played = append([]string{"Flux"}, played...)
	}
	s.background(ctx, "the stand-in for KubeAI", func(ctx context.Context) error {
		return kubeai.Run(ctx, s.config, kubeai.Options{
			Namespace: modelNamespace, StartUp: podStartUp, Restart: kubeAIRestart, Log: log, OllamaAnswers: true,
			Profiles:    types.NamespacedName{Namespace: flux.Namespace, Name: activations.ProfilesConfigMap},
			ProfilesKey: activations.ProfilesKey,
		})
	})
	return "NO MODEL RUNS HERE: small programs play " + enumerate(played), nil
}

// enumerate joins words as a sentence has them.
func enumerate(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// startFluxStandIn applies what the installation's own Flux graph would have
// made, and plays Flux.
func (s *session) startFluxStandIn(ctx context.Context, log logr.Logger) error {
	folders, err := standInFolders()
	if err != nil {
		return err
	}
	if err := s.applyStaticModules(ctx); err != nil {
		return err
	}
	manager, err := fluxstandin.New(s.config, fluxstandin.Options{Namespace: flux.Namespace, Folders: folders, Log: log})
	if err != nil {
		return err
	}
	s.background(ctx, "the stand-in for Flux", manager.Start)
	return nil
}

// startLiteLLM serves the admin API of LiteLLM. A folder that is kept between
// runs keeps the key, but not the models: the operator makes them anew.
func (s *session) startLiteLLM(ctx context.Context, secrets kubernetes.Interface) error {
	settings := modelindex.DefaultSettings()
	key, err := ensureSecret(ctx, secrets, settings.MasterKeySecret, settings.MasterKeyKey, "sk-"+rand.Text())
	if err != nil {
		return err
	}
	var listenConfig net.ListenConfig
	listener, err := listenConfig.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("starting the stand-in for LiteLLM: %w", err)
	}
	server := &http.Server{Handler: litellm.New(key), ReadHeaderTimeout: 10 * time.Second}
	s.background(ctx, "the stand-in for LiteLLM", func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		select {
		case <-ctx.Done():
			return errors.Join(server.Close(), ignoreClosed(<-ended))
		case err := <-ended:
			return err
		}
	})
	s.liteLLM = "http://" + listener.Addr().String()
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ensureSecret makes a Secret with one key unless it is there, and returns the
// value of the key.
func ensureSecret(ctx context.Context, client kubernetes.Interface, name, key, value string) (string, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{key: value}}
	_, err := client.CoreV1().Secrets(modelNamespace).Create(ctx, secret, metav1.CreateOptions{})
	if err == nil {
		return value, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("making the Secret %s/%s: %w", modelNamespace, name, err)
	}
	secret, err = client.CoreV1().Secrets(modelNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the Secret %s/%s: %w", modelNamespace, name, err)
	}
	return string(secret.Data[key]), nil
}

// background runs a part until stop; when it ends before, the session fails.
func (s *session) background(ctx context.Context, name string, run func(context.Context) error) {
	// Not the run's context: parts end in the reverse order of their start.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		if failed = run(running); failed == nil && running.Err() == nil {
			failed = errors.New("it ended on its own")
		}
	}()
	s.onStop(func() error {
		cancel()
		<-ended
		return nil // a failure was reported when it happened
	})
	s.failures = append(s.failures, failure{ended, func() error {
		if failed == nil {
			return nil
		}
		return fmt.Errorf("running %s: %w", name, failed)
	}})
}

// openLog makes a log below the data folder, which is closed at the end.
func (s *session) openLog(name string) (logr.Logger, error) {
	path := filepath.Join(s.dir, "logs", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return logr.Logger{}, fmt.Errorf("making the folder of the logs: %w", err)
	}
	// #nosec G304 -- a file below our own data folder.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("opening the log %s: %w", name, err)
	}
	s.onStop(file.Close)
	return logr.FromSlogHandler(slog.NewTextHandler(file, nil)), nil
}
