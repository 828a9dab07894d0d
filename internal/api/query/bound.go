package query

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// DefaultMaxReads is how many questions are answered at one time unless a server
// says otherwise.
const DefaultMaxReads = 64

// readWait is how long a question waits for others to be answered.
const readWait = 1 * time.Second

// Bound returns a function that wraps handlers so that together they answer at most
// n requests at one time. Each holds its page in memory, until the client has read
// it. A request that finds no place within a second is refused with busy, and a
// Retry-After.
func Bound(n int, busy *reply.Problem) func(http.Handler) http.Handler {
	places := make(chan struct{}, n)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case places <- struct{}{}:
			default:
				if !await(places, r) {
					// Clients that were refused at one moment must not come back at one.
					wait := time.Duration(1+rand.IntN(maxBusySeconds)) * time.Second
					busy.WriteRetryAfter(w, r, wait, "Too many questions are being answered.")
					return
				}
			}
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		})
	}
}

// maxBusySeconds is the longest Retry-After; the shortest is 1.
const maxBusySeconds = 5

// await waits for a place and reports whether it got one.
func await(places chan<- struct{}, r *http.Request) bool {
	timer := time.NewTimer(readWait)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return true
	case <-timer.C:
	case <-r.Context().Done():
	}
	return false
}
