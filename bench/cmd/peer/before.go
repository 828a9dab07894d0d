package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/gorilla/mux"
	"github.com/pulsegate/pulsegate/bench/answers"
)

// serveBefore is a typical first version of a service: a router, a log line per
// request, Unmarshal in, MarshalIndent out. It stores nothing.
func serveBefore(ctx context.Context, l net.Listener, _ config) error {
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer out.Close()
	r := mux.NewRouter()
	r.HandleFunc(path, answers.BeforeVitals(out)).Methods(http.MethodPost)
	return serveHTTP(ctx, l, r)
}
