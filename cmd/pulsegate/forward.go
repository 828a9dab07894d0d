package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/internal/client/forward"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

type forwardCommand struct {
	To          string    `required:"" placeholder:"URL" help:"URL of the receiver. http only on this machine."`
	Secrets     string    `required:"" type:"path" placeholder:"FILE" help:"File with the secret that signs messages, or with two while the receiver changes from one to the other, each on a line: whsec_ and 24 to 64 bytes in base64. It is read at each attempt."`
	State       stateFile `required:"" type:"path" placeholder:"FILE" help:"File in which to keep what was delivered, which only you can read. The next call continues there. If there is no such file, everything is sent."`
	Batch       int       `default:"100" help:"Largest number of changes in a message, at most 1000."`
	ToCA        string    `name:"to-ca" type:"path" placeholder:"FILE" help:"CA certificates in PEM that verify the receiver's certificate. Default: those of the system."`
	MetricsAddr string    `placeholder:"ADDR" help:"Address on which to serve /metrics, such as 127.0.0.1:9090. Default: none."`
	Again       bool      `action:"" help:"Send also if the receiver has answered 410 (Gone) before."`

	changeFlags `embed:""`
	readerFlags `embed:""`
}

// maxForwarded is the largest value of --batch.
const maxForwarded = 1000

// Run sends changes until ctx is done, or the receiver rejects all further ones. The state is saved after the receiver
// has accepted a message, so a message may be sent twice, and none is left out.
func (c *forwardCommand) Run(ctx context.Context, std stdio) error {
	if c.Batch < 1 || c.Batch > maxForwarded {
		return settings.Usagef("--batch is not 1 to %d", maxForwarded)
	}
	if strings.Contains(c.Secrets, "/whsec_") { // made absolute; errors name the file
		return settings.Usagef("--secrets requires the name of a file, not a secret")
	}
	tlsConfig, err := (&transfer.CredentialFiles{CA: c.ToCA}).TLSConfig()
	if err != nil {
		return err
	}
	hook, err := forward.NewWebhook(c.To, c.Secrets, tlsConfig)
	if err != nil {
		return err
	}
	defer hook.Close()
	unlock, err := c.State.lock(ctx, std.err)
	if err != nil {
		return err
	}
	defer unlock()
	sel := c.selection()
	sel.Follow, sel.Limit = true, c.Batch
	sel.Cursor, err = c.State.load()
	if err != nil && (!errors.Is(err, errGoneState) || !c.Again) {
		return err
	}
	client, err := c.connect(c.Target, std.err)
	if err != nil {
		return err
	}
	defer client.Close()
	client.Endless = true
	client.OnRetry = func(err error, _ int, wait time.Duration) {
		fmt.Fprintf(std.err, "Changes cannot be read; the next try is in %v: %v\n", wait.Round(time.Millisecond), err)
	}
	hook.OnRetry = func(err error, wait time.Duration) {
		fmt.Fprintf(std.err, "The receiver has not accepted a message; the next try is in %v: %v\n",
			wait.Round(time.Millisecond), err)
	}
	lag := new(forwardLag)
	lag.readUnixMs.Store(time.Now().UnixMilli())
	stop, err := c.serveMetrics(hook, lag, std)
	if err != nil {
		return err
	}
	defer stop()
	err = readChanges(ctx, client, sel, std.err, "sent", func(page *transfer.ChangesPage) error {
		now := time.Now().UnixMilli()
		if len(page.Changes) > 0 {
			lag.sinceUnixMs.Store(oldestChange(page, now))
			err := hook.Send(ctx, page)
			if errors.Is(err, forward.ErrGone) {
				return errors.Join(errGoneState, c.State.replace(page.After+"\n"+goneState))
			}
			if err != nil {
				return err
			}
		}
		lag.sinceUnixMs.Store(0)
		lag.readUnixMs.Store(time.Now().UnixMilli())
		return c.State.save(page.Next)
	})
	if ctx.Err() != nil { // the command is to end
		return nil
	}
	return err
}

// A forwardLag has times from which the lag of the receiver is computed.
type forwardLag struct {
	sinceUnixMs atomic.Int64 // when the first change in the message that is sent was made; 0 if there is none
	readUnixMs  atomic.Int64 // when the server last answered, or a message was accepted
}

// oldestChange returns when the first of the readings of a page was changed, or otherwise.
func oldestChange(page *transfer.ChangesPage, otherwise int64) int64 {
	oldest := otherwise
	for _, text := range page.Changes {
		var c struct {
			Changed time.Time `json:"changed"`
		}
		if json.Unmarshal(text, &c) == nil && !c.Changed.IsZero() { // other kinds have none
			oldest = min(oldest, c.Changed.UnixMilli())
		}
	}
	return oldest
}

// secondsSince returns the seconds since a time, 0 if it is 0.
func secondsSince(unixMs *atomic.Int64) func() int64 {
	return func() int64 {
		if since := unixMs.Load(); since != 0 {
			return max(time.Now().UnixMilli()-since, 0) / 1000
		}
		return 0
	}
}

// serveMetrics serves /metrics until stop is called.
func (c *forwardCommand) serveMetrics(hook *forward.Webhook, lag *forwardLag, std stdio) (stop func(), err error) {
	if c.MetricsAddr == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", c.MetricsAddr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(versionText(), func() bool { return true },
		metrics.Gauge("pulsegate_forward_behind_seconds",
			"How long ago the first change in the message that is not accepted yet was made; 0 if there is none.",
			secondsSince(&lag.sinceUnixMs)),
		metrics.Gauge("pulsegate_forward_quiet_seconds",
			"Seconds since the server last answered, or a message was accepted. Without changes it answers every 45 s.",
			secondsSince(&lag.readUnixMs)),
		metrics.Gauge("pulsegate_forward_pending_changes", "Changes in the message that the receiver has not accepted yet.",
			hook.Pending),
		metrics.Gauge("pulsegate_forward_delivered_changes", "Changes that the receiver has accepted.", hook.Delivered),
		metrics.Gauge("pulsegate_forward_failed_attempts", "Attempts that have failed.", hook.Failed)))
	server := &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, MaxHeaderBytes: 16 << 10,
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	fmt.Fprintf(std.err, "Metrics are at http://%s/metrics.\n", listener.Addr())
	return func() {
		_ = server.Close()
		serving.Wait()
	}, nil
}
