package activations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// H17: two seconds of quiet, ten between two writes, and news that never ends is
// waited out for ten.
func TestPace(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }
	fresh := func() *pace { return &pace{quiet: 2 * time.Second, interval: 10 * time.Second} }

	p := fresh()
	assert.Zero(t, p.wait(at(0)), "nothing to wait for")
	p.news(at(0))
	assert.Equal(t, 2*time.Second, p.wait(at(0)))
	assert.Equal(t, time.Millisecond, p.wait(at(1999)))
	assert.Zero(t, p.wait(at(2000)))
	p.news(at(1500))
	assert.Equal(t, 1500*time.Millisecond, p.wait(at(2000)), "more news, more quiet")

	p.looked()
	p.written(at(3500))
	p.news(at(4000))
	assert.Equal(t, 9500*time.Millisecond, p.wait(at(4000)), "not so soon after a write")
	assert.Zero(t, p.wait(at(13500)))
	p.news(at(13000))
	assert.Equal(t, 500*time.Millisecond, p.wait(at(13500)), "news since the fourth second are old enough by then")

	p = fresh()
	writes := 0
	for now := 0; now < 60_000; now += 500 {
		p.news(at(now))
		if p.wait(at(now)) == 0 {
			p.looked()
			p.written(at(now))
			writes++
		}
	}
	assert.Equal(t, 5, writes, "a minute of news without a pause")

	p = fresh()
	p.written(at(0))
	assert.Equal(t, 9*time.Second, p.wait(at(1000)), "a look without news keeps the interval")
	p.looked()
	assert.Zero(t, p.wait(at(10_000)))
}
