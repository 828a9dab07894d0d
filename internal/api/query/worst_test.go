package query_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A modelSign is a latest value of a sign.
type modelSign struct {
	sign  vitals.Sign
	value vitals.Value
	agoMs int64
}

type modelDevice struct {
	name   string
	values []modelSign
	alerts []query.ActiveAlert // by rule
	wornMs int64               // how long the present assignment, or nobody's span, has lasted
	wears  bool                // P-2 wears it; otherwise nobody
	ranges []modelRanges       // of its group, of its own, of who wears it: of all that it has
	alert  query.ActiveAlert   // the first of alerts that counts
}

// modelRanges are usual and critical ranges of signs.
type modelRanges map[vitals.Sign][2]*vitals.Range

// randomRanges returns ranges of some of the signs.
func randomRanges(rnd *rand.Rand, signs []vitals.Sign) modelRanges {
	all := modelRanges{}
	for _, s := range signs {
		accepted := vitals.BuiltIn(s).Accepted
		at := func() vitals.Value {
			return accepted.Min + 1 + vitals.Value(rnd.IntN(int(accepted.Max-accepted.Min)-1))
		}
		low, high := at(), at()
		usual := &vitals.Range{Min: min(low, high), Max: max(low, high)}
		critical := &vitals.Range{Min: vitals.MinValue, Max: usual.Min - 1}
		if rnd.IntN(2) == 0 {
			critical = &vitals.Range{Min: usual.Max + 1, Max: vitals.MaxValue}
		}
		switch rnd.IntN(4) {
		case 0:
			all[s] = [2]*vitals.Range{usual, nil}
		case 1:
			all[s] = [2]*vitals.Range{nil, critical}
		case 2:
			all[s] = [2]*vitals.Range{usual, critical}
		}
	}
	return all
}

// lines returns the ranges as a file says them.
func (m modelRanges) lines() (text string) {
	for s, both := range m {
		d := vitals.BuiltIn(s)
		for i, key := range []string{"usual", "critical"} {
			if both[i] != nil {
				text += fmt.Sprintf("%s.%s = %q\n", key, d.Field, d.FormatRange(*both[i]))
			}
		}
	}
	return text
}

// limitsOf returns the ranges by which a value of a sign is judged.
func (d *modelDevice) limitsOf(s vitals.Sign) (usual vitals.Range, critical *vitals.Range) {
	usual = vitals.BuiltIn(s).Usual
	switch s {
	case vitals.SpO2:
		critical = &vitals.Range{Min: vitals.MinValue, Max: 69_99}
	case vitals.GlucoseMass:
		critical = &vitals.Range{Min: vitals.MinValue, Max: 53_99}
	case vitals.GlucoseMolar:
		critical = &vitals.Range{Min: vitals.MinValue, Max: 2_99}
	}
	for _, own := range d.ranges {
		if r := own[s][0]; r != nil {
			if usual = *r; critical != nil && critical.Min == vitals.MinValue {
				critical = &vitals.Range{Min: vitals.MinValue, Max: min(critical.Max, r.Min-1)}
			} else if critical != nil {
				critical = &vitals.Range{Min: max(critical.Min, r.Max+1), Max: vitals.MaxValue}
			}
		}
		if r := own[s][1]; r != nil && r.Min == vitals.MinValue {
			if critical = r; usual.Max <= r.Max {
				usual.Max = vitals.MaxValue
			}
			usual.Min = max(usual.Min, r.Max+1)
		} else if r != nil {
			if critical = r; usual.Min >= r.Min {
				usual.Min = vitals.MinValue
			}
			usual.Max = min(usual.Max, r.Min-1)
		}
	}
	return usual, critical
}

// settle sets the alert that counts: one about a sign without a value of the present assignment does not, and none
// began before it.
func (d *modelDevice) settle() {
	for _, a := range d.alerts {
		worn := a.Silence ||
			slices.ContainsFunc(d.values, func(v modelSign) bool { return v.sign == a.Sign && v.agoMs <= d.wornMs })
		a.SinceUnixMs = max(a.SinceUnixMs, fleetNow.UnixMilli()-d.wornMs)
		if worn && (d.alert.Name == "" || d.alert.Silence && !a.Silence) {
			d.alert = a
		}
	}
}

// flagsOf returns the number of flags of a value, its distance beyond the usual range as a share of the way to the
// accepted bound, and whether it is critical: a plain definition.
func (d *modelDevice) flagsOf(v modelSign) (n int, share *big.Rat, critical bool) {
	share = new(big.Rat)
	beyond := func(value vitals.Value, usual, accepted vitals.Range) {
		from, to := usual.Min, accepted.Min
		if value > usual.Max {
			from, to = usual.Max, accepted.Max
		} else if value >= usual.Min {
			return
		}
		n++
		if s := big.NewRat(int64(value)-int64(from), int64(to)-int64(from)); s.Cmp(share) > 0 {
			share = s
		}
	}
	def := vitals.BuiltIn(v.sign)
	usual, in := d.limitsOf(v.sign)
	beyond(v.value, usual, def.Accepted)
	if v.value < def.ValidatedMin {
		n++
	}
	if v.sign == vitals.Systolic {
		for _, low := range d.values {
			if low.sign == vitals.Diastolic && low.agoMs == v.agoMs {
				beyond(v.value-low.value, vitals.Pairs[0].Usual,
					vitals.Range{Max: def.Accepted.Max - vitals.BuiltIn(vitals.Diastolic).Accepted.Min})
			}
		}
	}
	critical = in != nil && v.value >= in.Min && v.value <= in.Max
	return n, share, critical
}

// compare compares two devices by the definition of the order: the worse one is less.
func (d *modelDevice) compare(o *modelDevice, staleMs int64) int {
	type place struct {
		class, critical, flags int
		share                  *big.Rat
		agoMs                  int64 // of the newest old flag, or of the device
	}
	of := func(d *modelDevice) place {
		p := place{class: 6, share: new(big.Rat), agoMs: math.MaxInt64}
		newestMs, oldMs := int64(math.MaxInt64), int64(math.MaxInt64)
		for _, v := range d.values {
			newestMs = min(newestMs, v.agoMs)
			n, _, critical := d.flagsOf(v)
			switch {
			case n == 0 || v.agoMs > d.wornMs:
			case v.agoMs > staleMs:
				oldMs = min(oldMs, v.agoMs)
			default:
				p.class, p.flags = 2, p.flags+n
				if critical {
					p.critical = 1
				}
			}
		}
		for _, v := range d.values { // of critical ones, if there are any
			if n, share, critical := d.flagsOf(v); n > 0 && v.agoMs <= min(staleMs, d.wornMs) && critical == (p.critical == 1) &&
				share.Cmp(p.share) > 0 {
				p.share = share
			}
		}
		switch {
		case d.alert.Name != "" && !d.alert.Silence:
			return place{class: 1, share: new(big.Rat)}
		case p.class == 2:
			return p
		case oldMs < math.MaxInt64:
			return place{class: 3, share: new(big.Rat), agoMs: oldMs}
		case d.alert.Name != "":
			return place{class: 4, share: new(big.Rat)}
		case newestMs > staleMs:
			return place{class: 5, share: new(big.Rat), agoMs: -newestMs}
		}
		return p
	}
	a, b := of(d), of(o)
	if a.class == b.class && (a.class == 1 || a.class == 4) {
		return cmp.Or(cmp.Compare(d.alert.Rule, o.alert.Rule), cmp.Compare(o.alert.SinceUnixMs, d.alert.SinceUnixMs),
			cmp.Compare(d.name, o.name))
	}
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.critical, a.critical), b.share.Cmp(a.share),
		cmp.Compare(b.flags, a.flags), cmp.Compare(a.agoMs, b.agoMs), cmp.Compare(d.name, o.name))
}

// serveWorst serves devices with their alerts, and the function by which the clock and the alerts can be read.
func serveWorst(t *testing.T, m source, alerts map[string][]query.ActiveAlert, opt query.Options) *httptest.Server {
	t.Helper()
	opt.Alerts = func(devices []storage.Device, fromUnixMs int64, to []query.ActiveAlert) { // as TestFirst checks it
		for i := range devices {
			for _, a := range alerts[devices[i].Name.String()] {
				if !a.Silence && devices[i].Latest[a.Sign].TimeUnixMs < fromUnixMs ||
					to[i].Name != "" && (a.Silence || !to[i].Silence) {
					continue
				}
				to[i], to[i].SinceUnixMs = a, max(a.SinceUnixMs, fromUnixMs)
			}
		}
	}
	if opt.Now == nil {
		opt.Now = func() time.Time { return fleetNow }
	}
	return serveOptions(t, m, opt, unchanged)
}

// TestWorstModel compares the order with a plain sort by its definition, over random fleets, on pages of any length.
func TestWorstModel(t *testing.T) {
	const staleMs = 15 * 60 * 1000
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		var lines []string
		var all []*modelDevice
		alerts := map[string][]query.ActiveAlert{}
		signs := []vitals.Sign{
			vitals.Systolic, vitals.Diastolic, vitals.SpO2, vitals.HeartRate, vitals.GlucoseMass, vitals.GlucoseMolar,
		}
		ofGroup, ofSubject, file := randomRanges(rnd, signs), randomRanges(rnd, signs), ""
		ofGroup[vitals.SpO2] = [2]*vitals.Range{{Min: 85_00, Max: 95_00}, nil}
		ofSubject[vitals.HeartRate] = [2]*vitals.Range{{Min: 50_00, Max: 99_00}, nil}
		for i := range 60 + rnd.IntN(60) {
			d := &modelDevice{name: fmt.Sprintf("d-%03d", i)}
			ages := []int64{0, staleMs - 1, staleMs, staleMs + 1, int64(rnd.IntN(2 * staleMs))}
			agoMs := ages[rnd.IntN(len(ages))]
			for _, s := range signs {
				if s == vitals.Diastolic && len(d.values) == 0 {
					continue
				}
				if s != vitals.Diastolic && rnd.IntN(2) == 0 { // the values of a pair have the same time
					agoMs = ages[rnd.IntN(len(ages))]
				}
				if s == vitals.Diastolic || rnd.IntN(3) != 0 || s == vitals.HeartRate && len(d.values) == 0 {
					accepted, usual := vitals.BuiltIn(s).Accepted, vitals.BuiltIn(s).Usual
					some := []vitals.Value{accepted.Min + 200, accepted.Max, max(usual.Min, accepted.Min+200),
						min(usual.Max, accepted.Max), accepted.Min + 200 + vitals.Value(rnd.IntN(int(accepted.Max-accepted.Min)-200))}
					v := modelSign{s, some[rnd.IntN(len(some))], agoMs}
					if rnd.IntN(2) == 0 {
						v.value = some[2]
					}
					if s == vitals.Diastolic {
						v.value = min(v.value, d.values[0].value-1)
					}
					d.values = append(d.values, v)
				}
			}
			for _, v := range d.values {
				def := vitals.BuiltIn(v.sign)
				line := fmt.Sprintf(`{"device":%q,"time":%d,%q:%s}`, d.name, fleetNow.UnixMilli()-v.agoMs, def.Field,
					def.Append(nil, v.value))
				if n := len(lines); v.sign == vitals.Diastolic {
					lines[n-1] = strings.TrimSuffix(lines[n-1], "}") + line[strings.LastIndex(line, ","):]
				} else {
					lines = append(lines, line)
				}
			}
			for rule := 0; rnd.IntN(3) == 0 && rule < 64; rule += 1 + rnd.IntN(64-rule) {
				of := d.values[rnd.IntN(len(d.values))] // the alert begins with this value, or before it
				alerts[d.name] = append(alerts[d.name], query.ActiveAlert{
					Name: fmt.Sprint("r", rule), Rule: rule, Silence: rule%2 == 0, Sign: of.sign,
					SinceUnixMs: fleetNow.UnixMilli() - max(of.agoMs, ages[rnd.IntN(len(ages))]),
				})
			}
			d.alerts, d.wornMs = alerts[d.name], fleetNow.UnixMilli()
			if rnd.IntN(2) == 0 {
				d.wornMs = ages[rnd.IntN(len(ages))]
			}
			d.settle()
			d.wears = d.wornMs < fleetNow.UnixMilli() && rnd.IntN(2) == 0
			if seed%3 != 0 { // two thirds of the fleets have ranges of their own, a third also of subjects
				file += fmt.Sprintf("[[device]]\ndevice = %q\nlabel = \"x\"\n", d.name)
				if rnd.IntN(2) == 0 {
					file += "group = \"g\"\n"
					d.ranges = append(d.ranges, ofGroup)
				}
				if rnd.IntN(3) == 0 {
					own := randomRanges(rnd, signs)
					file += own.lines()
					d.ranges = append(d.ranges, own)
				}
				if d.wears && seed%3 == 2 {
					d.ranges = append(d.ranges, ofSubject)
				}
			}
			all = append(all, d)
		}
		service := query.Service{}
		if seed%3 != 0 {
			file += "[[group]]\ngroup = \"g\"\n" + ofGroup.lines()
			if seed%3 == 2 {
				file += "[[subject]]\nsubject = \"P-2\"\n" + ofSubject.lines()
			}
			service.Roster = openRoster(t, file)
		}
		slices.SortFunc(all, func(a, b *modelDevice) int { return a.compare(b, staleMs) })
		store := fill(t, lines...)
		for _, d := range all {
			if from := fleetNow.UnixMilli() - d.wornMs; d.wears { // or worn by nobody since then
				assignTo(t, store, d.name, "P-2", from, storage.OpenEnd)
			} else if from > 0 {
				assignTo(t, store, d.name, "P-1", 1, from)
			}
		}
		service.Subjects = store
		srv := serveWorst(t, store, alerts, query.Options{Service: service})
		for _, limit := range []int{1 + rnd.IntN(10), len(all) - 1, 1000} {
			got := listed(t, srv, fmt.Sprintf("sort=worst&limit=%d", limit))
			for i := range all {
				if i >= len(got) || got[i] != all[i].name {
					t.Fatalf("seed %d, limit %d, place %d of %d: got %q, want %+v", seed, limit, i, len(got),
						got[min(i, len(got)-1)], all[i])
				}
			}
		}
		srv.Close()
	}
}

// TestWorstReasons checks what answers say about each class, worst first.
func TestWorstReasons(t *testing.T) {
	at := func(ago time.Duration) int64 { return fleetNow.Add(-ago).UnixMilli() }
	line := func(device string, ago time.Duration, values string) string {
		return fmt.Sprintf(`{"device":%q,"time":%d,%s}`, device, at(ago), values)
	}
	srv := serveWorst(t, fill(t,
		line("a-other", 0, `"heart_rate_bpm":60`),
		line("b-stale", time.Hour, `"heart_rate_bpm":60`), line("c-older", 2*time.Hour, `"heart_rate_bpm":60`),
		line("d-silence", time.Hour, `"heart_rate_bpm":60`),
		line("e-old", 8*time.Hour, `"spo2_pct":55`), line("e-old", 0, `"heart_rate_bpm":60`),
		line("f-near", 0, `"systolic_mmhg":83,"diastolic_mmhg":60`), line("g-far", 0, `"heart_rate_bpm":280`),
		line("h-critical", 0, `"spo2_pct":69.99`),
		line("i-alert", 8*time.Minute, `"spo2_pct":92`),
	), map[string][]query.ActiveAlert{
		"i-alert":   {{Name: "SpO2 <93", Rule: 5, Sign: vitals.SpO2, SinceUnixMs: at(time.Hour)}},
		"d-silence": {{Name: "gone", Silence: true, SinceUnixMs: at(time.Minute)}},
		"f-near":    {{Name: "gone", Silence: true, SinceUnixMs: at(time.Minute)}},
	}, query.Options{})
	_, text := get(t, srv, "/v1/devices?sort=worst")
	var page struct {
		Devices []struct {
			Device string
			Worst  struct{ Class, Sign, Alert string }
		}
	}
	try(t, json.Unmarshal([]byte(text), &page))
	var got []string
	for _, d := range page.Devices {
		got = append(got, fmt.Sprint(d.Device, d.Worst))
	}
	want := []string{
		"i-alert{alert spo2_pct SpO2 <93}", "h-critical{flag spo2_pct }", "g-far{flag heart_rate_bpm }",
		"f-near{flag systolic_mmhg }",
		"e-old{old_flag spo2_pct }", "d-silence{silence_alert  gone}", "c-older{stale  }", "b-stale{stale  }", "a-other{  }",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(text,
		`"a-other","time":"2026-11-22T12:00:00.000Z","latest":{"heart_rate_bpm":{"value":60,`+
			`"time":"2026-11-22T12:00:00.000Z"}},"worst"`) {
		t.Errorf("a device with which nothing is wrong has a reason: %s", text)
	}
}

// A countingStore counts walks. While hold is not nil, walks wait for it to be closed.
type countingStore struct {
	*storetest.Memory
	walks atomic.Int64
	hold  chan struct{}
}

func (s *countingStore) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	s.walks.Add(1)
	if s.hold != nil {
		<-s.hold
	}
	return s.Memory.WalkDevices(ctx, visit)
}

// TestWorstIsComputedOnce checks that all who ask at the same time and within a second share one walk, whatever they
// may read, and see no other devices than theirs; that it is computed again after a second; and that an erased device
// is not shown.
func TestWorstIsComputedOnce(t *testing.T) {
	k := newKeyring(t)
	var now atomic.Int64
	now.Store(fleetNow.UnixNano())
	store := &countingStore{Memory: fill(t,
		fmt.Sprintf(`{"device":"icu-1","time":%d,"spo2_pct":55}`, fleetNow.UnixMilli()),
		fmt.Sprintf(`{"device":"ppg-1","time":%d,"spo2_pct":99}`, fleetNow.UnixMilli()),
		fmt.Sprintf(`{"device":"ppg-2","time":%d,"spo2_pct":80}`, fleetNow.UnixMilli()),
	), hold: make(chan struct{})}
	srv := serveWorst(t, store, nil, query.Options{Service: query.Service{Gate: k.gate},
		Now: func() time.Time { return time.Unix(0, now.Load()) }})
	ask := func(auth, want, counts string) {
		_, text := get(t, srv, "/v1/devices?sort=worst&counts=true&limit=10", "Authorization", auth)
		var page devicesPage
		var names []string
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Error(err)
		}
		for _, d := range page.Devices {
			names = append(names, d.Device)
		}
		if got := strings.Join(names, " "); got != want || !strings.Contains(text, counts) {
			t.Errorf("got %s, want %s and %s: %s", got, want, counts, text)
		}
	}
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() { ask(k.all, "icu-1 ppg-2 ppg-1", `"counts":{"devices":3,"fresh":3,"stale":0,"flagged":2}`) })
		clients.Go(func() { ask(k.ppg, "ppg-2 ppg-1", `"counts":{"devices":2,"fresh":2,"stale":0,"flagged":1}`) })
	}
	close(store.hold)
	clients.Wait()
	now.Add(int64(time.Second) - 1)
	ask(k.ppg, "ppg-2 ppg-1", "")
	if n := store.walks.Load(); n != 1 {
		t.Errorf("%d walks, want 1", n)
	}
	erased, err := vitals.ParseName("ppg-2")
	try(t, err)
	_, err = store.Erase(erased)
	try(t, err)
	ask(k.all, "icu-1 ppg-1", "")
	now.Add(1)
	ask(k.all, "icu-1 ppg-1", `"counts":{"devices":2,"fresh":2,"stale":0,"flagged":1}`)
	if n := store.walks.Load(); n != 2 {
		t.Errorf("%d walks, want 2", n)
	}
}
