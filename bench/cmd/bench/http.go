package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// scrape returns the metrics of an admin listener, by the name and labels of each
// series.
func scrape(ctx context.Context, admin string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	text, err := exchange(ctx, http.MethodGet, "http://"+admin+"/metrics", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(line[at+1:], 64); at > 0 && err == nil { // other lines are comments
			values[line[:at]] = value
		}
	}
	return values, nil
}

// exchange sends a request, and returns the body of its answer in buf[:0] or a new array.
func exchange(ctx context.Context, method, url string, body io.Reader, buf []byte) ([]byte, error) {
	return request(ctx, http.DefaultClient, method, url, "", body, buf)
}

// request is exchange with a client, and with a token unless that is empty.
func request(ctx context.Context, client *http.Client, method, url, token string, body io.Reader,
	buf []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text := bytes.NewBuffer(buf[:0])
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %.500s", resp.StatusCode, text.Bytes())
	}
	return text.Bytes(), nil
}
