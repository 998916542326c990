package publish

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"magicstick.dev/operator/handwritten/artifacts/transfer"
)

const (
	// barInterval and lineInterval are the pauses between two looks at the meter.
	barInterval, lineInterval = 200 * time.Millisecond, time.Second
	// rateWindow is the time over which a rate is taken.
	rateWindow = 10 * time.Second
)

// Percent is the share of a publishing that is done, as status.progress shows it: whole percents,
// at most 99 until the artifact is ready (contract/models.md C.11). "" while the total is unknown.
func Percent(done, total int64) string {
	if total <= 0 {
		return ""
	}
	return fmt.Sprintf("%d%%", share(done, total))
}

// share avoids the overflow of done * 100.
func share(done, total int64) int64 {
	return min(max(int64(float64(done)/float64(total)*100), 0), 99)
}

// speed takes the rate of the last seconds.
type speed struct {
	times []time.Time
	done  []int64
}

// add notes how much was done at a time.
func (s *speed) add(at time.Time, done int64) {
	s.times, s.done = append(s.times, at), append(s.done, done)
	for len(s.times) > 2 && at.Sub(s.times[0]) > rateWindow {
		s.times, s.done = s.times[1:], s.done[1:]
	}
}

// rate is in bytes per second, 0 while it is unknown.
func (s *speed) rate() int64 {
	if len(s.times) < 2 {
		return 0
	}
	last := len(s.times) - 1
	took := s.times[last].Sub(s.times[0]).Seconds()
	if took <= 0 {
		return 0
	}
	return max(int64(float64(s.done[last]-s.done[0])/took), 0)
}

// remaining is the time that the rest takes at a rate, -1 s when it is unknown.
func remaining(done, total, rate int64) time.Duration {
	if rate <= 0 {
		return -time.Second
	}
	return time.Duration(float64(total-done) / float64(rate) * float64(time.Second)).Round(time.Second)
}

// Event is one line of output for a program.
type Event struct {
	// Event is plan, progress, warning, done or error.
	Event string `json:"event"`
	// Files, Layers and TotalBytes come with plan; TotalBytes also with progress.
	Files      int   `json:"files,omitempty"`
	Layers     int   `json:"layers,omitempty"`
	TotalBytes int64 `json:"totalBytes,omitempty"`
	// The rest up to ETASeconds comes with progress. ETASeconds is -1 when it is unknown.
	Percent        *int64 `json:"percent,omitempty"`
	DoneBytes      *int64 `json:"doneBytes,omitempty"`
	BytesRead      *int64 `json:"bytesRead,omitempty"`
	BytesUploaded  *int64 `json:"bytesUploaded,omitempty"`
	BytesPerSecond *int64 `json:"bytesPerSecond,omitempty"`
	ETASeconds     *int64 `json:"etaSeconds,omitempty"`
	// Message comes with warning and error, ExitCode with error.
	Message  string `json:"message,omitempty"`
	ExitCode int    `json:"exitCode,omitempty"`
}

// Lines writes one JSON object a line.
type Lines struct {
	mu  sync.Mutex
	out io.Writer
}

// NewLines writes to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// Write writes one object. It is safe for concurrent use.
func (l *Lines) Write(object any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = json.NewEncoder(l.out).Encode(object)
}

// Watch writes the progress of a plan until the returned function is called.
func (l *Lines) Watch(plan Plan, meter *transfer.Meter) (stop func()) {
	l.Write(Event{Event: "plan", Files: len(plan.Snapshot.Files), Layers: len(plan.Layers), TotalBytes: plan.SizeBytes})
	var recent speed
	return every(lineInterval, func(now time.Time) { l.Write(progressEvent(now, meter.Totals(), &recent)) })
}

func progressEvent(now time.Time, totals transfer.Totals, recent *speed) Event {
	recent.add(now, totals.Done)
	rate := recent.rate()
	percent, eta := int64(0), int64(remaining(totals.Done, totals.Total, rate)/time.Second)
	if totals.Total > 0 {
		percent = share(totals.Done, totals.Total)
	}
	return Event{
		Event: "progress", TotalBytes: totals.Total, Percent: &percent, DoneBytes: &totals.Done, BytesRead: &totals.Read,
		BytesUploaded: &totals.Sent, BytesPerSecond: &rate, ETASeconds: &eta,
	}
}

// Bar draws the progress of a plan on a terminal until stop is called. What is
// written to above stands above the bar.
func Bar(out io.Writer, plan Plan, meter *transfer.Meter) (above io.Writer, stop func()) {
	var mu sync.Mutex
	var recent speed
	progress := mpb.New(mpb.WithOutput(out), mpb.WithWidth(40), mpb.WithRefreshRate(barInterval))
	bar := progress.AddBar(max(plan.SizeBytes, 1),
		mpb.PrependDecorators(
			decor.Percentage(decor.WCSyncWidth),
			decor.Any(func(decor.Statistics) string {
				totals := meter.Totals()
				return fmt.Sprintf(" %d/%d layers", totals.BlobsDone, totals.Blobs)
			}, decor.WCSyncWidth),
		),
		mpb.AppendDecorators(
			decor.CountersKibiByte("% .1f / % .1f", decor.WCSyncWidth),
			decor.Any(func(statistics decor.Statistics) string {
				mu.Lock()
				defer mu.Unlock()
				return pace(statistics.Current, statistics.Total, recent.rate())
			}),
		),
	)
	ended := every(barInterval, func(now time.Time) {
		mu.Lock()
		defer mu.Unlock()
		totals := meter.Totals()
		recent.add(now, totals.Done)
		// A full bar would end the drawing before the manifests are there.
		bar.SetCurrent(min(totals.Done, max(plan.SizeBytes, 1)-1))
	})
	return progress, func() {
		ended()
		if totals := meter.Totals(); totals.Blobs > 0 && totals.Blobs == totals.BlobsDone {
			bar.SetCurrent(max(plan.SizeBytes, 1))
		}
		bar.Abort(false)
		progress.Wait()
	}
}

// pace is the rate and the time that is left, for people.
func pace(done, total, rate int64) string {
	if rate <= 0 {
		return "  waiting"
	}
	return fmt.Sprintf("  % .1f/s  %s left", decor.SizeB1024(rate), remaining(done, total, rate))
}

// every calls look at an interval until the returned function is called.
func every(interval time.Duration, look func(time.Time)) (stop func()) {
	ticker := time.NewTicker(interval)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		look(time.Now())
		for {
			select {
			case <-end:
				return
			case now := <-ticker.C:
				look(now)
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(end)
		<-ended
	}
}

// DoneEvent is the last line of a publishing that succeeded.
type DoneEvent struct {
	// Event is done.
	Event string `json:"event"`
	Result
}
