package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const maxAnswerBytes = 4 << 10

// firstReading returns the reading that is sent before the load. It has the form and
// length of the script's readings, but a different device.
func firstReading() string {
	return `{"device":"wearable-verify","time":"` + time.Now().UTC().Format("2006-01-02T15:04:05.000Z") +
		`","systolic_mmhg":121,"diastolic_mmhg":79,"spo2_pct":97.5,"heart_rate_bpm":72.5,"resting_heart_rate_bpm":58.5}`
}

// verify sends one reading and checks the answer. With s it uses TLS and the token.
func verify(ctx context.Context, addr string, s *secure) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	transport, scheme := &http.Transport{DisableKeepAlives: true}, "http://"
	if s != nil {
		transport.TLSClientConfig, scheme = &tls.Config{InsecureSkipVerify: true}, "https://"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+addr+path, strings.NewReader(firstReading()))
	if err != nil {
		return fmt.Errorf("verify answer: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	if s != nil {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("verify answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("verify answer: %w", err)
	}
	var answer struct{ Status string }
	if err := json.Unmarshal(body, &answer); err != nil || resp.StatusCode != http.StatusOK || answer.Status != "stored" {
		return fmt.Errorf("verify answer: status %d, body %q", resp.StatusCode, body)
	}
	return nil
}
