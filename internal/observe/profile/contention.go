package profile

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// ContentionPath is where a server mounts a [Contention], and where [Collect]
// asks for it, by POST.
const ContentionPath = "/debug/contention"

// Rates of a window, and bounds of what a client may ask for.
//
// A mutex profile records one in mutexFraction contended unlocks. A block profile
// records a wait of d with probability d/blockRate, and every longer one. Where
// 1,000 goroutines wait for commits all the time, 1,000 seconds of waiting go by
// each second, and a rate of one second records 1,000 of the waits: about 0.1 %
// of a processor. A finer rate would show in the CPU profile of the same window.
const (
	mutexFraction = 10
	blockRate     = time.Second

	maxContentionWindow = 10 * time.Minute
)

// A Contention is the server's side of a mutex and a block profile: a handler
// that has the runtime record contention for as long as a client asks it to. The
// rest of the time recording is off and costs nothing.
//
// It answers POST with the parameter seconds, 1 to 600, and optionally
// mutex_fraction and block_rate_ns, for the runtime's SetMutexProfileFraction and
// SetBlockProfileRate. It answers at the end of the window. A client that goes
// away ends its window.
//
// The rates are the process's own: a program has one Contention. When windows
// overlap, the rates of the first hold until the last ends.
type Contention struct {
	mu       sync.Mutex
	open     int           // windows; guarded by mu
	fraction int           // in force while open > 0; guarded by mu
	rate     time.Duration // in force while open > 0; guarded by mu
}

func (c *Contention) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	seconds, fraction, rateNs := int64(0), int64(mutexFraction), int64(blockRate)
	for _, p := range []struct {
		name  string
		most  int64
		value *int64
	}{
		{"seconds", int64(maxContentionWindow / time.Second), &seconds},
		{"mutex_fraction", 1_000_000, &fraction},
		{"block_rate_ns", int64(time.Hour), &rateNs},
	} {
		if text := r.URL.Query().Get(p.name); text != "" {
			*p.value, _ = strconv.ParseInt(text, 10, 64) // what is no number is 0, or too large
		}
		if *p.value < 1 || *p.value > p.most {
			http.Error(w, fmt.Sprintf("%s is not a whole number from 1 to %d", p.name, p.most), http.StatusBadRequest)
			return
		}
	}
	window := time.NewTimer(time.Duration(seconds) * time.Second)
	defer window.Stop()
	inForce := c.start(int(fraction), time.Duration(rateNs))
	defer c.stop()
	select {
	case <-window.C:
		fmt.Fprintln(w, inForce)
	case <-r.Context().Done():
	}
}

// start begins a window and returns the rates that are in force.
func (c *Contention) start(fraction int, rate time.Duration) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == 0 {
		c.fraction, c.rate = fraction, rate
		runtime.SetMutexProfileFraction(fraction)
		runtime.SetBlockProfileRate(int(rate))
	}
	c.open++
	return fmt.Sprintf("mutex_fraction=%d block_rate_ns=%d", c.fraction, c.rate.Nanoseconds())
}

// stop ends a window.
func (c *Contention) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.open == 0 {
		runtime.SetMutexProfileFraction(0)
		runtime.SetBlockProfileRate(0)
	}
}
