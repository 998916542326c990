package standin

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Kind is what goes wrong.
type Kind string

// The faults.
const (
	// Status answers with Fault.Status and nothing else.
	Status Kind = "status"
	// Redirect answers 302 to Fault.Location.
	Redirect Kind = "redirect"
	// Reset sends At bytes of the body and resets the connection.
	Reset Kind = "reset"
	// Cut sends At bytes of the body and closes the connection in order.
	Cut Kind = "cut"
	// Truncate serves the first At bytes as if they were the whole file.
	Truncate Kind = "truncate"
	// WrongByte changes the byte at offset At of the file; size and headers stay right.
	WrongByte Kind = "wrong-byte"
	// Changed serves other bytes under another entity tag to requests for ranges
	// that start at offset At or behind.
	Changed Kind = "changed"
	// NoRanges ignores ranges.
	NoRanges Kind = "no-ranges"
	// NoLength leaves out Content-Length.
	NoLength Kind = "no-length"
	// Shifted answers a range with the bytes one further on, and says so.
	Shifted Kind = "shifted"
	// Encoded says that the content is compressed.
	Encoded Kind = "encoded"
	// Hold sends At bytes of the body and nothing more until Fault.Until is closed
	// or the client leaves.
	Hold Kind = "hold"
	// Slow waits Fault.Delay before every 64 KiB of the body.
	Slow Kind = "slow"
)

// Fault strikes requests whose path contains Path.
type Fault struct {
	// Kind is what goes wrong.
	Kind Kind
	// Path is a part of the path of the URL; "" strikes every request.
	Path string
	// Method, when not empty, is the only one that is struck.
	Method string
	// Times is how many requests are struck; 0 means all.
	Times int
	// At is a number of bytes, see the kinds.
	At int64
	// Status is for Status.
	Status int
	// Header is set on the answer of Status, such as Retry-After.
	Header map[string]string
	// Location is for Redirect.
	Location string
	// Delay is for Slow.
	Delay time.Duration
	// Until is for Hold.
	Until <-chan struct{}
}

// Faults are the switches of a server. The zero value has none on.
type Faults struct {
	mutex sync.Mutex
	on    []*Fault
}

// Add switches a fault on. The first that fits a request strikes it.
func (f *Faults) Add(fault Fault) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.on = append(f.on, &fault)
}

// Clear switches all faults off.
func (f *Faults) Clear() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.on = nil
}

// Strike returns the fault for a request, the zero value for none, and counts it.
func (f *Faults) Strike(r *http.Request) Fault {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for i, fault := range f.on {
		if !strings.Contains(r.URL.Path, fault.Path) || fault.Method != "" && fault.Method != r.Method {
			continue
		}
		struck := *fault
		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				f.on = append(f.on[:i:i], f.on[i+1:]...)
			}
		}
		return struck
	}
	return Fault{}
}

// answers writes what a fault says instead of the right answer, and tells whether
// it did.
func (f Fault) answers(w http.ResponseWriter) bool {
	switch f.Kind {
	case Status:
		for name, value := range f.Header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(f.Status)
		return true
	case Redirect:
		w.Header().Set("Location", f.Location)
		w.WriteHeader(http.StatusFound)
		return true
	}
	return false
}

// breaking is a writer whose connection breaks, or stalls, behind some bytes.
type breaking struct {
	http.ResponseWriter
	request *http.Request
	fault   Fault
	left    int64
}

func (b *breaking) Write(data []byte) (int, error) {
	if b.fault.Kind == Slow {
		return b.slowly(data)
	}
	if int64(len(data)) <= b.left {
		b.left -= int64(len(data))
		return b.ResponseWriter.Write(data)
	}
	_, _ = b.ResponseWriter.Write(data[:b.left])
	_ = http.NewResponseController(b.ResponseWriter).Flush()
	if b.fault.Kind == Hold {
		select {
		case <-b.fault.Until:
			rest := data[b.left:]
			b.left = 1 << 62
			n, err := b.ResponseWriter.Write(rest)
			return n + len(data) - len(rest), err
		case <-b.request.Context().Done():
		}
	}
	if b.fault.Kind == Reset {
		if connection, _, err := http.NewResponseController(b.ResponseWriter).Hijack(); err == nil {
			if tcp, isTCP := connection.(*net.TCPConn); isTCP {
				_ = tcp.SetLinger(0)
			}
			_ = connection.Close()
		}
	}
	panic(http.ErrAbortHandler)
}

func (b *breaking) slowly(data []byte) (int, error) {
	done := 0
	for done < len(data) {
		timer := time.NewTimer(b.fault.Delay)
		select {
		case <-timer.C:
		case <-b.request.Context().Done():
			timer.Stop()
			return done, b.request.Context().Err()
		}
		n, err := b.ResponseWriter.Write(data[done:min(done+64<<10, len(data))])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
