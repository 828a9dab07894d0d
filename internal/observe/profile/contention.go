package profile

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// ContentionPath is the path at which a server mounts a [Contention], and to which
// [Collect] posts.
const ContentionPath = "/debug/contention"

// Default rates, and bounds for the parameters.
//
// A mutex profile records one in mutexFraction contended unlocks. A block profile
// records a wait of length d with probability d/blockRate, and every wait longer than
// blockRate. If 1,000 goroutines wait for commits all the time, 1,000 seconds of
// waiting accumulate per second, and a rate of one second records 1,000 waits per
// second, at the cost of about 0.1 % of a processor. A finer rate would be visible in
// the CPU profile of the same window.
const (
	mutexFraction = 10
	blockRate     = time.Second

	maxContentionWindow = 10 * time.Minute
)

// A Contention is a handler that makes the runtime record mutex and block profiles for
// as long as a client requests. At all other times recording is off and costs nothing.
//
// It serves POST with the parameter seconds, 1 to 600, and optionally mutex_fraction
// and block_rate_ns, for the runtime's SetMutexProfileFraction and SetBlockProfileRate.
// The response comes at the end of the window. A client that disconnects ends its
// window.
//
// The rates are global to the process, so a program must have only one Contention. If
// windows overlap, the rates of the first apply until the last ends.
type Contention struct {
	mu       sync.Mutex
	open     int           // number of open windows; guarded by mu
	fraction int           // in effect while open > 0; guarded by mu
	rate     time.Duration // in effect while open > 0; guarded by mu
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
			*p.value, _ = strconv.ParseInt(text, 10, 64) // an invalid number yields 0 or an out-of-range value
		}
		if *p.value < 1 || *p.value > p.most {
			http.Error(w, fmt.Sprintf("%s is not a whole number from 1 to %d", p.name, p.most), http.StatusBadRequest)
			return
		}
	}
	rates := c.start(int(fraction), time.Duration(rateNs))
	defer c.stop()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
		fmt.Fprintln(w, rates)
	case <-r.Context().Done():
	}
}

// start begins a window and returns the rates in effect.
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
