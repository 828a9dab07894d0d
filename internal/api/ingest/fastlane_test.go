package ingest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
)

// fast starts a server with both lanes.
func fast(t testing.TB, cfg ingest.Config, lane ingest.FastLaneConfig, before func([]*storage.Entry) error) *server {
	t.Helper()
	return serveMemory(t, cfg, before, &lane)
}

// eachFast runs a test over the fast lane, without TLS and with it.
func eachFast(t *testing.T, test func(t *testing.T, secure bool)) {
	t.Run("plain", func(t *testing.T) { test(t, false) })
	t.Run("TLS", func(t *testing.T) { test(t, true) })
}

// reading returns a reading of a device and second that no other call returns.
func reading(device string, second int) string {
	return fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":97}`, device, second*1000)
}

// answers reads n responses and returns the status and body of each.
func answers(t testing.TB, in *bufio.Reader, n int) (all []string) {
	t.Helper()
	for i := range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d of %d: %v", i, n, err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("answer %d of %d: %v", i, n, err)
		}
		all = append(all, fmt.Sprint(resp.StatusCode, " ", strings.TrimSuffix(string(text), "\n")))
	}
	return all
}

// send writes all of a text.
func send(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// A usual request stays in the fast lane; an unusual one leaves it.
func TestLanes(t *testing.T) { eachFast(t, testLanes) }

func testLanes(t *testing.T, secure bool) {
	srv := fast(t, ingest.Config{}, ingest.FastLaneConfig{TLS: secure}, nil)
	conn := dial(t, srv)
	in := bufio.NewReader(conn)
	for i := range 3 {
		send(t, conn, request(reading("d", i)))
		answers(t, in, 1)
	}
	if s := srv.lane.Stats(); s.Accepted != 1 || s.Moved != 0 || s.Open != 1 {
		t.Errorf("after usual requests: %+v, want 1 accepted and none moved", s)
	}
	send(t, conn, strings.Replace(request(reading("d", 3)), "Host", "X-Odd: 1\r\nHost", 1))
	answers(t, in, 1)
	if s := srv.lane.Stats(); s.Moved != 1 || s.Open != 1 {
		t.Errorf("after an unusual request: %+v, want 1 moved and open", s)
	}
	send(t, conn, request(reading("d", 4)))
	if got := answers(t, in, 1)[0]; got != `200 {"status":"stored"}` {
		t.Errorf("a usual request in the full lane: %s", got)
	}
	if n := srv.core.Counters().Stored; n != 5 {
		t.Errorf("%d readings stored, want 5", n)
	}
}

// Pipelined requests are answered in order, regardless of their lane, their number
// and how the bytes are split. Seen to fail when rejections were answered
// immediately.
func TestPipelined(t *testing.T) {
	eachFront(t, func(t *testing.T, serve serveFunc) {
		_, srv := serve(t, ingest.Config{MaxGroup: 7, MaxQueued: 1000}, nil)
		var text strings.Builder
		var want []string
		add := func(request, answer string) {
			text.WriteString(request)
			want = append(want, answer)
		}
		for i := range 150 {
			switch body := reading("d", i); {
			case i%10 == 3:
				add(request(`{"device":"d","time":1,"spo2_pct":0}`),
					`422 {"type":"https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#invalid-reading","title":"The `+
						`reading is not acceptable","status":422,"field":"spo2_pct","reason":"no signal"}`)
			case i%10 == 5:
				add(request("["+body+","+reading("e", i)+"]"), `200 {"stored":2,"duplicate":0}`)
			case i%10 == 7:
				add("\r\n"+request(body), `200 {"status":"stored"}`)
			case i%50 == 48:
				// More readings than fit into one group.
				add(request(batch(fmt.Sprint("b", i), 20)), `200 {"stored":20,"duplicate":0}`)
			case i == 110:
				add(fmt.Sprintf("POST /v1/readings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
					len(body), body), `200 {"status":"stored"}`)
			default:
				add(request(body), `200 {"status":"stored"}`)
			}
		}
		all := text.String()
		for _, piece := range []int{len(all), 1000, 7} {
			conn := dial(t, srv)
			go func() {
				for rest := all; rest != ""; {
					n := min(piece, len(rest))
					if _, err := io.WriteString(conn, rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
			}()
			for i, got := range answers(t, bufio.NewReader(conn), len(want)) {
				if piece != len(all) {
					want[i] = strings.NewReplacer("stored\"}", "duplicate\"}", `"stored":2,"duplicate":0`, `"stored":0,"duplicate":2`,
						`"stored":20,"duplicate":0`, `"stored":0,"duplicate":20`).Replace(want[i])
				}
				if got != want[i] {
					t.Fatalf("in pieces of %d bytes, answer %d: %s, want %s", piece, i, got, want[i])
				}
			}
		}
	})
}

// Clients that disconnect at any point of a request or its answer leak nothing.
// Requests that they sent completely are stored and counted.
func TestPeersThatGo(t *testing.T) { eachFast(t, testPeersThatGo) }

func testPeersThatGo(t *testing.T, secure bool) {
	entered, release := make(chan struct{}, 100), make(chan struct{})
	srv := fast(t, ingest.Config{}, ingest.FastLaneConfig{TLS: secure}, func([]*storage.Entry) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	text := request(reading("d", 1))
	for n := range len(text) {
		conn := dial(t, srv)
		send(t, conn, text[:n])
		if n%2 == 0 {
			if err := conn.SetLinger(0); err != nil { // a reset
				t.Fatal(err)
			}
		}
		conn.Close()
	}
	conn := dial(t, srv)
	send(t, conn, text+request(reading("d", 2)))
	<-entered
	try(t, conn.SetLinger(0))
	conn.Close()
	polltest.Until(t, "all connections are closed", func() bool { return srv.lane.Stats().Open == 0 })
	close(release)
	polltest.Until(t, "what was sent whole is stored", func() bool {
		c := srv.core.Counters()
		return c.Stored >= 2 && c.Queued == 0
	})
	if got := srv.core.Counters(); got.Stored != 2 || got.BodyBytes != 0 {
		t.Errorf("counters %+v, want 2 stored and no memory held", got)
	}
}

// A client that sends and never reads is answered until the kernel's buffer is full
// (EAGAIN). Then the server stops reading from it, and closes it after the timeout.
// Other clients are served meanwhile.
func TestPeerThatDoesNotRead(t *testing.T) { eachFast(t, testPeerThatDoesNotRead) }

func testPeerThatDoesNotRead(t *testing.T, secure bool) {
	srv := fast(t, ingest.Config{}, ingest.FastLaneConfig{TLS: secure, WriteTimeout: 300 * time.Millisecond}, nil)
	conn := dial(t, srv)
	try(t, conn.SetReadBuffer(4<<10))
	refused := request("[" + strings.TrimSuffix(strings.Repeat("1,", 15_000), ",") + "]")
	sent := 0
	for ; sent < 10_000; sent++ {
		if _, err := io.WriteString(conn, refused); err != nil {
			break // reset by the server
		}
		if n := srv.core.Counters().BodyBytes; n > 64<<20 {
			t.Fatalf("%d bytes held for one client", n)
		}
	}
	if sent == 10_000 {
		t.Fatal("the server kept reading from a client that reads nothing")
	}
	if _, text := post(t, srv, good, ""); text != `{"status":"stored"}` {
		t.Errorf("another client: %s", text)
	}
	if s := srv.lane.Stats(); s.Expired == 0 {
		t.Errorf("%+v, want an expired connection", s)
	}
}

// While the queue is full, a request is rejected before its body is read. After a small body the
// connection stays open: over TLS, many clients send header and body in two records.
//
// Seen to fail when every connection was closed.
func TestFullQueueReadsNoBody(t *testing.T) { eachFast(t, testFullQueueReadsNoBody) }

func testFullQueueReadsNoBody(t *testing.T, secure bool) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	srv := fast(t, ingest.Config{MaxGroup: 1, MaxQueued: 1}, ingest.FastLaneConfig{TLS: secure},
		func([]*storage.Entry) error {
			entered <- struct{}{}
			<-release
			return nil
		})
	first := dial(t, srv)
	send(t, first, request(good))
	<-entered
	second := dial(t, srv)
	send(t, second, "POST /v1/readings HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n[")
	resp, err := http.ReadResponse(bufio.NewReader(second), nil)
	try(t, err)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("%d with %v, want 503 with Retry-After and an end", resp.StatusCode, resp.Header)
	}
	third, small := dial(t, srv), request(reading("d", 2))
	body := strings.Index(small, "{")
	send(t, third, small[:body])
	in := bufio.NewReader(third)
	if got := answers(t, in, 1)[0]; !strings.HasPrefix(got, "503 ") {
		t.Errorf("a request whose small body has not arrived: %s, want 503", got)
	}
	close(release)
	if got := answers(t, bufio.NewReader(first), 1)[0]; got != `200 {"status":"stored"}` {
		t.Errorf("the admitted request: %s", got)
	}
	polltest.Until(t, "the queue is empty", func() bool { return srv.core.Counters().Queued == 0 })
	send(t, third, small[body:]+request(reading("d", 3)))
	if got := answers(t, in, 1)[0]; got != `200 {"status":"stored"}` {
		t.Errorf("the next request: %s", got)
	}
	if n := srv.core.Counters().Stored; n != 2 {
		t.Errorf("%d readings stored, want 2: a rejected body is not stored", n)
	}
}

// A draining server answers every request that has arrived, including those in the
// kernel's buffers, and closes idle connections.
func TestShutdown(t *testing.T) { eachFast(t, testShutdown) }

func testShutdown(t *testing.T, secure bool) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	srv := fast(t, ingest.Config{}, ingest.FastLaneConfig{TLS: secure, Loops: 2, HeaderTimeout: time.Hour,
		ReadTimeout: time.Hour}, func([]*storage.Entry) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	idle, used, waiting, partial, begun, blank := dial(t, srv), dial(t, srv), dial(t, srv), dial(t, srv),
		dial(t, srv), dial(t, srv)
	send(t, waiting, request(reading("d", 1)))
	<-entered
	send(t, used, request(`{}`))
	usedIn := bufio.NewReader(used)
	answers(t, usedIn, 1)
	text := request(reading("d", 2))
	send(t, partial, text[:len(text)-1])
	send(t, begun, text[:30])
	send(t, blank, request(`{}`)+"\r")
	blankIn := bufio.NewReader(blank)
	answers(t, blankIn, 1)

	polltest.Until(t, "all connections are open", func() bool { return srv.lane.Stats().Open == 6 })
	srv.core.Drain()
	ended := make(chan error, 1)
	go func() { ended <- srv.lane.Shutdown(context.Background()) }()
	for name, conn := range map[string]net.Conn{"idle": idle, "used": used} {
		if rest, err := io.ReadAll(conn); err != nil || len(rest) != 0 {
			t.Errorf("%s: %q, %v; want an end", name, rest, err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("Shutdown returned %v with a request in progress", err)
	default:
	}
	// The server waits neither for the rest of the body nor for the rest of the header.
	if got := answers(t, bufio.NewReader(partial), 1)[0]; !strings.HasPrefix(got, "503") ||
		!strings.Contains(got, "#draining") {
		t.Errorf("a request without the end of its body: %s, want 503 draining", got)
	}
	for name, in := range map[string]io.Reader{"a request without the end of its header": begun,
		"half of an empty line": blankIn} {
		if rest, err := io.ReadAll(in); err != nil || len(rest) != 0 {
			t.Errorf("%s: %q, %v; want an end", name, rest, err)
		}
	}
	close(release)
	in := bufio.NewReader(waiting)
	resp, err := http.ReadResponse(in, nil)
	try(t, err)
	if rest, err := io.ReadAll(in); err != nil || string(rest) != `{"status":"stored"}`+"\n" || !resp.Close {
		t.Errorf("the request in progress: %q, %v, closes: %v", rest, err, resp.Close)
	}
	waiting.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", srv.addr()); err == nil {
		t.Error("the listener is still open")
	}
}

// Shutdown gives up when its context ends, and closes the remaining connections. The
// group in progress then completes without a lane.
func TestShutdownCutOff(t *testing.T) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	core, err := newCore(&appender{storetest.NewMemory(), func([]*storage.Entry) error {
		entered <- struct{}{}
		<-release
		return nil
	}}, problem.New(), ingest.Config{})
	try(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	lane, err := core.FastLane(l, ingest.FastLaneConfig{})
	if errors.Is(err, errors.ErrUnsupported) {
		l.Close()
		t.Skip("there is no fast lane on this system")
	}
	try(t, err)
	conn, err := net.Dial("tcp", l.Addr().String())
	try(t, err)
	defer conn.Close()
	send(t, conn, request(good))
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := lane.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v, want a deadline exceeded", err)
	}
	if text, _ := io.ReadAll(conn); len(text) != 0 {
		t.Errorf("an answer %q before the commit", text)
	}
	if n := lane.Stats().Open; n != 0 {
		t.Errorf("%d connections open", n)
	}
	close(release)
	try(t, errors.Join(lane.Close(), core.Close(context.Background())))
}

// A request that an attacker cuts short, by ending the stream below TLS, is not stored,
// wherever it is cut.
func TestCutShort(t *testing.T) { eachFast(t, testCutShort) }

func testCutShort(t *testing.T, secure bool) {
	var stored atomic.Int64
	srv := fast(t, ingest.Config{}, ingest.FastLaneConfig{TLS: secure}, func(e []*storage.Entry) error {
		stored.Add(int64(len(e)))
		return nil
	})
	whole := request(reading("d", 1))
	for cut := 1; cut < len(whole); cut += 7 {
		conn := dial(t, srv)
		send(t, conn, whole[:cut])
		if err := conn.TCPConn.CloseWrite(); err != nil { // without close_notify
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(conn); strings.Contains(string(text), "stored") {
			t.Fatalf("after %d bytes: %q", cut, text)
		}
		conn.Close()
	}
	if n := stored.Load(); n != 0 {
		t.Errorf("%d readings are stored of requests that were cut short", n)
	}
}
