package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
)

// serveNetHTTP answers without using the body, which net/http drains. It uses TLS if there is
// a certificate.
func serveNetHTTP(ctx context.Context, l net.Listener, cfg config) error {
	if cfg.cert != "" {
		secure, err := cfg.certificate()
		if err != nil {
			return err
		}
		l = tls.NewListener(l, secure)
	}
	answer := []byte(fixedAnswer)
	mux := http.NewServeMux()
	handler := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	}
	mux.HandleFunc("POST "+path, handler)
	mux.HandleFunc("GET /v1/devices/{device}", handler)
	return serveHTTP(ctx, l, mux)
}

// serveHTTP serves h with net/http until ctx is done.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
