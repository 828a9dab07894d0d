package main

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	pollEvery   = 50 * time.Millisecond
	pollTimeout = 5 * time.Second
)

// answers are the results of requests.
type answers struct {
	asked, failed int
	took          []time.Duration
}

// poll sends the same GET request to a server, until stop is called, which returns the results. It uses a
// new connection for each request if reconnect is set.
func poll(ctx context.Context, url string, reconnect bool) (stop func() answers) {
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan answers, 1)
	client := &http.Client{Timeout: pollTimeout, Transport: &http.Transport{DisableKeepAlives: reconnect}}
	go func() {
		defer client.CloseIdleConnections()
		var all answers
		ticker := time.NewTicker(pollEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				result <- all
				return
			case <-ticker.C:
			}
			start := time.Now()
			ok := answered(ctx, client, url)
			if ctx.Err() != nil {
				continue // interrupted by the end of the run
			}
			all.asked++
			if !ok {
				all.failed++
			}
			all.took = append(all.took, time.Since(start))
		}
	}()
	return func() answers {
		cancel()
		return <-result
	}
}

// answered sends one request and reports whether it was answered. 404, for a device
// that is not stored yet, counts as an answer.
func answered(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return false
	}
	return resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotFound
}
