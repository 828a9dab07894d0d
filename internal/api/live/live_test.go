package live_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// pipes is a listener without a network, for synctest bubbles.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// dial returns the client's side of a connection.
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// A fixture is a hub on a store in memory, with a server.
type fixture struct {
	t     testing.TB
	store *storetest.Memory
	hub   *live.Hub
	pipes *pipes
	http  *http.Server
	trips *http.Transport
}

// start starts a server with short timeouts, in a bubble.
func start(t testing.TB, opt live.Options) *fixture {
	opt.OnError = func(err error) { t.Error(err) }
	return startReporting(t, opt)
}

// startReporting is start for a test in which errors are reported.
func startReporting(t testing.TB, opt live.Options) *fixture {
	opt.Problems = problem.New()
	store := storetest.NewMemory()
	if opt.Subjects == nil {
		opt.Subjects = store
	}
	f := &fixture{t: t, store: store, pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
	f.hub = live.New(f.store, opt)
	f.http = &http.Server{Handler: f.hub, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: 30 * time.Second, Protocols: new(http.Protocols)}
	f.http.Protocols.SetHTTP1(true)
	f.http.Protocols.SetUnencryptedHTTP2(true)
	f.trips = &http.Transport{DialContext: f.pipes.dial, Protocols: new(http.Protocols)}
	f.trips.Protocols.SetHTTP1(true)
	go f.http.Serve(f.pipes)
	return f
}

// stop ends the server as a drain does.
func (f *fixture) stop() {
	f.t.Helper()
	f.hub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.http.Shutdown(ctx); err != nil {
		f.t.Errorf("after Close streams are open: %v", err)
		f.http.Close()
	}
	f.trips.CloseIdleConnections()
}

func name(text string) vitals.Name {
	n, err := vitals.ParseName(text)
	if err != nil {
		panic(err)
	}
	return n
}

// entry returns a reading of a device, with a time and one sign.
func entry(device string, ms int64, s vitals.Sign, v vitals.Value) *storage.Entry {
	r := &vitals.Reading{Device: name(device), TimeUnixMs: ms}
	r.Values.Set(s, v)
	return &storage.Entry{Reading: r, ReceivedUnixMs: time.Now().UnixMilli()}
}

// commit stores a group and publishes it, as the committer does.
func (f *fixture) commit(group ...*storage.Entry) {
	f.t.Helper()
	try(f.t, f.store.Append(group))
	f.hub.Publish(group)
}

// heart commits a heart rate.
func (f *fixture) heart(device string, ms int64, v vitals.Value) {
	f.t.Helper()
	f.commit(entry(device, ms, vitals.HeartRate, v))
}

// newest returns the data of the event for the newest stored reading of a device, or "".
func (f *fixture) newest(device string) string {
	f.t.Helper()
	var one [1]storage.Record
	n, err := f.store.Scan(context.Background(), storage.Range{Device: name(device), ToUnixMs: 1 << 60, Descending: true},
		one[:])
	try(f.t, err)
	if n == 0 {
		return ""
	}
	return string(query.AppendReading(nil, name(device), "", &one[0], vitals.NewSigns(),
		&vitals.FlagLimits{Signs: vitals.NewSigns()}))
}

// A message is an event as a client sees it, or a comment.
type message struct {
	id, event, data string
	comment         bool
	at              time.Time
}

// A stream is a client of a server.
type stream struct {
	resp   *http.Response
	cancel context.CancelFunc
	mu     sync.Mutex
	seen   []message // guarded by mu
	err    error     // guarded by mu; why it has ended
	ended  chan struct{}
}

// open opens a stream, and reads it in the background. pause, if not nil, is called before
// each message after the first is read.
func (f *fixture) open(target string, pause func(), header ...string) *stream {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/live"+target, nil)
	try(f.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.trips.RoundTrip(req)
	try(f.t, err)
	s := &stream{resp: resp, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		defer resp.Body.Close()
		in := bufio.NewReaderSize(resp.Body, 16)
		for first := true; ; first = false {
			if pause != nil && !first {
				pause()
			}
			m, err := readMessage(in)
			s.mu.Lock()
			if err != nil {
				s.err = err
				s.mu.Unlock()
				return
			}
			s.seen = append(s.seen, m)
			s.mu.Unlock()
		}
	}()
	return s
}

// readMessage reads a message up to its empty line.
func readMessage(in *bufio.Reader) (m message, err error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return m, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "":
			m.at = time.Now()
			return m, nil
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		case ":":
			m.comment = true
		}
	}
}

// messages returns what was read so far.
func (s *stream) messages() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]message(nil), s.seen...)
}

// readings returns the data of the readings read so far.
func (s *stream) readings() (data []string) {
	for _, m := range s.messages() {
		if m.event == "reading" {
			data = append(data, m.data)
		}
	}
	return data
}

// missed returns the sum of the dropped events.
func (s *stream) missed() (n int) {
	for _, m := range s.messages() {
		var one int
		if _, err := fmt.Sscanf(m.data, `{"count":%d}`, &one); m.event == "dropped" && err == nil {
			n += one
		}
	}
	return n
}

// close ends a stream, as a client does.
func (s *stream) close() {
	s.cancel()
	<-s.ended
}

// settle lets all that waits for time or other goroutines happen.
func settle() { time.Sleep(3 * time.Second); synctest.Wait() }

// Events of a device are at most four a second, and the last one is the newest reading.
// Identifiers increase.
func TestCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{})
		defer f.stop()
		s := f.open("?device=d", nil)
		defer s.close()
		begin := time.Now()
		for i := range 1000 {
			f.heart("d", int64(i), 6000+vitals.Value(i))
			time.Sleep(10 * time.Millisecond)
		}
		lasted := time.Since(begin)
		settle()
		got := s.readings()
		if most := int(4*lasted/time.Second) + 1; len(got) > most || len(got) < most*3/4 {
			t.Errorf("%d events in %v, want nearly %d", len(got), lasted, most)
		}
		if got[len(got)-1] != f.newest("d") {
			t.Errorf("the last event is %s, want %s", got[len(got)-1], f.newest("d"))
		}
		last := 0
		for _, m := range s.messages() {
			if m.event == "time" {
				continue
			}
			id, err := strconv.Atoi(m.id)
			if err != nil || id <= last {
				t.Errorf("the identifier %q after %d", m.id, last)
			}
			last = id
		}
		if s.missed() != 0 {
			t.Errorf("%d events dropped, want none", s.missed())
		}
	})
}

// Two hours of a stream: the timeouts of the server do not end it, every minute's reading
// arrives within half a second, a comment arrives every 5 s, and the server's
// time with it, and at the beginning.
func TestHours(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2=", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, live.Options{Service: query.Service{PieceTimeout: 5 * time.Second}})
				f.trips.Protocols.SetHTTP1(!http2)
				f.trips.Protocols.SetUnencryptedHTTP2(http2)
				defer f.stop()
				s := f.open("?device=d", nil)
				defer s.close()
				if want := map[bool]int{false: 1, true: 2}[http2]; s.resp.ProtoMajor != want {
					t.Fatalf("HTTP/%d, want %d", s.resp.ProtoMajor, want)
				}
				const minutes = 2 * 60
				committed := time.Now()
				var want []string
				for i := range minutes {
					f.heart("d", int64(i), 6000+vitals.Value(i))
					want = append(want, f.newest("d"))
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				if got := s.readings(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%d readings, want %d", len(got), len(want))
				}
				comments, i := 0, 0
				for n, m := range s.messages() {
					if want := fmt.Sprintf(`{"time":%q}`, vitals.AppendTime(nil, m.at.UnixMilli())); (m.comment || n == 0) &&
						(m.event != "time" || m.data != want) {
						t.Errorf("event %q with %s, want time with %s", m.event, m.data, want)
					}
					switch {
					case m.comment:
						comments++
					case m.event == "reading":
						if late := m.at.Sub(committed.Add(time.Duration(i) * time.Minute)); late > 500*time.Millisecond {
							t.Errorf("reading %d arrived after %v", i, late)
						}
						i++
					}
				}
				if want := 12 * minutes; comments < want-1 || comments > want {
					t.Errorf("%d comments, want %d", comments, want)
				}
			})
		})
	}
}

// A client that is dead gives its place back.
func TestDeadClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{Service: query.Service{PieceTimeout: 10 * time.Second}, MaxSubscribers: 1})
		defer f.stop()
		conn, _ := f.pipes.dial(t.Context(), "", "")
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /v1/live HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it reads nothing: the first write blocks
		full := f.open("", nil)
		<-full.ended
		if full.resp.StatusCode != http.StatusServiceUnavailable || full.resp.Header.Get("Retry-After") == "" {
			t.Errorf("beyond the bound: %s, Retry-After %q", full.resp.Status, full.resp.Header.Get("Retry-After"))
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		next := f.open("", nil)
		defer next.close()
		if next.resp.StatusCode != http.StatusOK {
			t.Errorf("after the timeout: %s", next.resp.Status)
		}
	})
}

// With a Last-Event-ID, a stream begins with the newest readings of what it selects. Without,
// it does not.
func TestResume(t *testing.T) {
	for _, tt := range []struct {
		target string
		want   func(i int) bool
	}{
		{"", func(int) bool { return true }},
		{"?prefix=d-1", func(i int) bool { return i == 1 || i >= 10 && i < 20 || i >= 100 }},
		{"?device=d-7&device=d-150&device=none", func(i int) bool { return i == 7 || i == 150 }},
		{"?prefix=e", func(int) bool { return false }},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, live.Options{})
			defer f.stop()
			want := 0
			for i := range 200 {
				f.heart(fmt.Sprint("d-", i), 1000, 6000)
				f.heart(fmt.Sprint("d-", i), 2000, 6100)
				if tt.want(i) {
					want++
				}
			}
			s := f.open(tt.target, nil, "Last-Event-ID", "1")
			defer s.close()
			settle()
			seen := map[string]bool{}
			for _, data := range s.readings() {
				seen[data] = true
			}
			if len(seen) != want || len(s.readings()) != want {
				t.Errorf("%q: %d readings, %d different, want %d", tt.target, len(s.readings()), len(seen), want)
			}
			for i := range 200 {
				if d := fmt.Sprint("d-", i); seen[f.newest(d)] != tt.want(i) {
					t.Errorf("%q: newest reading of %s: %v, want %v", tt.target, d, seen[f.newest(d)], tt.want(i))
				}
			}
			if fresh := f.open(tt.target, nil); true {
				settle()
				if n := len(fresh.readings()); n != 0 {
					t.Errorf("without a Last-Event-ID: %d readings", n)
				}
				fresh.close()
			}
		})
	}
}

// More devices than may wait for a slow client: it reads the newest readings from the store.
func TestManyDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{Service: query.Service{PieceTimeout: time.Hour}})
		defer f.stop()
		resume := make(chan struct{})
		s := f.open("", func() { <-resume })
		defer s.close()
		const devices = 2000
		for round := range 3 {
			for i := range devices {
				f.heart(fmt.Sprint("d-", i), int64(round), 6000)
			}
			settle()
		}
		close(resume)
		settle()
		last := map[string]bool{}
		for _, data := range s.readings() {
			last[data] = true
		}
		for i := range devices {
			if d := fmt.Sprint("d-", i); !last[f.newest(d)] {
				t.Errorf("no newest reading of %s", d)
			}
		}
		if s.missed() == 0 {
			t.Error("no dropped event")
		}
	})
}

// More readings than the dispatcher can take: nobody waits, and subscribers read the newest
// readings from the store.
func TestInboxOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{})
		defer f.stop()
		s := f.open("?device=d&device=e", nil)
		defer s.close()
		synctest.Wait()
		var group []*storage.Entry
		for i := range 20_000 {
			group = append(group, entry("other", int64(i), vitals.HeartRate, 6000))
		}
		f.commit(append(group, entry("d", 1, vitals.HeartRate, 6000))...)
		settle()
		if got := s.readings(); len(got) != 1 || got[0] != f.newest("d") {
			t.Errorf("got %q, want %s", got, f.newest("d"))
		}
		if s.missed() != 20_001-4*4096 {
			t.Errorf("%d dropped, want %d", s.missed(), 20_001-4*4096)
		}
	})
}

// Close ends the streams, which clients see as an end, and rejects new ones.
func TestDrain(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, live.Options{})
			f.trips.Protocols.SetHTTP1(!http2)
			f.trips.Protocols.SetUnencryptedHTTP2(http2)
			s := f.open("", nil)
			f.heart("d", 1, 6000)
			settle()
			f.hub.Close()
			synctest.Wait()
			select {
			case <-s.ended:
			default:
				t.Error("the stream has not ended")
			}
			if s.err != io.EOF || len(s.readings()) != 1 {
				t.Errorf("http2=%v: the stream ends with %v after %d readings, want %v after 1", http2, s.err,
					len(s.readings()), io.EOF)
			}
			late := f.open("", nil)
			late.close()
			if late.resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("afterwards: %s", late.resp.Status)
			}
			f.heart("d", 2, 6000) // commits go on
			f.stop()
		})
	}
}

// Requests that are not valid are rejected before the stream begins.
func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{})
		defer f.stop()
		many := strings.Repeat("&device=d", 101)
		for _, target := range []string{"?device=", "?device=a%20b", "?prefix=", "?prefix=a/b", "?prefix=a&prefix=b",
			"?device=a&prefix=b", "?devices=a", "?a=%zz", "?" + many[1:]} {
			s := f.open(target, nil)
			s.close()
			if s.resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s, want 400", target, s.resp.Status)
			}
		}
	})
}

// Publishing allocates nothing for each reading, with subscribers or without.
func TestPublishAllocates(t *testing.T) {
	group := []*storage.Entry{entry("other", 1, vitals.HeartRate, 6000)}
	group[0].Outcome = storage.Stored
	group[0].Reading.Gateway = name("ward-1")
	hub := live.New(storetest.NewMemory(), live.Options{Service: query.Service{Problems: problem.New()}})
	defer hub.Close()
	if n := testing.AllocsPerRun(1000, func() { hub.Publish(group) }); n != 0 {
		t.Errorf("%v allocations without subscribers, want 0", n)
	}
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{})
		defer f.stop()
		s := f.open("?device=d", nil)
		defer s.close()
		if n := testing.AllocsPerRun(1000, func() { f.hub.Publish(group) }); n != 0 {
			t.Errorf("%v allocations with a subscriber, want 0", n)
		}
	})
}

var try = polltest.Try

// An event names the subject of the reading's own time, in whatever order readings and changes of assignments come:
// also when a stream resumes.
func TestSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, live.Options{})
		defer f.stop()
		assign := func(subject storage.Subject, from, to int64) storage.Assignment {
			return storage.Assignment{Device: name("a"), Subject: subject, FromUnixMs: from, ToUnixMs: to}
		}
		try(t, f.store.Assign(t.Context(), assign("P-102", 1000, storage.OpenEnd)))
		s := f.open("", nil)
		defer s.cancel()
		var want []string
		expect := func(s *stream, device, subject string) {
			t.Helper()
			time.Sleep(time.Second)
			text := f.newest(device)
			if subject != "" {
				text = strings.Replace(text, `"received"`, `"subject":"`+subject+`","received"`, 1)
			}
			want = append(want, text)
			if got := s.readings(); !slices.Equal(got, want) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		f.heart("a", 500, 60_00)
		expect(s, "a", "")
		f.heart("a", 1000, 61_00)
		expect(s, "a", "P-102")
		f.heart("b", 1000, 61_00)
		expect(s, "b", "")
		try(t, f.store.EndAssignment(t.Context(), assign("P-102", 1000, 2000)))
		f.heart("a", 1999, 62_00)
		expect(s, "a", "P-102")
		f.heart("a", 2000, 63_00)
		expect(s, "a", "")
		try(t, f.store.Assign(t.Context(), assign("P-200", 3000, storage.OpenEnd)))
		f.commit(entry("a", 2000, vitals.SpO2, 97_00)) // completes what is stored, and is read from the store
		expect(s, "a", "")
		f.heart("a", 3000, 64_00)
		expect(s, "a", "P-200")
		want = nil
		resumed := f.open("?device=a", nil, "Last-Event-ID", "1")
		defer resumed.cancel()
		expect(resumed, "a", "P-200")
	})
}

// An event has the flags of the ranges of its device, and of the subject of the reading's time.
func TestOwnRanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices.toml")
	const file = "[[device]]\ndevice = \"a\"\nusual.heart_rate_bpm = \"..150\"\n" +
		"[[subject]]\nsubject = \"P-1\"\nusual.heart_rate_bpm = \"..99\"\n"
	try(t, os.WriteFile(path, []byte(file), 0o600))
	synctest.Test(t, func(t *testing.T) {
		book, err := roster.Open(path, new(vitals.NewSigns().DefaultLimits()), func(*roster.Roster, error) {})
		try(t, err)
		defer book.Close()
		opt := live.Options{Flags: vitals.NewSigns().DefaultFlagLimits()}
		opt.Roster = book
		f := start(t, opt)
		defer f.stop()
		p1 := storage.Assignment{Device: name("a"), Subject: "P-1", FromUnixMs: 2000, ToUnixMs: storage.OpenEnd}
		try(t, f.store.Assign(t.Context(), p1))
		s := f.open("", nil)
		defer s.cancel()
		for _, e := range []struct {
			device string
			ms     int64
			v      vitals.Value
		}{{"a", 1000, 140_00}, {"b", 1000, 140_00}, {"b", 2000, 100_00}, {"a", 2000, 100_00}} {
			f.heart(e.device, e.ms, e.v)
			time.Sleep(time.Second)
		}
		var flagged []bool
		for _, text := range s.readings() {
			flagged = append(flagged, strings.Contains(text, `"flags":["heart_rate_bpm high"]`))
		}
		if want := []bool{false, true, false, true}; !slices.Equal(flagged, want) {
			t.Errorf("flagged are %v, want %v", flagged, want)
		}
	})
}

// An unreadable has assignments that cannot be read some times.
type unreadable struct {
	query.Assigner
	left atomic.Int32
}

func (u *unreadable) VisitAssignments(ctx context.Context, devices []vitals.Name,
	visit func(*storage.Assignment)) error {
	if u.left.Add(-1) >= 0 {
		return errors.New("no assignments today")
	}
	return u.Assigner.VisitAssignments(ctx, devices, visit)
}

// While it cannot be read whose a reading is, it waits, and is not lost.
func TestSubjectsUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assigned := storetest.NewMemory()
		try(t, assigned.Assign(t.Context(), storage.Assignment{Device: name("a"), Subject: "P-102",
			ToUnixMs: storage.OpenEnd}))
		u := &unreadable{Assigner: assigned}
		var opt live.Options
		opt.Subjects = u
		var reported atomic.Int32
		opt.OnError = func(error) { reported.Add(1) }
		f := startReporting(t, opt)
		defer f.stop()
		s := f.open("", nil)
		defer s.cancel()
		f.heart("a", 500, 60_00)
		time.Sleep(time.Second)
		u.left.Store(2)
		f.heart("a", 1000, 61_00)
		time.Sleep(2 * time.Second)
		got := s.readings()
		if len(got) != 2 || !strings.Contains(got[1], `"heart_rate_bpm":61,"subject":"P-102"`) || reported.Load() != 2 {
			t.Errorf("after %d errors, got\n%s", reported.Load(), strings.Join(got, "\n"))
		}
	})
}
