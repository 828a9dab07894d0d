package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// batch returns an array of n readings of one device, a second apart.
func batch(device string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"device":%q,"time":%d,"spo2_pct":97}`, device, i*1000)
	}
	return "[" + b.String()[1:] + "]"
}

// TestSplitBatch checks that a batch larger than a group is answered only when its last part is
// durable, and that its parts keep their order. Seen to fail when Commit stopped after the first
// part.
func TestSplitBatch(t *testing.T) { eachFront(t, testSplitBatch) }

func testSplitBatch(t *testing.T, serve serveFunc) {
	var groups []int
	_, srv := serve(t, ingest.Config{MaxGroup: 10, MaxQueued: 20}, func(group []*storage.Entry) error {
		groups = append(groups, len(group))
		return nil
	})
	if _, text := post(t, srv, batch("d", 35), ""); text != `{"stored":35,"duplicate":0}` {
		t.Errorf("answer %s", text)
	}
	if got := fmt.Sprint(groups); got != "[10 10 10 5]" {
		t.Errorf("groups of %s, want [10 10 10 5]", got)
	}
}

// TestStoreErrors checks the answers to errors of the store. None may report a stored reading.
func TestStoreErrors(t *testing.T) { eachFront(t, testStoreErrors) }

func testStoreErrors(t *testing.T, serve serveFunc) {
	for _, tt := range []struct {
		name   string
		err    error
		status int
		typ    string
		retry  bool
	}{
		{"disk low", fmt.Errorf("%w: %w", storage.ErrNotWritten, storage.ErrDiskLow), 503, "disk-low", true},
		{"store failed before", fmt.Errorf("%w: %w", storage.ErrNotWritten, storage.ErrFailed), 503, "store-failed", true},
		{"closed", fmt.Errorf("%w: %w", storage.ErrNotWritten, storage.ErrClosed), 503, "draining", true},
		{"sync failed", errors.New("input/output error"), 500, "outcome-unknown", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, srv := serve(t, ingest.Config{MaxGroup: 10}, func([]*storage.Entry) error { return tt.err })
			for _, body := range []string{good, batch("d", 10), batch("d", 11)} {
				resp, text := post(t, srv, body, "")
				if resp.StatusCode != tt.status || !strings.Contains(text, "#"+tt.typ) {
					t.Errorf("%d %s, want %d %s", resp.StatusCode, text, tt.status, tt.typ)
				}
				if (resp.Header.Get("Retry-After") != "") != tt.retry {
					t.Errorf("Retry-After %q, want one: %v", resp.Header.Get("Retry-After"), tt.retry)
				}
			}
		})
	}
}

// TestFullQueue checks that a full queue rejects immediately, and that admitted readings are
// answered.
func TestFullQueue(t *testing.T) { eachFront(t, testFullQueue) }

func testFullQueue(t *testing.T, serve serveFunc) {
	entered, release := make(chan struct{}, 100), make(chan struct{})
	core, srv := serve(t, ingest.Config{MaxGroup: 10, MaxQueued: 10}, func([]*storage.Entry) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	var wg sync.WaitGroup
	answer := make([]string, 2)
	for i := range answer {
		wg.Go(func() { _, answer[i] = post(t, srv, batch(fmt.Sprint("d", i), 5), "") })
	}
	<-entered
	polltest.Until(t, "the queue is full", func() bool { return core.Counters().Queued >= 10 })
	// An unbounded queue would accept it, and the request would wait for the next commit.
	let := sync.OnceFunc(func() { close(release) })
	defer time.AfterFunc(polltest.Patience, let).Stop()
	resp, text := post(t, srv, good, "")
	if resp.StatusCode != 503 || !strings.Contains(text, "#overloaded") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s, want 503 overloaded with Retry-After", resp.StatusCode, text)
	}
	let()
	wg.Wait()
	for i, text := range answer {
		if text != `{"stored":5,"duplicate":0}` {
			t.Errorf("admitted request %d: %s", i, text)
		}
	}
}

// TestBodyMemory checks that bodies that need more memory than available are rejected.
func TestBodyMemory(t *testing.T) { eachFront(t, testBodyMemory) }

func testBodyMemory(t *testing.T, serve serveFunc) {
	_, srv := serve(t, ingest.Config{MaxBodyBytes: 2 << 20}, nil)
	if resp, text := post(t, srv, batch("d", 10), ""); resp.StatusCode != 200 {
		t.Errorf("small: %d %s, want 200", resp.StatusCode, text)
	}
	if resp, text := post(t, srv, batch("d", 60_000), ""); resp.StatusCode != 503 ||
		!strings.Contains(text, "#overloaded") {
		t.Errorf("large: %d %s, want 503 overloaded", resp.StatusCode, text)
	}
	if resp, text := post(t, srv, batch("e", 10), ""); resp.StatusCode != 200 {
		t.Errorf("small again: %d %s, want 200", resp.StatusCode, text)
	}
}

// TestDrain checks that Drain rejects new requests, and that Close answers admitted ones.
func TestDrain(t *testing.T) { eachFront(t, testDrain) }

func testDrain(t *testing.T, serve serveFunc) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	core, srv := serve(t, ingest.Config{}, func([]*storage.Entry) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	var wg sync.WaitGroup
	var admitted string
	wg.Go(func() { _, admitted = post(t, srv, good, "") })
	<-entered
	core.Drain()
	if resp, text := post(t, srv, good, ""); resp.StatusCode != 503 || !strings.Contains(text, "#draining") ||
		resp.Header.Get("Retry-After") == "" {
		t.Errorf("while draining: %d %s, want 503 draining with Retry-After", resp.StatusCode, text)
	}
	close(release)
	if err := core.Close(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if admitted != `{"status":"stored"}` {
		t.Errorf("admitted before: %s", admitted)
	}
}

// TestClientGone checks that the reading of a client that has disconnected is stored and counted,
// and that its job is reused only afterwards.
func TestClientGone(t *testing.T) {
	serve := fronts()["full"]
	entered, release := make(chan struct{}, 100), make(chan struct{})
	core, srv := serve(t, ingest.Config{}, func([]*storage.Entry) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.url(), strings.NewReader(good))
	try(t, err)
	gone := make(chan error, 1)
	go func() {
		resp, err := srv.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	<-entered
	cancel()
	if err := <-gone; err == nil {
		t.Error("the request was answered before its group was durable")
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { post(t, srv, batch(fmt.Sprint("d", i), 3), "") })
	}
	close(release)
	wg.Wait()
	polltest.Until(t, "everything is stored", func() bool { return core.Counters().Stored >= 1+8*3 })
	if _, text := post(t, srv, good, ""); text != `{"status":"duplicate"}` {
		t.Errorf("sent again: %s, want duplicate", text)
	}
}

// TestCloseGivesUp ends the context of Close before the store has answered. Waiting requests
// must be answered with outcome-unknown, and their jobs left to the committer. Seen to fail
// under -race when Release reused such jobs.
func TestCloseGivesUp(t *testing.T) {
	serve := fronts()["full"]
	entered, release := make(chan struct{}, 10), make(chan struct{})
	core, srv := serve(t, ingest.Config{}, func([]*storage.Entry) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	var wg sync.WaitGroup
	var status int
	var text string
	wg.Go(func() {
		resp, body := post(t, srv, good, "")
		status, text = resp.StatusCode, body
	})
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := core.Close(ctx); err == nil {
		t.Error("Close returned no error while a group was in progress")
	}
	wg.Wait()
	if status != 500 || !strings.Contains(text, "#outcome-unknown") {
		t.Errorf("answer %d %s, want 500 outcome-unknown", status, text)
	}
	close(release)
}

// TestAnnouncedBodies checks that clients that announce much and send nothing take no memory.
func TestAnnouncedBodies(t *testing.T) {
	serve := fronts()["full"]
	core, srv := serve(t, ingest.Config{MaxBodyBytes: 2 << 20}, nil)
	for range 20 {
		conn := dial(t, srv)
		send(t, conn, "POST /v1/readings HTTP/1.1\r\nHost: x\r\nContent-Length: 33000000\r\n\r\n[")
	}
	polltest.Until(t, "all bodies have begun", func() bool { return core.Counters().BodyBytes >= 20*64<<10 })
	if resp, text := post(t, srv, good, ""); resp.StatusCode != 200 {
		t.Errorf("with 20 announced bodies: %d %s, want 200", resp.StatusCode, text)
	}
}

// TestRefusedBatchMemory sends a batch of rejected elements, which is small in the request and
// large in memory. Its memory must be counted until its answer was read.
func TestRefusedBatchMemory(t *testing.T) {
	serve := fronts()["full"]
	core, srv := serve(t, ingest.Config{MaxBodyBytes: 4 << 20}, nil)
	body := "[1" + strings.Repeat(",1", 99_999) + "]"
	if resp, text := post(t, srv, body, ""); resp.StatusCode != 503 || !strings.Contains(text, "#overloaded") {
		t.Errorf("100,000 refused elements: %d %.100s, want 503 overloaded", resp.StatusCode, text)
	}
	body = "[1" + strings.Repeat(",1", 9_999) + "]"
	if resp, text := post(t, srv, body, ""); resp.StatusCode != 207 || strings.Count(text, `"index"`) != 10_000 {
		t.Errorf("10,000 refused elements: %d %.100s, want 207 with all of them", resp.StatusCode, text)
	}
	polltest.Until(t, "no memory is held for bodies", func() bool { return core.Counters().BodyBytes == 0 })
}

// TestBatchBesideTraffic sends a batch of many groups while another client sends continuously.
func TestBatchBesideTraffic(t *testing.T) {
	serve := fronts()["full"]
	_, srv := serve(t, ingest.Config{MaxGroup: 10, MaxQueued: 30}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf(`{"device":"s%d","time":%d,"spo2_pct":97}`, c, i)
				if resp, text := post(t, srv, body, ""); resp.StatusCode != 200 {
					t.Errorf("single reading: %d %s", resp.StatusCode, text)
				}
			}
		})
	}
	if resp, text := post(t, srv, batch("d", 500), ""); resp.StatusCode != 200 {
		t.Errorf("batch: %d %s, want 200", resp.StatusCode, text)
	}
	cancel()
	wg.Wait()
}

// unreadable is an Appender with an outcome of readings of the device "damaged".
type unreadable struct{ outcome storage.Outcome }

func (u unreadable) Append(group []*storage.Entry) error {
	for _, e := range group {
		e.Outcome = storage.Stored
		if e.Reading.Device.String() == "damaged" {
			e.Outcome = u.outcome
		}
	}
	return nil
}

// TestUnreadable sends readings that must be compared with an unreadable record, or whose time cannot be written. A
// single one gets a Retry-After; in a batch, the others are settled.
func TestUnreadable(t *testing.T) {
	for _, tt := range []struct {
		outcome     storage.Outcome
		problem     string
		least, most int
	}{{storage.Unreadable, "#store-damaged", 60, 180}, {storage.Unavailable, "#store-failed", 5, 15}} {
		for name, lane := range map[string]*ingest.FastLaneConfig{"full": nil, "fast": {ReadTimeout: polltest.Patience}} {
			t.Run(name+tt.problem, func(t *testing.T) {
				srv := serveOn(t, unreadable{tt.outcome}, ingest.Config{}, lane)
				resp, text := post(t, srv, batch("damaged", 1)[1:len(batch("damaged", 1))-1], "")
				wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
				if resp.StatusCode != 503 || !strings.Contains(text, tt.problem) || !strings.Contains(text, `"field":"time"`) ||
					wait < tt.least || wait > tt.most {
					t.Errorf("a single reading: %s, Retry-After %d, %s", resp.Status, wait, text)
				}
				good, bad := batch("sound", 2), batch("damaged", 1)
				resp, text = post(t, srv, good[:len(good)-1]+","+bad[1:], "")
				if want := `{"stored":2,"duplicate":0,"rejected":[{"index":2,"field":"time",`; resp.StatusCode != 207 ||
					!strings.HasPrefix(text, want) {
					t.Errorf("a batch: %s %s, want 207 with %s", resp.Status, text, want)
				}
			})
		}
	}
}
