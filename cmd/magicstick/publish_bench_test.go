package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/registry/remote"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"magicstick.dev/operator/handwritten/artifacts/publish"
	"magicstick.dev/operator/handwritten/artifacts/registrytest"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingfacestandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

const (
	// benchFiles is how many files the model of the benchmark has.
	benchFiles = 16
	// benchSizeEnv is the size of all of them together in MiB; 512 when it is not set.
	benchSizeEnv = "BENCH_MIB"
	// benchRoleEnv makes the test binary one of the processes of the benchmark.
	benchRoleEnv = "MAGICSTICK_BENCH_ROLE"
	// benchWorkers is how many transfers the controls make at once, as publish does.
	benchWorkers = 4
)

func benchSize() int64 {
	if mib, err := strconv.ParseInt(os.Getenv(benchSizeEnv), 10, 64); err == nil && mib > 0 {
		return mib << 20
	}
	return 512 << 20
}

// benchModel are files of one size.
func benchModel() map[string]standin.Content {
	files := map[string]standin.Content{}
	for i := range benchFiles {
		files[fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, benchFiles)] = standin.Pattern(uint64(i+1), benchSize()/benchFiles)
	}
	return files
}

// TestBenchProcess is a process of the benchmark, when that starts it so.
func TestBenchProcess(t *testing.T) {
	role := os.Getenv(benchRoleEnv)
	if role == "" {
		return
	}
	args := os.Args[slices.Index(os.Args, "--")+1:]
	switch role {
	case "source":
		hub, err := huggingfacestandin.Start()
		require.NoError(t, err)
		hub.Add(huggingfacestandin.Repository{Name: "owner/model", Commit: strings.Repeat("a", 40), Files: benchModel()})
		fmt.Println(hub.URL().String() + " " + strings.Join(hub.Hosts(), " "))
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "registry":
		registry, err := registrytest.Start(registrytest.Options{Folder: args[0]})
		require.NoError(t, err)
		fmt.Println(registry.Address)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "oras":
		require.NoError(t, orasPush(t.Context(), args[0], args[1]))
	case "sha256":
		hashTwice()
	case "copy":
		require.NoError(t, eachFile(func(name string, content standin.Content) error {
			return copyOverHTTP(t.Context(), args[0]+"/owner/model/resolve/main/"+name, content.Size())
		}))
	case "write":
		require.NoError(t, eachFile(func(_ string, content standin.Content) error {
			return writeOnly(t.Context(), args[0], content)
		}))
	}
	os.Exit(0)
}

// eachFile calls do for every file, some at once.
func eachFile(do func(name string, content standin.Content) error) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	names := make(chan string)
	files := benchModel()
	for range benchWorkers {
		group.Go(func() {
			for name := range names {
				if err := do(name, files[name]); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	for name := range files {
		names <- name
	}
	close(names)
	group.Wait()
	return failed
}

// orasPush is what "oras push" does: hash the files, then copy them to the registry.
func orasPush(ctx context.Context, folder, repository string) error {
	store, err := file.New(folder)
	if err != nil {
		return err
	}
	var layers []ocispec.Descriptor
	for name := range benchModel() {
		layer, err := store.Add(ctx, name, "application/octet-stream", "")
		if err != nil {
			return err
		}
		layers = append(layers, layer)
	}
	manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, "application/x-bench", oras.PackManifestOptions{Layers: layers})
	if err != nil {
		return err
	}
	if err := store.Tag(ctx, manifest, "bench"); err != nil {
		return err
	}
	to, err := remote.NewRepository(repository)
	if err != nil {
		return err
	}
	to.PlainHTTP = true
	_, err = oras.Copy(ctx, store, "bench", to, "bench", oras.DefaultCopyOptions)
	return err
}

// hashTwice makes two passes of SHA-256 over as many bytes, on all cores.
func hashTwice() {
	block := make([]byte, 1<<20)
	_, _ = standin.Pattern(1, 1<<20).ReadAt(block, 0)
	var group sync.WaitGroup
	for range runtime.NumCPU() {
		group.Go(func() {
			hash := sha256.New()
			for range 2 * benchSize() / int64(runtime.NumCPU()) / int64(len(block)) {
				_, _ = hash.Write(block)
			}
			_ = hash.Sum(nil)
		})
	}
	group.Wait()
}

func copyOverHTTP(ctx context.Context, address string, size int64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, answer.Body, make([]byte, 256<<10))
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes instead of %d", n, size)
	}
	return err
}

// writeOnly sends bytes from memory to the registry with one request, as fast as it takes them, and commits them.
func writeOnly(ctx context.Context, repository string, content standin.Content) error {
	host, name, _ := strings.Cut(repository, "/")
	send := func(method, address string, body io.Reader, size int64) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, method, address, body)
		if err != nil {
			return nil, err
		}
		request.ContentLength = size
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		_ = answer.Body.Close()
		if answer.StatusCode >= 300 {
			return nil, fmt.Errorf("%s: %s", method, answer.Status)
		}
		return answer, nil
	}
	begun, err := send(http.MethodPost, "http://"+host+"/v2/"+name+"/blobs/uploads/", nil, 0)
	if err != nil {
		return err
	}
	sent, err := send(http.MethodPatch, begun.Header.Get("Location"), io.NewSectionReader(content, 0, content.Size()), content.Size())
	if err != nil {
		return err
	}
	// The digest is known from before: its cost is no part of this.
	sum := digest.NewDigestFromEncoded(digest.SHA256, benchSums()[content.Size()^patternSeed(content)])
	_, err = send(http.MethodPut, sent.Header.Get("Location")+"&digest="+sum.String(), nil, 0)
	return err
}

// patternSeed tells the contents of the benchmark apart by their first bytes.
func patternSeed(content standin.Content) int64 {
	var first [16]byte
	_, _ = content.ReadAt(first[:], 0)
	out := int64(0)
	for _, b := range first[8:] {
		out = out<<8 | int64(b)
	}
	return out
}

// benchSums are the digests of the files, handed on by the parent so that they cost nothing here.
var benchSums = sync.OnceValue(func() map[int64]string {
	sums := map[int64]string{}
	_ = json.Unmarshal([]byte(os.Getenv("BENCH_SUMS")), &sums)
	return sums
})

// cost is what a process took.
type cost struct {
	wall, cpu      time.Duration
	rss            int64 // peak, bytes
	written        int64 // to disk, bytes
	read, uploaded int64 // as publish says
}

// servers are the processes that the measured ones talk to.
type servers []int

// cpu is what they took so far.
func (s servers) cpu() time.Duration {
	ticks := int64(0)
	for _, pid := range s {
		content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		for _, at := range []int{11, 12} { // utime and stime, proc(5)
			if len(fields) > at {
				n, _ := strconv.ParseInt(fields[at], 10, 64)
				ticks += n
			}
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}

// start starts a process of the benchmark and returns the first line it writes. It ends with the benchmark.
func (s *servers) start(b *testing.B, role string, args ...string) string {
	b.Helper()
	command := exec.Command(os.Args[0], append([]string{"-test.run=^TestBenchProcess$", "--"}, args...)...)
	command.Env = append(os.Environ(), benchRoleEnv+"="+role)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	require.NoError(b, err)
	out, err := command.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, command.Start())
	*s = append(*s, command.Process.Pid)
	b.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return strings.TrimSpace(line)
}

// measure runs a process to its end.
func measure(b *testing.B, command *exec.Cmd) cost {
	b.Helper()
	var buffer bytes.Buffer
	command.Stdout = &buffer
	began := time.Now()
	require.NoError(b, command.Start())
	ended, peak := make(chan struct{}), make(chan int64)
	go watchMemory(command.Process.Pid, ended, peak)
	err := command.Wait()
	wall := time.Since(began)
	close(ended)
	out := buffer.Bytes()
	require.NoError(b, err, string(out))
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	require.True(b, ok)
	result := cost{
		wall: wall, cpu: command.ProcessState.SystemTime() + command.ProcessState.UserTime(),
		rss: <-peak, written: usage.Oublock * 512,
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var done publish.DoneEvent
	if json.Unmarshal([]byte(lines[len(lines)-1]), &done) == nil {
		result.read, result.uploaded = done.BytesRead, done.BytesUploaded
	}
	return result
}

// watchMemory sends the largest resident set of a process that it saw, in bytes. The
// kernel's own peak in rusage counts the parent's memory before exec.
func watchMemory(pid int, ended <-chan struct{}, peak chan<- int64) {
	largest := int64(0)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			peak <- largest
			return
		case <-ticker.C:
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
				kib, _ := strconv.ParseInt(fields[1], 10, 64)
				largest = max(largest, kib<<10)
			}
		}
	}
}

func (c cost) line(name string) string {
	rate := float64(benchSize()) / (1 << 20) / c.wall.Seconds()
	return fmt.Sprintf("%-34s %7.2f s wall %7.0f MiB/s %7.2f s CPU %5d MiB RSS %6.1f MiB to disk %8.1f MiB read %8.1f MiB uploaded",
		name, c.wall.Seconds(), rate, c.cpu.Seconds(), c.rss>>20, float64(c.written)/(1<<20), float64(c.read)/(1<<20), float64(c.uploaded)/(1<<20))
}

// BenchmarkPublish publishes a model from a source on loopback to a registry on loopback, each a
// process, and does in the same run what bounds it: the same bytes hashed, copied, pushed by oras, written to the registry.
func BenchmarkPublish(b *testing.B) {
	folder := os.Getenv("BENCH_DIR")
	if folder == "" {
		folder = b.TempDir()
	}
	sums := map[int64]string{}
	files := filepath.Join(folder, "files")
	require.NoError(b, os.MkdirAll(files, 0o755))
	b.Cleanup(func() { _ = os.RemoveAll(files) })
	for name, content := range benchModel() {
		sums[content.Size()^patternSeed(content)] = standin.SHA256(content)
		out, err := os.Create(filepath.Join(files, name))
		require.NoError(b, err)
		_, err = io.CopyBuffer(struct{ io.Writer }{out}, io.NewSectionReader(content, 0, content.Size()), make([]byte, 1<<20))
		require.NoError(b, err)
		require.NoError(b, out.Close())
	}
	encoded, err := json.Marshal(sums)
	require.NoError(b, err)
	b.Setenv("BENCH_SUMS", string(encoded))
	var running servers
	source := strings.Fields(running.start(b, "source"))
	registries := 0
	registry := func() string {
		registries++
		return running.start(b, "registry", filepath.Join(folder, fmt.Sprintf("registry-%d", registries)))
	}
	control := func(role string, args ...string) cost {
		command := exec.Command(os.Args[0], append([]string{"-test.run=^TestBenchProcess$", "--"}, args...)...)
		command.Env = append(os.Environ(), benchRoleEnv+"="+role)
		command.Stderr = os.Stderr
		return measure(b, command)
	}
	publishing := func(ref, cache string) *exec.Cmd {
		args := []string{"-test.run=^TestPublishProcess$", "--", "publish", "owner/model", ref, "--plain-http", "--json", "--cache-dir", cache}
		for _, host := range source[1:] {
			args = append(args, "--source-host", host)
		}
		command := exec.Command(os.Args[0], args...)
		command.Env = append(os.Environ(), publishEnv+"=1", "HF_ENDPOINT="+source[0], "DOCKER_CONFIG="+folder)
		command.Stderr = os.Stderr
		return command
	}

	for b.Loop() {
		hashed := control("sha256")
		copied := control("copy", source[0])
		written := control("write", registry()+"/ai/control")
		pushed := control("oras", files, registry()+"/ai/oras")
		to, cache := registry()+"/ai/model:v1", b.TempDir()
		before := running.cpu()
		first := measure(b, publishing(to, cache))
		others := running.cpu() - before
		second := measure(b, publishing(to, cache))
		again := measure(b, publishing(to, b.TempDir()))

		half, cache := registry()+"/ai/model:v1", b.TempDir()
		killed := publishing(half, cache)
		killHalfWay(b, killed)
		resumed := measure(b, publishing(half, cache))

		slower := max(hashed.wall, written.wall)
		fmt.Printf("\n%d files, %d MiB, %d cores\n", benchFiles, benchSize()>>20, runtime.NumCPU())
		for _, one := range []struct {
			name string
			cost cost
		}{
			{"control: SHA-256 twice, all cores", hashed}, {"control: plain HTTP copy", copied}, {"control: write to the registry", written},
			{"control: oras push from disk", pushed}, {"publish", first}, {"publish again", second}, {"publish again, no checkpoint", again},
			{"publish resumed after kill at 50 %", resumed},
		} {
			fmt.Println(one.cost.line(one.name))
		}
		fmt.Printf("publish runs at %.0f %% of the slower of hashing and registry; target 80 %%\n", 100*slower.Seconds()/first.wall.Seconds())
		all := first.cpu + others
		least := all / time.Duration(runtime.NumCPU())
		fmt.Printf("publish took %.1f s CPU, source and registry %.1f s: on %d cores at least %.1f s, which is %.0f %% of its time\n",
			first.cpu.Seconds(), others.Seconds(), runtime.NumCPU(), least.Seconds(), 100*least.Seconds()/first.wall.Seconds())
		b.ReportMetric(100*slower.Seconds()/first.wall.Seconds(), "%-of-control")
		b.ReportMetric(float64(first.rss>>20), "MiB-RSS")
	}
}

// killHalfWay runs publish until it says that half is done, and kills it.
func killHalfWay(b *testing.B, command *exec.Cmd) {
	b.Helper()
	out, err := command.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, command.Start())
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		var event publish.Event
		if json.Unmarshal(scanner.Bytes(), &event) == nil && event.Percent != nil && *event.Percent >= 50 {
			break
		}
	}
	_ = command.Process.Kill()
	_ = command.Wait()
}
