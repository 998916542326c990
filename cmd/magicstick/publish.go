package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"magicstick.dev/operator/handwritten/artifacts/layout"
	"magicstick.dev/operator/handwritten/artifacts/publish"
	"magicstick.dev/operator/handwritten/artifacts/transfer"
	"magicstick.dev/operator/handwritten/validate"
)

// publishMemory is the size in bytes that the garbage collector keeps the process
// near; the buffers take less than half of it, whatever the size of the model.
const publishMemory = 96 << 20

// publishFlags are the flags of the command.
type publishFlags struct {
	target           transfer.TargetOptions
	include, exclude []string
	json             bool
	cacheDir         string
	parallel         int
	chunkMi          int64
	sourceHosts      []string
}

func newPublishCommand() *cobra.Command {
	var flags publishFlags
	command := &cobra.Command{
		Use:   "publish SOURCE REF",
		Short: "Bring a model into an OCI registry as one verified artifact",
		Long: `Bring a model into an OCI registry as one verified artifact.

SOURCE is a local file or folder, a model of Hugging Face (a URL, hf://owner/repo, or
owner/repo[@revision]), or the URL of a model of Ollama; a file or folder of that
name comes first. REF is host/name[:tag]; the tag is "` + publish.DefaultTag + `" when there is none.

The files become layers that two manifests share: a CNCF ModelPack manifest under
the tag, and an OCI image manifest under the tag with "-image" behind it, which
Kubernetes mounts as an image volume. The same files always give the same digests.

Every byte is read once, checked against what the source promises, and streamed into
the registry; nothing is kept on disk. Blobs that the registry has are not sent again.
After an interruption, also by kill -9, the same command goes on where it stopped: what that needs,
some kilobytes, lies in the folder of --cache-dir.

Credentials for the registry come from the docker configuration ("docker login");
those for Hugging Face from HF_TOKEN. HF_ENDPOINT and OLLAMA_REGISTRY name mirrors.

On a terminal a bar shows rate and remaining time, and the last line on standard output names
the digests of both manifests, the bytes read and the bytes uploaded. Otherwise, and
with --json, every line on standard output is a JSON object with a field "event": plan, progress,
warning, and at last done, which has the same facts, or error.

Exit code: 0 the registry confirmed everything, 1 something unexpected, 2 wrong use,
3 the source cannot be read, 4 the registry cannot be written, 5 bytes are not those
that were promised, 130 interrupted.`,
		Example: `  magicstick publish Qwen/Qwen2.5-7B-Instruct registry.example/models/qwen:2.5
  magicstick publish hf://owner/repo-GGUF registry.example/models/repo --include '*Q4_K_M*.gguf'
  magicstick publish ./my-model 127.0.0.1:5000/models/mine:1 --plain-http --json`,
		Args: func(command *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(2)(command, args); err != nil {
				return &exitError{publish.ExitUsage, errors.New("publish takes a SOURCE and a REF; see magicstick publish --help")}
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return runPublish(command.Context(), args[0], args[1], flags, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	set := command.Flags()
	set.BoolVar(&flags.target.PlainHTTP, "plain-http", false, "speak http with the registry instead of https")
	set.BoolVar(&flags.json, "json", false, "write JSON objects, one a line, also to a terminal")
	set.StringArrayVar(&flags.include, "include", nil, "take only files that match this glob; may be repeated")
	set.StringArrayVar(&flags.exclude, "exclude", nil, "leave out files that match this glob; may be repeated")
	set.StringVar(&flags.target.CAFile, "ca-file", "", "file with PEM certificates that the registry's may be signed by")
	set.StringVar(&flags.cacheDir, "cache-dir", "", "folder of checkpoints (default: magicstick/publish in the user's cache folder)")
	set.IntVar(&flags.parallel, "parallel", 0, "how many layers are under way at once (default 4)")
	set.Int64Var(&flags.chunkMi, "chunk-mi", 0, "size of one request to the registry in Mi, for proxies that allow less (default 64)")
	set.StringArrayVar(&flags.sourceHosts, "source-host", nil, "host[:port] that a mirror may lead to; may be repeated")
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{publish.ExitUsage, err} })
	return command
}

// runPublish is the whole command. out gets what a program reads, console what a person sees.
func runPublish(ctx context.Context, from, to string, flags publishFlags, out, console io.Writer) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(publishMemory)
	}
	repository, tag, err := publish.ParseReference(to)
	if err != nil {
		return &exitError{publish.ExitUsage, err}
	}
	flags.target.UserAgent = "magicstick/" + validate.Version
	target, err := transfer.NewTarget(repository, flags.target)
	if err != nil {
		return &exitError{publish.ExitUsage, err}
	}
	screen := newScreen(out, console, flags.json)
	result, err := publishSource(ctx, from, target, tag, flags, screen)
	if err != nil {
		code := publish.ExitCode(err)
		screen.fail(err, code)
		return &exitError{code, fmt.Errorf("publishing %s: %w", from, err)}
	}
	screen.done(result)
	return nil
}

func publishSource(ctx context.Context, from string, target *transfer.Target, tag string, flags publishFlags, screen *screen) (publish.Result, error) {
	origins := publish.Origins{
		HuggingFace: os.Getenv("HF_ENDPOINT"), Ollama: os.Getenv("OLLAMA_REGISTRY"), Token: os.Getenv("HF_TOKEN"),
		Hosts: flags.sourceHosts, Notice: screen.warn,
	}
	snapshot, closing, err := publish.Resolve(ctx, from, origins)
	if err != nil {
		return publish.Result{}, err
	}
	defer closing()
	if snapshot, err = publish.Narrow(snapshot, flags.include, flags.exclude); err != nil {
		return publish.Result{}, err
	}
	plan, err := publish.NewPlan(snapshot, layout.Metadata{})
	if err != nil {
		return publish.Result{}, err
	}
	options := transfer.Options{Parallel: flags.parallel, Chunk: flags.chunkMi << 20, Meter: &transfer.Meter{}, Warn: func(err error) { screen.warn(err.Error()) }}
	checkpoint, err := publish.OpenCheckpoint(cacheDir(flags.cacheDir), target.Repository(), plan)
	if err != nil {
		screen.warn(err.Error() + "; an interruption will cost a new start")
	} else {
		options.State, options.Index = checkpoint.State, checkpoint.Index
		defer checkpoint.Close()
	}
	stop := screen.watch(plan, options.Meter)
	result, err := publish.Publish(ctx, plan, target, tag, publish.Options{Transfer: options})
	stop()
	if err == nil && checkpoint != nil {
		checkpoint.Done()
	}
	return result, err
}

// cacheDir is where checkpoints lie; "" when the user has no cache folder.
func cacheDir(named string) string {
	if named != "" {
		return named
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(user, "magicstick", "publish")
}

// screen shows a publishing to a person or tells it to a program.
type screen struct {
	lines *publish.Lines // nil on a terminal
	out   io.Writer

	mu  sync.Mutex
	err io.Writer // above the bar while there is one
}

func newScreen(out, console io.Writer, json bool) *screen {
	s := &screen{out: out, err: console}
	file, ok := console.(*os.File)
	if json || !ok || !term.IsTerminal(int(file.Fd())) {
		s.lines = publish.NewLines(out)
	}
	return s
}

func (s *screen) watch(plan publish.Plan, meter *transfer.Meter) (stop func()) {
	if s.lines != nil {
		return s.lines.Watch(plan, meter)
	}
	above, stop := publish.Bar(s.err, plan, meter)
	below := s.errors(above)
	return func() {
		s.errors(below)
		stop()
	}
}

// errors makes messages go to another place, and returns the former one.
func (s *screen) errors(to io.Writer) (former io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former, s.err = s.err, to
	return former
}

func (s *screen) warn(message string) {
	if s.lines != nil {
		s.lines.Write(publish.Event{Event: "warning", Message: message})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.err, "magicstick: warning:", message)
}

func (s *screen) fail(err error, code int) {
	if s.lines != nil {
		s.lines.Write(publish.Event{Event: "error", Message: err.Error(), ExitCode: code})
	}
}

func (s *screen) done(result publish.Result) {
	if s.lines != nil {
		s.lines.Write(publish.DoneEvent{Event: "done", Result: result})
		return
	}
	fmt.Fprintf(s.out, "%s:%s modelpack=%s image=%s read=%d uploaded=%d\n",
		result.Repository, result.Tag, result.ModelPack, result.Image, result.BytesRead, result.BytesUploaded)
}
