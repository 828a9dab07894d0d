package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

const (
	askEvery   = 50 * time.Millisecond
	askTimeout = 5 * time.Second
)

// An asker repeatedly sends the same GET request to a server.
type asker struct {
	cancel context.CancelFunc
	result chan report.Answers
}

// ask starts an asker, which uses a new connection for each request if reconnect is
// set.
func ask(ctx context.Context, url string, reconnect bool) *asker {
	ctx, cancel := context.WithCancel(ctx)
	a := &asker{cancel, make(chan report.Answers, 1)}
	client := &http.Client{Timeout: askTimeout, Transport: &http.Transport{DisableKeepAlives: reconnect}}
	go func() {
		defer client.CloseIdleConnections()
		var all report.Answers
		ticker := time.NewTicker(askEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				a.result <- all
				return
			case <-ticker.C:
			}
			start := time.Now()
			ok := answered(ctx, client, url)
			if ctx.Err() != nil {
				continue // interrupted by the end of the run
			}
			all.Asked++
			if !ok {
				all.Failed++
			}
			all.Took = append(all.Took, time.Since(start))
		}
	}()
	return a
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

// stop stops the asker and returns its counts.
func (a *asker) stop() report.Answers {
	a.cancel()
	return <-a.result
}
