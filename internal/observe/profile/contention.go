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

// Rates of the profiles.
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
// It serves POST with the parameter seconds, 1 to 600. The response comes at the end of
// the window. A client that disconnects ends its window.
//
// The rates are global to the process, so a program must have only one Contention.
type Contention struct {
	mu   sync.Mutex
	open int // number of open windows; guarded by mu
}

func (c *Contention) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	const most = int(maxContentionWindow / time.Second)
	seconds, _ := strconv.Atoi(r.URL.Query().Get("seconds")) // an invalid number yields 0 or one out of range
	if seconds < 1 || seconds > most {
		http.Error(w, fmt.Sprintf("seconds is not a whole number from 1 to %d", most), http.StatusBadRequest)
		return
	}
	window := time.NewTimer(time.Duration(seconds) * time.Second)
	defer window.Stop()
	c.add(1)
	defer c.add(-1)
	select {
	case <-window.C:
		fmt.Fprintln(w, "recorded")
	case <-r.Context().Done():
	}
}

// add opens a window, or with -1 closes one.
func (c *Contention) add(windows int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += windows
	if c.open > 0 {
		runtime.SetMutexProfileFraction(mutexFraction)
		runtime.SetBlockProfileRate(int(blockRate))
	} else {
		runtime.SetMutexProfileFraction(0)
		runtime.SetBlockProfileRate(0)
	}
}
