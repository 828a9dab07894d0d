package routers_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	gorilla "github.com/gorilla/mux"

	"github.com/pulsegate/pulsegate/mux"
)

// TestAllocPerRoute compares what 10,000 routes keep in memory after they have
// been served.
func TestAllocPerRoute(t *testing.T) {
	const routes = 10_000
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	// kept returns the bytes per route of a router.
	kept := func(r http.Handler, add func(path string)) float64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range routes {
			add(fmt.Sprintf([]string{"/r%d", "/r%d/{id}", "/r%d/{id:[0-9]+}/x"}[i%3], i))
		}
		req, err := http.NewRequest(http.MethodGet, "/r3/1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := statusOf(r, req); got != http.StatusNotFound {
			t.Errorf("status %d, want 404", got)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(r)
		return float64(after.HeapAlloc-before.HeapAlloc) / routes
	}
	theirs, ours := gorilla.NewRouter(), mux.NewRouter()
	want := kept(theirs, func(path string) { theirs.Handle(path, h).Methods("GET") })
	got := kept(ours, func(path string) { ours.Handle(path, h).Methods("GET") })
	t.Logf("%.0f bytes a route, gorilla %.0f", got, want)
	if got > want {
		t.Errorf("%.0f bytes a route, gorilla %.0f", got, want)
	}
}
