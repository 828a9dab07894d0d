package routers_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	gorilla "github.com/gorilla/mux"

	"github.com/pulsegate/pulsegate/mux"
)

// mixed returns the template of route i: static, with a variable, or with a pattern.
func mixed(i int) string {
	return fmt.Sprintf([]string{"/r%d", "/r%d/{id}", "/r%d/{id:[0-9]+}/x"}[i%3], i)
}

// TestAllocPerRoute compares the memory of 10,000 routes after they have been served.
func TestAllocPerRoute(t *testing.T) {
	const routes = 10_000
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	// kept returns the memory of a router in bytes per route.
	kept := func(r http.Handler, add func(path string)) float64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range routes {
			add(mixed(i))
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
	t.Logf("%.0f bytes per route, gorilla %.0f", got, want)
	if got > want {
		t.Errorf("%.0f bytes a route, gorilla %.0f", got, want)
	}
}
