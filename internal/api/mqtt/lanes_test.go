package mqtt_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/mqtt"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// A twin is a pair of equal servers: one with event loops and one with goroutines. Their stores settle
// every reading alike, so that answers do not depend on earlier packets.
type twin struct {
	loop, goroutines *server
	bed, ppg, read   string // tokens; "" if none is needed
}

// alike is a store that settles every reading alike.
type alike struct{}

func (alike) Append(group []*storage.Entry) error {
	for _, e := range group {
		e.Outcome = storage.Stored
		if e.Reading.TimeUnixMs%10 == 9 {
			e.Outcome = storage.Conflict
		}
	}
	return nil
}

func newTwin(t testing.TB, secure, gated bool) *twin {
	tw := new(twin)
	cfg := config{
		store:  alike{},
		ingest: ingest.Config{MaxGroup: 5, MaxBatchBytes: 100_000, MaxSingleBytes: 400},
		opt:    mqtt.Options{Options: front.Options{MaxBytes: 90_000}},
	}
	if gated {
		f := gatetest.New(t)
		bed, ppg := f.Token(t, "bed-7", "", token.Token{Rights: token.Write}),
			f.Token(t, "bed-8", "ppg-", token.Token{Rights: token.Write})
		read := f.Token(t, "bed-7", "", token.Token{Rights: token.Read})
		cfg.gate = f.Open(t)
		cfg.gate.Audit = nil // it is not compared
		tw.bed, tw.ppg, tw.read = bed[7:], ppg[7:], read[7:]
	}
	tw.loop, tw.goroutines = start(t, lane{true, secure}, cfg), start(t, lane{false, secure}, cfg)
	return tw
}

var assigned = regexp.MustCompile(`pulsegate-[A-Z2-7]{26}`)

// outcome sends a stream in pieces that end at cuts, and then the end of the stream. It returns what the
// server has answered, stored, listed and counted.
//
// The answers to publications, with the last packet of the connection, are in order, and so are the
// other answers. The latter may overtake the former in the loop, which MQTT allows.
func (s *server) outcome(t testing.TB, stream string, cuts []int) string {
	t.Helper()
	c := s.dial(t)
	go func() {
		from := 0
		for _, cut := range append(slices.Clone(cuts), len(stream)) {
			if cut <= from || cut > len(stream) {
				continue
			}
			if _, err := io.WriteString(c, stream[from:cut]); err != nil {
				return // rejected and closed, as the answers show
			}
			from = cut
			time.Sleep(100 * time.Microsecond) // so that the next piece is read separately
		}
		_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	var acks, others []string
	for {
		b, err := c.packet()
		if err != nil {
			if len(b) > 0 && !isReset(err) {
				acks = append(acks, fmt.Sprintf("%x: %v", b, err))
			}
			break
		}
		one := fmt.Sprintf("%x", assigned.ReplaceAll(b, []byte("id")))
		switch b[0] >> 4 {
		case 4, 5, 14:
			acks = append(acks, one)
		default:
			others = append(others, one)
		}
	}
	_ = c.Close()
	polltest.Until(t, "the connection has ended", func() bool { return s.conns.Open() == 0 })
	var all strings.Builder
	fmt.Fprintf(&all, "%s\n%s\n%+v\n", strings.Join(acks, " "), strings.Join(others, " "), s.Counters())
	newest, total := s.list.Newest(20, func(*rejections.Rejection) bool { return true })
	fmt.Fprintln(&all, total)
	for _, r := range newest {
		fmt.Fprintf(&all, "%s %s %s %s\n", r.Gateway, r.Device, r.Field, r.Reason)
	}
	all.WriteString(s.figures(t))
	all.WriteString(strings.Join(s.store.take(), "\n"))
	return all.String()
}

func isReset(err error) bool { return strings.Contains(err.Error(), "reset") }

// figures returns the counters of the core.
func (s *server) figures(t testing.TB) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.core)
	families, err := registry.Gather()
	try(t, err)
	var all strings.Builder
	for _, f := range families {
		switch f.GetName() {
		case "pulsegate_readings_total", "pulsegate_refused_requests_total", "pulsegate_queue_readings",
			"pulsegate_request_body_bytes":
			for _, m := range f.GetMetric() {
				if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
					fmt.Fprintln(&all, f.GetName(), m.GetLabel(), v)
				}
			}
		}
	}
	return all.String()
}

// compare reports differences between the servers after a stream.
func (tw *twin) compare(t testing.TB, stream string, cuts []int) {
	t.Helper()
	loop, goroutines := tw.loop.outcome(t, stream, cuts), tw.goroutines.outcome(t, stream, cuts)
	if loop != goroutines {
		t.Fatalf("%q in pieces up to %v:\nloop:\n%s\ngoroutines:\n%s", stream, cuts, loop, goroutines)
	}
}

// parts are packets of a version and pieces of them, usual and unusual, right and wrong. One in three is wrong.
func parts(version byte) []string {
	props := map[byte]string{5: "\x00"}[version]
	pub := func(qos byte, topic, payload string) string { return publish(version, qos, 7, topic, payload) }
	const d = "pulsegate/ppg-1"
	usual := pub(1, d, reading(1000))
	right := []string{
		usual, usual, usual, usual, usual, pub(0, d, reading(1001)), pub(2, d, reading(1002)), pub(1, d, reading(1009)),
		pub(0, d, reading(1009)),
		pub(1, d, batch(2000, 4)), pub(1, d, batch(2000, 12)), pub(2, d, batch(2000, 60)), pub(0, d, batch(2000, 7)),
		pub(1, d, "["+reading(1000)+strings.Repeat(" ", 70_000)+"]"),
		pub(1, d, "["+reading(1000)+strings.Repeat(" ", 1000)+"]"),
		pub(1, d, `{"time":1,"spo2_pct":0}`), pub(1, d, `{"time":1,"secret":0}`),
		pub(1, d, `[{"time":1,"spo2_pct":0},{"time":2,"spo2_pct":97},1]`),
		pub(1, d, "nonsense"), pub(1, d, ""), pub(1, d, "[]"), pub(1, "other/d", reading(1)),
		pub(0, "pulsegate/d/x", reading(1)), pub(1, "pulsegate/.", reading(1)),
		pub(1, d, `{"device":"e","time":1,"spo2_pct":97}`), pub(1, d, `{"gateway":"e","time":1,"spo2_pct":97}`),
		pub(1, "pulsegate/d", reading(1)),
		pub(1, "pulsegate/"+strings.Repeat("é", 40), reading(1)), pub(1, d, reading(1)+strings.Repeat(" ", 500)),
		pub(1, d, strings.Repeat(reading(1)+"\n", 30)),
		pingreq, pingreq, packet(0x62, u16(7)), packet(0x82, u16(9)+props+text("#")+"\x01"),
		packet(0xa2, u16(9)+props+text("#")),
		publishAs(version, 0x3a, 7, d, "", reading(1003)), usual[:10], usual[10:],
	}
	wrong := []string{
		disconnect, packet(0xe0, "\x00"), hello(version), pub(1, "a/#", ""), pub(1, "", "x"),
		publish(version, 1, 0, d, reading(1)), publishAs(version, 0x36, 7, d, "", ""),
		publishAs(version, 0x33, 7, d, "", reading(1)), packet(0x82, u16(9)+props+text("#")), packet(0x62, u16(0)),
		packet(0xf0, ""), packet(0x30, "\x00\x09"),
		"\x30\xff\xff\xff\xff\x01", "\x32\xff\xff\x7f", "\x00", "\xc0", "\x82\x80", pub(1, "pulsegate/\xff", ""),
		pub(1, d, strings.Repeat("x", 95_000))[:100],
	}
	if version == 5 {
		right = append(right, publishAs(5, 0x32, 7, d, expiry+user, reading(1004)), packet(0x62, u16(7)+"\x92"))
		wrong = append(wrong, publishAs(5, 0x32, 7, d, alias, ""), publishAs(5, 0x32, 7, d, expiry+expiry, ""),
			publishAs(5, 0x32, 7, d, "\x26\x00", ""), packet(0x32, text(d)+u16(7)+"\x80"))
	}
	return slices.Concat(right, right, wrong)
}

// openings are what connections begin with, by version.
func openings(version byte) []string {
	all := []string{
		hello(version), hello(version), hello(version), connect(version, 2, "", ""), connect(version, 0, "", ""),
		signIn(version, "bed-7", ""), signIn(version, "x y", ""),
		connect(version, 0x36, map[byte]string{5: receiveMax}[version], "c",
			map[byte]string{5: "\x05" + willDelay}[version]+text("t")+text("")), hello(version)[:9], "",
	}
	if version == 5 {
		all = append(all, connect(5, 2, problemInfo0, "c"), connect(5, 2, "\x27\x00\x00\x00\x14", "c"),
			connect(5, 2, method, "c"))
	}
	return all
}

// openings are the openings of connections to a twin.
func (tw *twin) openings(version byte) []string {
	if tw.bed == "" {
		return openings(version)
	}
	return []string{
		signIn(version, "bed-7", tw.bed), signIn(version, "bed-7", tw.bed), signIn(version, "bed-8", tw.ppg),
		signIn(version, "bed-8", tw.ppg), signIn(5, "", tw.ppg),
		signIn(version, "bed-8", tw.bed), signIn(version, "bed-7", tw.read), signIn(version, "bed-7", "wrong"),
		hello(version),
	}
}

// Both lanes answer, store, list and count the same for every stream of packets, split at random.
//
// TestTwinExhaustive (make exhaustive) sends more streams.
func TestTwin(t *testing.T) { twins(t, 100) }

func TestTwinExhaustive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	twins(t, 2000)
}

func twins(t *testing.T, streams int) {
	for _, secure := range []bool{false, true} {
		for _, gated := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v, tokens %v", secure, gated), func(t *testing.T) {
				t.Parallel()
				tw := newTwin(t, secure, gated)
				random := rand.New(rand.NewPCG(uint64(len(t.Name())), 2))
				for range streams {
					version := byte(4 + random.IntN(2))
					begins, all := tw.openings(version), parts(version)
					stream := begins[random.IntN(len(begins))]
					for range random.IntN(12) {
						stream += all[random.IntN(len(all))]
					}
					var cuts []int
					for at := 0; random.IntN(5) > 0; {
						at += random.IntN(120)
						cuts = append(cuts, at)
					}
					tw.compare(t, stream, cuts)
				}
			})
		}
	}
}

// Both lanes count the same packets toward a burst. A batch of which some readings are rejected needs a commit, as do a
// duplicate and a contradiction; what is rejected as a whole needs none.
func TestBurst(t *testing.T) {
	mixed := `[{"time":1,"spo2_pct":0},` + reading(2) + `]`
	for name, tt := range map[string]struct {
		payload string
		slowed  uint64
	}{
		"stored": {reading(1), 0}, "partly rejected": {mixed, 0}, "contradictions": {reading(9), 0},
		"rejected": {"{}", 1}, "rejected readings": {`[{"time":1,"spo2_pct":0},{"time":2,"spo2_pct":0}]`, 1},
	} {
		for qos := range byte(3) {
			t.Run(fmt.Sprintf("%s, QoS %d", name, qos), func(t *testing.T) {
				t.Parallel()
				tw := newTwin(t, false, false)
				tw.compare(t, hello(4)+strings.Repeat(publish(4, qos, 7, "pulsegate/d", tt.payload), 300)+disconnect, nil)
				for lane, s := range map[string]*server{"loop": tw.loop, "goroutines": tw.goroutines} {
					if got := s.Slowed(); got != tt.slowed {
						t.Errorf("%s: slowed %d times, want %d", lane, got, tt.slowed)
					}
				}
			})
		}
	}
}

// maxFuzzed is the length of a stream that has too few packets for a burst, which would take 200 ms.
const maxFuzzed = 520

// FuzzPackets fuzzes the bytes of a connection. Neither lane panics, and both do the same.
func FuzzPackets(f *testing.F) {
	for _, version := range []byte{4, 5} {
		for _, part := range parts(version) {
			if len(part) < maxFuzzed-100 {
				f.Add([]byte(hello(version)+part+pingreq), 20, 40)
			}
		}
		for _, begin := range openings(version) {
			f.Add([]byte(begin+publish(version, 1, 7, "pulsegate/d", reading(1))), 5, 30)
		}
	}
	tw := newTwin(f, false, false)
	f.Fuzz(func(t *testing.T, stream []byte, cut1, cut2 int) {
		if len(stream) <= maxFuzzed {
			tw.compare(t, string(stream), []int{cut1, cut2})
		}
	})
}
