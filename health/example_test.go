package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/pulsegate/pulsegate/health"
)

// A service that checks its disk periodically, and whose store reports its own
// failures.
func Example() {
	h := health.New(
		health.Options{OnChange: func(name string, err error) {
			// Log it here: err may be confidential.
		}},
		health.Check{
			Name:    "disk",
			Run:     func(ctx context.Context) error { return nil },
			Every:   10 * time.Second,
			Timeout: time.Second,
		},
		health.Check{Name: "store"},
	)
	reportStore := h.Reporter("store")

	mux := http.NewServeMux()
	mux.Handle("/livez", h.Livez())
	mux.Handle("/readyz", h.Readyz())
	mux.Handle("/healthz", h.Healthz())

	fmt.Println(h.Ready())

	ctx := context.Background()
	h.Start(ctx)
	reportStore(errors.New("fdatasync: input/output error"))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest("GET", "/livez", nil))
	fmt.Print(rec.Code, " ", rec.Body)

	// At shutdown, drain first, then wait for the requests in progress.
	h.Drain()
	if err := h.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// false
	// 200 {"status":"ok"}
}
