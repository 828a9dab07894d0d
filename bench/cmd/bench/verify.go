package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

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
	transport, url, token := &http.Transport{DisableKeepAlives: true}, "http://"+addr+path, ""
	if s != nil {
		transport.TLSClientConfig, url, token = &tls.Config{InsecureSkipVerify: true}, "https://"+addr+path, s.token
	}
	text, err := request(ctx, &http.Client{Transport: transport}, http.MethodPost, url, token,
		strings.NewReader(firstReading()), nil)
	var answer struct{ Status string }
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || answer.Status != "stored" {
		return fmt.Errorf("verify answer: %w, body %q", err, text)
	}
	return nil
}
