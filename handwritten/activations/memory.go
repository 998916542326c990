package activations

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// OllamaPort is where Ollama listens in Pods of KubeAI.
const OllamaPort = 8000

// Bounds of asking Ollama (contract/rulings.md 2, status).
const (
	// sampleInterval lies between two questions to the same activation.
	sampleInterval = time.Minute
	// sampleTimeout bounds one question, from the connection to the last byte.
	sampleTimeout = 5 * time.Second
	// sampleParallel is how many Pods are asked at the same time.
	sampleParallel = 16
	// maxSampleBytes bounds an answer, and maxSampleHeader its header.
	maxSampleBytes, maxSampleHeader = 1 << 20, 64 << 10
)

// MemoryUsage is what Ollama says of the memory of a loaded model.
type MemoryUsage = appliancev1alpha1.ModelActivationStatusMemoryUsage

// SamplerOptions are for tests; the zero value is right for everything else.
type SamplerOptions struct {
	// Port is asked where an address has none; OllamaPort when 0.
	Port int
	// Interval, Timeout and Parallel are sampleInterval, sampleTimeout and
	// sampleParallel when 0.
	Interval, Timeout time.Duration
	Parallel          int
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Sampler asks the Ollama Pods of activations once a minute how much memory the
// loaded model takes, and keeps the sums.
//
// The figures of an activation are those of all its ready replicas or of none: a
// replica that does not answer, answers with something else, or has no model
// loaded clears them, because a sum without it would be read as the whole.
//
// It runs beside the controllers of the leader. Only Pods that Watch was told of
// are asked, at their addresses, without following redirects.
type Sampler struct {
	options SamplerOptions
	client  *http.Client
	changed func(types.NamespacedName)
	// places limits the questions under way.
	places chan struct{}
	// wake is filled when the next question may be due earlier than planned.
	wake chan struct{}

	mutex   sync.Mutex
	watched map[types.NamespacedName]*sampled
}

// sampled is what is known of one activation.
type sampled struct {
	addresses []string
	// usage is the last figure that was worth telling; known once an answer came.
	usage *MemoryUsage
	known bool
	// due is when to ask next; asking while answers are awaited.
	due    time.Time
	asking bool
}

// NewSampler makes a sampler that calls changed when a figure of an activation
// changed so much that it should be written. Add it to a manager, which starts it.
func NewSampler(changed func(types.NamespacedName), options SamplerOptions) *Sampler {
	options.Port = cmp.Or(options.Port, OllamaPort)
	options.Interval = cmp.Or(options.Interval, sampleInterval)
	options.Timeout = cmp.Or(options.Timeout, sampleTimeout)
	options.Parallel = cmp.Or(options.Parallel, sampleParallel)
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Sampler{
		options: options, changed: changed,
		client: &http.Client{
			Timeout: options.Timeout,
			// A Pod has no say in who is asked.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			// No proxy, and no connection that is kept for a minute.
			Transport: &http.Transport{
				DisableKeepAlives: true, MaxResponseHeaderBytes: maxSampleHeader,
				DialContext: (&net.Dialer{Timeout: options.Timeout}).DialContext,
			},
		},
		places:  make(chan struct{}, options.Parallel),
		wake:    make(chan struct{}, 1),
		watched: map[types.NamespacedName]*sampled{},
	}
}

// NeedLeaderElection keeps the processes that wait for the lease from asking.
func (*Sampler) NeedLeaderElection() bool { return true }

// Watch says which Pods of an activation to ask from now on, by the addresses of
// the ready ones, <address> or <address>:<port>. None means that the activation is
// forgotten. Other Pods than before are asked at once.
func (s *Sampler) Watch(activation types.NamespacedName, addresses []string) {
	addresses = slices.Compact(slices.Sorted(slices.Values(addresses)))
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(addresses) == 0 {
		delete(s.watched, activation)
		return
	}
	entry := s.watched[activation]
	if entry == nil {
		entry = &sampled{}
		s.watched[activation] = entry
	}
	if slices.Equal(entry.addresses, addresses) {
		return
	}
	entry.addresses, entry.due = addresses, time.Time{}
	s.ring()
}

// Latest gives what the status of an activation should say: the last figure, or
// nil when there is none. known is false while nobody has been asked since the
// process started: then the status keeps what it has (see NextUsage).
func (s *Sampler) Latest(activation types.NamespacedName) (usage *MemoryUsage, known bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	entry := s.watched[activation]
	if entry == nil {
		return nil, false
	}
	return entry.usage.DeepCopy(), entry.known
}

// NextUsage is what a status that says current should say after Latest. It is
// current itself where nothing is worth writing.
func NextUsage(current, latest *MemoryUsage, known bool) *MemoryUsage {
	if !known || !usageChanged(current, latest) {
		return current
	}
	return latest
}

// usageChanged tells whether a figure appeared, cleared, or moved by one percent
// or more of what it was (contract/rulings.md 2, status). The time of the sample
// is no figure.
func usageChanged(before, after *MemoryUsage) bool {
	if before == nil || after == nil {
		return before != after
	}
	moved := func(was, is int64) bool {
		distance := max(was-is, is-was)
		return distance > 0 && distance*100 >= was
	}
	return before.Replicas != after.Replicas || before.Source != after.Source ||
		moved(before.RAMMi, after.RAMMi) || moved(before.VRAMMi, after.VRAMMi) || moved(before.TotalMi, after.TotalMi)
}

// Start asks until the context ends, and returns when nothing is under way any more.
func (s *Sampler) Start(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		due, pause := s.due()
		for _, question := range due {
			under.Add(1)
			go func() {
				defer under.Done()
				s.ask(ctx, question)
			}()
		}
		timer.Reset(pause)
	}
}

// question is one round through the replicas of an activation.
type question struct {
	activation types.NamespacedName
	entry      *sampled
	addresses  []string
}

// due takes out what is to be asked now, and says how long nothing else is due.
func (s *Sampler) due() ([]question, time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now, pause := s.options.Now(), s.options.Interval
	var questions []question
	for activation, entry := range s.watched {
		if entry.asking {
			continue
		}
		if wait := entry.due.Sub(now); wait > 0 {
			pause = min(pause, wait)
			continue
		}
		entry.asking, entry.due = true, now.Add(s.options.Interval)
		questions = append(questions, question{activation, entry, entry.addresses})
	}
	return questions, pause
}

// ask asks all replicas and keeps the answer, unless somebody else is meant by now.
func (s *Sampler) ask(ctx context.Context, question question) {
	usage, err := s.sum(ctx, question.addresses)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Ollama does not say how much memory a model takes", "activation", question.activation, "error", err.Error())
	}
	if s.keep(question, usage) && s.changed != nil {
		s.changed(question.activation)
	}
}

func (s *Sampler) keep(question question, usage *MemoryUsage) (tell bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	entry := question.entry
	if s.watched[question.activation] != entry {
		return false
	}
	entry.asking = false
	// The Pods have changed in the meantime, or the pause was planned without this one.
	s.ring()
	if !slices.Equal(entry.addresses, question.addresses) {
		return false
	}
	tell = !entry.known || usageChanged(entry.usage, usage)
	if tell {
		entry.usage, entry.known = usage, true
	}
	return tell
}

func (s *Sampler) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sum asks every replica; an error of one is an error of all.
func (s *Sampler) sum(ctx context.Context, addresses []string) (*MemoryUsage, error) {
	answers, problems := make([]loaded, len(addresses)), make([]error, len(addresses))
	var under sync.WaitGroup
	for i, address := range addresses {
		select {
		case s.places <- struct{}{}:
		case <-ctx.Done():
			problems[i] = ctx.Err()
			continue
		}
		under.Add(1)
		go func() {
			defer under.Done()
			defer func() { <-s.places }()
			answers[i], problems[i] = s.replica(ctx, address)
		}()
	}
	under.Wait()
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	var total loaded
	for _, answer := range answers {
		total.bytes += answer.bytes
		total.vramBytes += answer.vramBytes
	}
	usage := &MemoryUsage{
		RAMMi: roundUp(total.bytes-total.vramBytes, 1<<20) >> 20, VRAMMi: roundUp(total.vramBytes, 1<<20) >> 20,
		Replicas:  int32(len(addresses)), //nolint:gosec // at most 100, by the schema
		SampledAt: metav1.NewTime(s.options.Now().UTC().Truncate(time.Second)),
		Source:    appliancev1alpha1.ModelActivationStatusMemoryUsageSourceOllamaAPIPs,
	}
	usage.TotalMi = usage.RAMMi + usage.VRAMMi
	return usage, nil
}

// loaded is the memory of the models that one replica has loaded, in bytes; vram
// is part of bytes.
type loaded struct{ bytes, vramBytes int64 }

// replica asks one Pod.
func (s *Sampler) replica(ctx context.Context, address string) (loaded, error) {
	target, err := s.target(address)
	if err != nil {
		return loaded{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/api/ps", http.NoBody)
	if err != nil {
		return loaded{}, fmt.Errorf("asking Ollama at %s: %w", target, err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return loaded{}, fmt.Errorf("asking Ollama at %s: %w", target, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return loaded{}, fmt.Errorf("asking Ollama at %s: it answers with status %d", target, response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxSampleBytes+1))
	if err != nil {
		return loaded{}, fmt.Errorf("reading what Ollama at %s answers: %w", target, err)
	}
	if len(body) > maxSampleBytes {
		return loaded{}, fmt.Errorf("reading what Ollama at %s answers: more than %d bytes", target, maxSampleBytes)
	}
	answer, err := parseLoaded(body)
	if err != nil {
		return loaded{}, fmt.Errorf("reading what Ollama at %s answers: %w", target, err)
	}
	return answer, nil
}

// target adds the port. Only addresses are taken, no names: a name could stand
// for anything.
func (s *Sampler) target(address string) (string, error) {
	if full, err := netip.ParseAddrPort(address); err == nil {
		return full.String(), nil
	}
	bare, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("asking Ollama at %q: not an address", address)
	}
	return net.JoinHostPort(bare.String(), strconv.Itoa(s.options.Port)), nil
}

// parseLoaded reads the answer of /api/ps.
func parseLoaded(body []byte) (loaded, error) {
	var answer struct {
		Models *[]struct {
			Size     *int64 `json:"size"`
			SizeVRAM int64  `json:"size_vram"`
		} `json:"models"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return loaded{}, errors.New("it is not the JSON of /api/ps")
	}
	if answer.Models == nil {
		return loaded{}, errors.New("models: missing")
	}
	if len(*answer.Models) == 0 {
		return loaded{}, errors.New("no model is loaded")
	}
	var total loaded
	for i, model := range *answer.Models {
		switch {
		case model.Size == nil:
			return loaded{}, fmt.Errorf("models[%d].size: missing", i)
		case *model.Size < 1 || *model.Size > maxMemoryMi<<20:
			return loaded{}, fmt.Errorf("models[%d].size: must be from 1 to %d, got %d", i, int64(maxMemoryMi)<<20, *model.Size)
		case model.SizeVRAM < 0 || model.SizeVRAM > *model.Size:
			return loaded{}, fmt.Errorf("models[%d].size_vram: must be from 0 to the size of %d, got %d", i, *model.Size, model.SizeVRAM)
		}
		total.bytes += *model.Size
		total.vramBytes += model.SizeVRAM
	}
	if total.bytes > maxMemoryMi<<20 {
		return loaded{}, fmt.Errorf("models: %d bytes together are more than any machine has", total.bytes)
	}
	return total, nil
}
