// Package forward delivers the changes of a server to a webhook.
//
// # Promise
//
// [Webhook.Send] returns nil only after the receiver has accepted a message. Messages are sent one after the other, so
// they are accepted in the order in which they are given. A message has the same id at each attempt. Another process
// that sends the same changes after the same cursor gives them the same id, too.
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
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
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
	answerTimeout  = time.Second // to read an answer's body
	maxAnswerBytes = 64 << 10    // read, so that the connection can be used again
	maxSecretBytes = 4 << 10     // of the file
	minKeyBytes    = 24          // of a secret, as Standard Webhooks demands
	maxKeyBytes    = 64
)

// ErrGone means that the receiver has answered 410 (Gone): it rejects all further messages.
var ErrGone = errors.New("the receiver has answered 410 Gone")

// A Webhook sends messages to a receiver in the form of Standard Webhooks 1.0.0 (standardwebhooks.com). Its
// methods must not be called concurrently, but for the counters.
type Webhook struct {
	// OnRetry is called before each wait for another attempt. The error has the status, but nothing else of the
	// receiver's answer, its URL and the message. May be nil.
	OnRetry func(err error, wait time.Duration)

	url         string
	secretsFile string
	transport   *http.Transport
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
	// An attempt that times out then ends its connection. With HTTP/2, each would use the same dead one.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	w := &Webhook{url: to, secretsFile: secretsFile, wait: sleep, transport: transport}
	_, err = w.keys()
	return w, err
}

// Close closes idle connections.
func (w *Webhook) Close() { w.transport.CloseIdleConnections() }

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
		Changes  []jsontext.Value `json:"changes"`
		CaughtUp bool             `json:"caught_up"` // they are the newest
	} `json:"data"`
}

// Send sends the changes of a page until the receiver has accepted them. It returns [ErrGone], an error after
// GiveUpAfter, or the error of ctx.
func (w *Webhook) Send(ctx context.Context, page *transfer.ChangesPage) error {
	m, changes := message{Type: "changes", Timestamp: time.Now().UTC().Truncate(time.Millisecond)}, page.Changes
	m.Data.Changes, m.Data.CaughtUp = changes, page.CaughtUp
	body, err := json.Marshal(&m)
	if err != nil {
		return fmt.Errorf("create message: %w", err)
	}
	id := messageID(page)
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

// messageID returns the id of a message, which depends on all but its time: a process that was killed may find more
// changes after the same cursor, and a receiver that has the earlier message must not drop the later one.
func messageID(page *transfer.ChangesPage) string {
	hash := sha256.New()
	fmt.Fprint(hash, page.CaughtUp, page.After)
	for _, c := range page.Changes {
		hash.Write([]byte{0}) // not in JSON
		hash.Write(c)
	}
	return "msg_" + base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:18])
}

// attempt sends a message once. wait is the pause that the receiver asks for, or 0.
func (w *Webhook) attempt(ctx context.Context, id string, body []byte) (wait time.Duration, err error) {
	keys, err := w.keys()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
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
	resp, err := w.transport.RoundTrip(req) // it follows no redirects
	if err != nil {
		return 0, failure(err)
	}
	defer resp.Body.Close()
	defer time.AfterFunc(answerTimeout, cancel).Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswerBytes)
	switch status := resp.StatusCode; {
	case status/100 == 2:
		return 0, nil
	case status == http.StatusGone:
		return 0, ErrGone
	default:
		return retryAfter(resp.Header.Get("Retry-After")), fmt.Errorf("the receiver answers %d %s", status,
			http.StatusText(status))
	}
}

// retryAfter returns the pause that a Retry-After header asks for, 0 if none.
func retryAfter(text string) time.Duration {
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// failure returns an error that says why there is no answer. Those of net/http quote what the receiver has sent,
// which may be the message.
func failure(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", attemptTimeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("connection refused")
	case errors.As(err, new(*net.DNSError)):
		return errors.New("the receiver's name cannot be resolved")
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return errors.New("the receiver's certificate cannot be verified")
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("the receiver closed the connection without an answer")
	default:
		return errors.New("the connection failed, or the answer is not one of HTTP")
	}
}

// sign returns the signatures with each key, as Standard Webhooks has them: HMAC-SHA256 of the id, the time and the
// body.
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
			return nil, fmt.Errorf("read secrets: %s: a line is not whsec_ and %d to %d bytes in base64", w.secretsFile,
				minKeyBytes, maxKeyBytes)
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
