package activations

import (
	"sync"
	"time"
)

// pace holds back writes that make another program restart: until there has been
// no news for a while, and not sooner than some time after the last write.
type pace struct {
	// quiet is how long there must have been no news; interval lies between two
	// writes, and is as long as news is waited out at all.
	quiet, interval time.Duration

	mutex sync.Mutex
	// first and last are the news since the last look; zero when there are none.
	first, last time.Time
	// wrote is the last write, zero when there was none.
	wrote time.Time
}

// news notes that something changed.
func (p *pace) news(now time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.first.IsZero() {
		p.first = now
	}
	p.last = now
}

// wait says how long to hold back from now; nothing means that it is time.
func (p *pace) wait(now time.Time) time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.first.IsZero() {
		return max(p.wrote.Add(p.interval).Sub(now), 0)
	}
	settled := p.last.Add(p.quiet)
	if latest := p.first.Add(p.interval); latest.Before(settled) {
		settled = latest // news that never ends
	}
	if !p.wrote.IsZero() && settled.Before(p.wrote.Add(p.interval)) {
		settled = p.wrote.Add(p.interval)
	}
	return max(settled.Sub(now), 0)
}

// looked forgets the news that a look has taken in.
func (p *pace) looked() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.first, p.last = time.Time{}, time.Time{}
}

// written notes a write.
func (p *pace) written(now time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.wrote = now
}
