// Package forward delivers the changes of a server to a webhook.
//
// # Promise
//
// [Webhook.Send] returns nil only after the receiver has accepted a message. Messages are sent one after the other, so
// they are accepted in the order in which they are given. A message has the same id at each attempt, also by another
// process: a receiver that keeps ids can drop what it has.
//
// # Not here
//
// Where the changes come from: package transfer.
package forward

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// Bounds of a Webhook.
const (
	// GiveUpAfter is how long a message is sent again.
	GiveUpAfter = 72 * time.Hour

	attemptTimeout = 15 * time.Second // as Standard Webhooks advises
	minRetry       = time.Second
	maxRetry       = 5 * time.Minute
	maxRetryAfter  = time.Hour
	maxAnswerBytes = 64 << 10 // read, so that the connection can be used again
	maxSecretBytes = 4 << 10  // of the file
	minKeyBytes    = 24       // of a secret, as Standard Webhooks demands
	maxKeyBytes    = 64
)

// ErrGone means that the receiver wants no more messages: it has answered 410 (Gone).
var ErrGone = errors.New("forward: the receiver has answered 410 Gone")

// A Webhook sends messages to a receiver in the form of Standard Webhooks 1.0.0 (standardwebhooks.com). Its
// methods must not be called concurrently, but for the counters.
type Webhook struct {
	// OnRetry is called before each wait for another attempt. The error has nothing of the receiver's URL and answer
	// but the status. May be nil.
	OnRetry func(err error, wait time.Duration)

	url         string
	secretsFile string
	http        *http.Client
	wait        func(ctx context.Context, d time.Duration) error

	delivered, failed, pending atomic.Int64
}

// NewWebhook returns a Webhook for a URL with https, or with http on this machine. The file of secrets has one, or two
// while the receiver changes from one to the other, each on a line: "whsec_" and 24 to 64 random bytes in base64. It is
// read at each attempt.
func NewWebhook(to, secretsFile string, tlsConfig *tls.Config) (*Webhook, error) {
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, settings.Usagef("--to is not of the form https://host/path") // the path may be a secret
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && !ip.IsLoopback() {
		return nil, settings.Usagef("--to needs https: what is sent are readings of patients")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig
	w := &Webhook{url: to, secretsFile: secretsFile, wait: sleep, http: &http.Client{
		Transport:     transport,
		Timeout:       attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	_, err = w.keys()
	return w, err
}

// Close closes idle connections.
func (w *Webhook) Close() { w.http.CloseIdleConnections() }

// Delivered returns the number of changes that the receiver has accepted.
func (w *Webhook) Delivered() int64 { return w.delivered.Load() }

// Failed returns the number of attempts that have failed.
func (w *Webhook) Failed() int64 { return w.failed.Load() }

// Pending returns the number of changes in the message that the receiver has not accepted yet.
func (w *Webhook) Pending() int64 { return w.pending.Load() }

// A message is the body of a request.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		Changes []jsontext.Value `json:"changes"`
	} `json:"data"`
}

// Send sends the changes that follow a cursor until the receiver has accepted them. It returns [ErrGone], an error after
// GiveUpAfter, or that of ctx.
func (w *Webhook) Send(ctx context.Context, cursor string, changes []jsontext.Value) error {
	m := message{Type: "changes", Timestamp: time.Now().UTC().Truncate(time.Millisecond)}
	m.Data.Changes = changes
	body, err := json.Marshal(&m)
	if err != nil {
		return fmt.Errorf("create message: %w", err)
	}
	id := messageID(cursor, changes)
	w.pending.Store(int64(len(changes)))
	begun, backoff := time.Now(), minRetry
	for {
		after, err := w.attempt(ctx, id, body)
		if err == nil {
			w.pending.Store(0)
			w.delivered.Add(int64(len(changes)))
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.failed.Add(1)
		if errors.Is(err, ErrGone) {
			return err
		}
		if time.Since(begun) >= GiveUpAfter {
			return fmt.Errorf("gave up after %v: %w", GiveUpAfter, err)
		}
		if after == 0 {
			after = backoff/2 + rand.N(backoff/2)
			backoff = min(2*backoff, maxRetry)
		}
		if w.OnRetry != nil {
			w.OnRetry(err, after)
		}
		if err := w.wait(ctx, after); err != nil {
			return err
		}
	}
}

// messageID returns the id of a message. It depends on the changes as well: a process that was killed may find more of
// them after the same cursor, and a receiver that has the earlier message must not drop the later one.
func messageID(cursor string, changes []jsontext.Value) string {
	hash := sha256.New()
	io.WriteString(hash, cursor)
	for _, c := range changes {
		hash.Write([]byte{0}) // not in JSON
		hash.Write(c)
	}
	return "msg_" + base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:18])
}

// attempt sends a message once. retryAfter is how long the receiver wants to be left alone, or 0.
func (w *Webhook) attempt(ctx context.Context, id string, body []byte) (retryAfter time.Duration, err error) {
	keys, err := w.keys()
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("create request")
	}
	seconds := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "pulsegate")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", seconds)
	req.Header.Set("Webhook-Signature", sign(keys, id, seconds, body))
	resp, err := w.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswerBytes)
	switch status := resp.StatusCode; {
	case status/100 == 2:
		return 0, nil
	case status == http.StatusGone:
		return 0, ErrGone
	default:
		seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
		if err != nil {
			seconds = 0
		}
		return min(time.Duration(seconds)*time.Second, maxRetryAfter), fmt.Errorf("the receiver answers %d %s", status, http.StatusText(status))
	}
}

// sign returns the signatures with each key, as Standard Webhooks has them: HMAC-SHA256 of the id, the time and the body.
func sign(keys [][]byte, id, seconds string, body []byte) string {
	var all []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, seconds)
		mac.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}

// keys reads the secrets. Its errors have nothing of them.
func (w *Webhook) keys() (keys [][]byte, err error) {
	text, err := sharedfile.Read(w.secretsFile, maxSecretBytes)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		encoded, ok := strings.CutPrefix(line, "whsec_")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(key) < minKeyBytes || len(key) > maxKeyBytes {
			return nil, fmt.Errorf("read secrets: %s: a line is not whsec_ and %d to %d bytes in base64", w.secretsFile, minKeyBytes, maxKeyBytes)
		}
		keys = append(keys, key)
	}
	if len(keys) < 1 || len(keys) > 2 {
		return nil, fmt.Errorf("read secrets: %s: it has %d secrets, not one or two", w.secretsFile, len(keys))
	}
	return keys, nil
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
