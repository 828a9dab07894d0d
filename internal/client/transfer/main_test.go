package transfer_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// waits records the pauses of a client without sleeping.
type waits []time.Duration

// serve returns a client of a server that handles requests with h, one at a time.
func serve(t *testing.T, h http.HandlerFunc) (*transfer.Client, *waits) {
	t.Helper()
	var one sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one.Lock()
		defer one.Unlock()
		h(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := transfer.NewClient(server.URL, transfer.Credentials{})
	try(t, err)
	t.Cleanup(client.Close)
	made := new(waits)
	client.SetWait(func(ctx context.Context, d time.Duration) error {
		*made = append(*made, d)
		return ctx.Err()
	})
	return client, made
}

// pipe returns a client with in-memory connections, for use in a synctest bubble. For
// each connection, the server reads one request, writes answer and then stays silent
// until the client disconnects. dials counts the connections. stop stops the servers.
func pipe(t *testing.T, answer string) (client *transfer.Client, dials *int, stop func()) {
	t.Helper()
	client, err := transfer.NewClient("http://127.0.0.1:1", transfer.Credentials{})
	try(t, err)
	dials = new(int)
	var servers sync.WaitGroup
	client.SetDial(func(context.Context, string, string) (net.Conn, error) {
		*dials++
		near, far := net.Pipe()
		servers.Go(func() {
			defer far.Close()
			r := bufio.NewReader(far)
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(far, answer)
			_, _ = io.Copy(io.Discard, r)
		})
		return near, nil
	})
	return client, dials, func() {
		client.Close()
		servers.Wait()
	}
}

// head is the header of a recording, and row is a row with two signs.
const (
	head = "time,device,heart_rate_bpm,spo2_pct\n"
	row  = "2026-01-01T00:00:00Z,w-1,61,97\n"
)

// rows returns n rows with different times.
func rows(n int) string {
	var b strings.Builder
	for at := range n {
		b.WriteString(time.Date(2026, 1, 1, 0, 0, at, 0, time.UTC).Format(time.RFC3339) + ",w-1,61,97\n")
	}
	return b.String()
}

// open returns a Reader of a CSV file.
func open(t *testing.T, text string) recording.Reader {
	t.Helper()
	r, err := recording.NewCSV(strings.NewReader(text),
		recording.Options{Mapping: recording.DefaultMapping(vitals.NewSigns())})
	try(t, err)
	return r
}

var try = polltest.Try
