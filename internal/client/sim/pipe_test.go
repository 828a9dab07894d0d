package sim_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
)

const stored = `{"status":"stored"}` + "\n"

func ok(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(body), body)
}

func refusal(status int, name, fields string) string {
	body := `{"type":"https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#` + name + `"}`
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/problem+json\r\n%sContent-Length: %d\r\n\r\n%s", status,
		fields, len(body), body)
}

// A peer is a server over pipes, for use in a synctest bubble. answer is called for
// request n, from 0; calls are serialized. An empty answer closes the connection.
type peer struct {
	answer func(n int, body string) string

	mu     sync.Mutex // guards the following fields
	n      int
	bodies []string
	at     []time.Time
	tasks  sync.WaitGroup
}

func (p *peer) dial(context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	p.tasks.Go(func() { p.serve(server) })
	return client, nil
}

func (p *peer) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return // the client has disconnected
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		n := p.n
		p.n++
		p.bodies = append(p.bodies, string(body))
		p.at = append(p.at, time.Now())
		p.mu.Unlock()
		text := p.answer(n, string(body))
		if text == "" {
			return
		}
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

// run runs opt against p with the bubble's fake clock.
func (p *peer) run(t *testing.T, ctx context.Context, opt sim.Options) (*sim.Report, error) {
	t.Helper()
	opt.Run, opt.Seed = "p", 1
	report, err := sim.Run(ctx, opt.WithDial(p.dial))
	p.tasks.Wait()
	wantSum(t, report)
	return report, err
}
