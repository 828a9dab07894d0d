package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// ownSign is a sign of the model's own, with a decimal.
var ownSign = vitals.Definition{Field: "hrv_rmssd_ms", Label: "RMSSD", Unit: "ms", Decimals: 1,
	Accepted: vitals.Range{Min: 0, Max: 500_0}}

// A spec is a rule as a model understands it: by its words in a file, not by what [ReadRules] makes of
// them.
type spec struct {
	name, sign      string
	flag            string // or a limit
	above           bool
	limit           vitals.Value
	lasting, silent time.Duration
	values          int
	maxAge          time.Duration
	devices, labels string
}

// text returns the rule in a file.
func (s *spec) text(signs *vitals.Signs) string {
	text := fmt.Sprintf("[[alert]]\nname = %q\ndevices = %q\n", s.name, s.devices)
	if s.maxAge != 0 {
		text += fmt.Sprintf("max_age = %q\n", s.maxAge)
	}
	if s.labels != "" {
		text += "labels = { severity = " + fmt.Sprintf("%q", s.labels) + " }\n"
	}
	if s.silent != 0 {
		return text + fmt.Sprintf("silent = %q\n", s.silent)
	}
	text += fmt.Sprintf("sign = %q\nfor = %q\nvalues = %d\n", s.sign, s.lasting, s.values)
	if s.flag != "" {
		return text + fmt.Sprintf("flag = %q\n", s.flag)
	}
	sign, _ := signs.Named(s.sign)
	return text + map[bool]string{true: "above", false: "below"}[s.above] + " = " +
		string(signs.Of(sign).Append(nil, s.limit)) + "\n"
}

// met reports whether a record has the sign, and whether its value meets the condition.
func (s *spec) met(limits *vitals.FlagLimits, r *storage.Record) (has, met bool) {
	sign, _ := limits.Signs.Named(s.sign)
	v, has := r.Values.Get(sign)
	if s.flag == "" {
		return has, s.above && v > s.limit || !s.above && v < s.limit
	}
	for _, f := range limits.Signs.Flags(limits.Flags(&r.Values)) {
		met = met || f.String() == s.sign+" "+s.flag
	}
	return has, has && met
}

// A model computes by brute force what is active.
type model struct {
	store  *storetest.Memory
	limits vitals.FlagLimits
	own    vitals.Sign
	specs  []spec
	rules  []Rule // of the specs
	dir    string
	all    []storage.Record // of a device
}

func newModel(t *testing.T, rng *rand.Rand) *model {
	t.Helper()
	m := &model{store: storetest.NewMemory(), dir: t.TempDir(), all: make([]storage.Record, 1<<10)}
	try(t, m.store.Signs().Define([]vitals.Definition{ownSign}))
	m.limits = m.store.Signs().DefaultFlagLimits()
	m.own, _ = m.store.Signs().Named(ownSign.Field)
	m.limits.Usual[m.own] = vitals.Range{Min: 30_5, Max: 37_0}
	m.limits.Usual[vitals.HeartRate] = vitals.Range{Min: 50_00, Max: 110_00}
	m.change(t, rng)
	return m
}

// change makes other rules: names, limits, durations and prefixes of devices may be those of rules before,
// or not.
func (m *model) change(t *testing.T, rng *rand.Rand) {
	t.Helper()
	minutes := func(of ...int) time.Duration { return time.Duration(of[rng.IntN(len(of))]) * time.Minute }
	spo2, heart := "spo2_pct", "heart_rate_bpm"
	all := []spec{
		{name: "Low", sign: spo2, flag: "low", values: 1},
		{name: "Lasting", sign: spo2, flag: "low", lasting: minutes(2, 3), values: 3},
		{name: "Below", sign: spo2, limit: []vitals.Value{91_01, 90_00}[rng.IntN(2)], values: 1, maxAge: minutes(1, 20)},
		{name: "Fast", sign: heart, above: true, limit: []vitals.Value{99_99, 119_00}[rng.IntN(2)], lasting: minutes(0, 5),
			values: 1, maxAge: minutes(1, 10)},
		{name: "High", sign: heart, flag: "high", values: 1 + rng.IntN(2), maxAge: minutes(60)},
		{name: "Often", sign: heart, above: true, limit: 99_99, values: 4, maxAge: minutes(48 * 60), labels: "page"},
		{name: "Cold", sign: ownSign.Field, limit: 30_4, lasting: minutes(1), values: 2},
		{name: "Own", sign: ownSign.Field, flag: []string{"low", "high"}[rng.IntN(2)], values: 1},
		{name: "Silent", silent: minutes(30, 45)},
		{name: "Gone", silent: minutes(10), maxAge: minutes(3 * 60)},
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	m.specs = all[:1+rng.IntN(len(all))]
	var text strings.Builder
	for i := range m.specs {
		m.specs[i].devices = []string{"", "", "a", "a1", "b"}[rng.IntN(5)]
		text.WriteString(m.specs[i].text(m.store.Signs()))
	}
	path := filepath.Join(m.dir, "alerts.toml")
	err := os.WriteFile(path, []byte(text.String()), 0o600)
	if err == nil {
		m.rules, err = ReadRules(path, &m.limits)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
}

// expected returns the active alerts by the definition of [Rule], from everything that is stored. Those
// of long runs may have begun earlier than an engine knows.
func (m *model) expected(t *testing.T, nowUnixMs int64) (active []Alert, forgettable map[string]bool) {
	t.Helper()
	forgettable = map[string]bool{}
	err := m.store.WalkDevices(t.Context(), func(some []storage.Device) {
		for _, d := range some {
			n, err := m.store.Scan(t.Context(), storage.Range{Device: d.Name, ToUnixMs: math.MaxInt64}, m.all)
			if err != nil || n == len(m.all) {
				t.Fatal(n, err)
			}
			for i := range m.specs {
				if !strings.HasPrefix(d.Name.String(), m.specs[i].devices) {
					continue
				}
				if since, long, is := m.defined(&m.specs[i], m.all[:n], nowUnixMs); is {
					a := Alert{Rule: &m.rules[i], Device: d.Name, SinceUnixMs: since}
					active = append(active, a)
					forgettable[key(&a)] = long
				}
			}
		}
	})
	try(t, err)
	return active, forgettable
}

// defined returns whether the alert of a rule is active for a device with some records, in ascending
// order, since when, and whether the run is longer than is read of it.
func (m *model) defined(rule *spec, records []storage.Record, nowUnixMs int64) (sinceUnixMs int64, long, active bool) {
	if rule.silent != 0 {
		age := nowUnixMs - records[len(records)-1].TimeUnixMs
		return records[len(records)-1].TimeUnixMs + rule.silent.Milliseconds(), false,
			age >= rule.silent.Milliseconds() && (rule.maxAge == 0 || age < rule.maxAge.Milliseconds())
	}
	var inRun []storage.Record // the newest first
	for _, r := range slices.Backward(records) {
		has, met := rule.met(&m.limits, &r)
		if !has {
			continue
		}
		if !met || len(inRun) > 0 && inRun[len(inRun)-1].TimeUnixMs-r.TimeUnixMs >= Lasts.Milliseconds() {
			break
		}
		inRun = append(inRun, r)
	}
	if len(inRun) == 0 || nowUnixMs-inRun[0].TimeUnixMs >= Lasts.Milliseconds() {
		return 0, false, false
	}
	var young []int64
	for _, r := range slices.Backward(inRun) {
		if r.ReceivedUnixMs-r.TimeUnixMs <= cmp.Or(rule.maxAge, 10*time.Minute).Milliseconds() {
			young = append(young, r.TimeUnixMs)
		}
	}
	for i, unixMs := range young {
		if i+1 >= rule.values && unixMs-young[0] >= rule.lasting.Milliseconds() {
			return unixMs, inRun[0].TimeUnixMs-inRun[len(inRun)-1].TimeUnixMs >= enough.Milliseconds(), true
		}
	}
	return 0, false, false
}

// check compares the active alerts of an engine with the definition, but those of a device that cannot be read.
func (m *model) check(t *testing.T, active []Alert, damaged vitals.Name, now, expired int64) {
	t.Helper()
	want, forgettable := m.expected(t, now)
	of := func(a Alert) bool { return a.Device == damaged }
	active, want = slices.DeleteFunc(slices.Clone(active), of), slices.DeleteFunc(want, of)
	for i := range want {
		for _, a := range active {
			if key(&a) == key(&want[i]) && (a.SinceUnixMs < expired || forgettable[key(&a)]) {
				want[i].SinceUnixMs = a.SinceUnixMs
			}
		}
	}
	if !slices.Equal(sorted(active), sorted(want)) {
		t.Fatalf("at %d: got %q, want %q", now, sorted(active), sorted(want))
	}
}

func sorted(alerts []Alert) (texts []string) {
	for _, a := range alerts {
		texts = append(texts, fmt.Sprintf("%s %s %v %v", a.Rule.Name, a.Device, a.Rule.Labels, a.SinceUnixMs))
	}
	slices.Sort(texts)
	return texts
}

// step does what Run does in a round. It reports whether the store was read.
func (e *Engine) step(ctx context.Context, sweep bool) (read bool) {
	select {
	case <-e.restart:
		e.begin()
		sweep = true
	default:
	}
	read = true
	if _, lost := e.take(nil); lost || sweep {
		read = e.sweep(ctx, nil)
	}
	e.readUnread(ctx, true, true)
	e.settle(true)
	e.readUnread(ctx, true, true)
	return read
}

const minute = int64(time.Minute / time.Millisecond)

// A failing is a Reader that may fail.
type failing struct {
	Reader
	fails  bool
	device vitals.Name // which cannot be read
}

var errFailing = errors.New("the store fails")

func (f *failing) Latest(ctx context.Context, device vitals.Name) (storage.Device, error) {
	if f.fails || device == f.device {
		return storage.Device{}, errFailing
	}
	return f.Reader.Latest(ctx, device)
}

func (f *failing) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	if f.fails {
		return errFailing
	}
	return f.Reader.WalkDevices(ctx, visit)
}

// After each random change, the alerts of an engine are those of the definition.
func TestModel(t *testing.T) { testModels(t, 60) }

func TestModelExhaustive(t *testing.T) { testModels(t, 2000) }

func testModels(t *testing.T, rounds uint64) {
	counts := map[string]int{}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testModel(t, rand.New(rand.NewPCG(seed, 39)), counts) })
	}
	for _, what := range []string{
		"stored", "completed", "duplicate", "late", "ahead", "left out", "lost", "forward", "backward", "a pause", "erased",
		"a part erased", "expired", "rules", "restart", "failure", "a device damaged",
		"Low", "Lasting", "Below", "Fast", "High", "Often", "Cold", "Own", "Silent", "Gone",
	} {
		if counts[what] < 10 && !t.Failed() {
			t.Errorf("%s: %d times only", what, counts[what])
		}
	}
}

func testModel(t *testing.T, rng *rand.Rand, counts map[string]int) {
	m := newModel(t, rng)
	store := &failing{Reader: m.store}
	now := int64(1_800_000_000_000)
	var retain time.Duration
	if rng.IntN(2) == 0 {
		retain = time.Duration(1+rng.IntN(200)) * time.Hour
	}
	start := func() *Engine {
		return NewEngine(store, m.rules, Options{Retain: retain, Now: func() time.Time { return time.UnixMilli(now) }})
	}
	e := start()
	devices := []string{"a1", "a2", "b1"}
	some := func() vitals.Name { return name(t, devices[rng.IntN(len(devices))]) }
	var expired int64           // readings before this were removed
	known := map[string]Alert{} // that were reported as active and not as ended
	nChanges := uint64(0)
	sweep, fresh := false, false
	for range 60 {
		for more := 1 + rng.IntN(2); more > 0; more-- {
			what := ""
			switch rng.IntN(18) {
			default:
				group := m.randomGroup(t, rng, devices, &now, counts)
				switch rng.IntN(8) {
				case 0: // the inbox was full
					what = "lost"
					e.inbox.Lose(1)
				default:
					for _, entry := range group {
						if !e.filter.Load().fill(new(update), entry) {
							counts["left out"]++
						}
						if e.board.devices.get(&entry.Reading.Device) == nil { // Run sweeps before it can be silent
							sweep = true
						}
					}
					e.Publish(group)
				}
				if rng.IntN(3) == 0 { // Run settles all devices every few seconds only
					_, lost := e.take(nil)
					e.settle(false)
					sweep = sweep || lost
				}
			case 0:
				what, now = "forward", now+rng.Int64N(120)*minute
			case 1:
				what, now = "backward", now-rng.Int64N(120)*minute
			case 2:
				what, now = "a pause", now+30*60*minute
			case 3:
				device := some()
				if _, err := m.store.Erase(device); err == nil {
					what = "erased"
					e.Erased(device)
				}
			case 4:
				a := storage.Assignment{Device: some(), Subject: "P-17", FromUnixMs: now - rng.Int64N(20)*minute, ToUnixMs: now + 1}
				if err := m.store.Assign(t.Context(), a); err != nil {
					break // it overlaps another
				}
				if _, err := m.store.EraseAssignment(a); err == nil {
					what = "a part erased"
					e.Erased(a.Device)
				}
			case 5:
				if retain == 0 || now-retain.Milliseconds() < expired {
					break
				}
				expired = now - retain.Milliseconds()
				x, err := m.store.Expire(t.Context(), expired, math.MaxInt64)
				try(t, err)
				sweep, more = true, 1 // before the clock is stepped
				if x.Readings > 0 {
					what = "expired"
				}
			case 6:
				what = "rules"
				m.change(t, rng)
				try(t, e.SetRules(m.rules))
			case 7:
				what = "restart"
				e, fresh = start(), true
				sweep, nChanges = true, 0
			case 8:
				what = "failure"
				store.fails = true
			case 9:
				what = "a device damaged"
				store.device = some()
			case 10:
				store.device = vitals.Name{}
			}
			counts[what]++
		}
		sweep = !e.step(t.Context(), sweep || !e.ready) || store.fails
		if store.fails {
			store.fails = false // in the next round all is well again
			continue
		}
		active, s := e.State(nChanges)
		if !s.Ready {
			t.Fatal("not ready")
		}
		m.check(t, active, store.device, now, expired)
		// The changes lead from what was active to what is.
		nChanges = s.N
		is := map[string]Alert{}
		for _, a := range active {
			is[key(&a)] = a
			counts[a.Rule.Name]++
		}
		if !fresh {
			for _, a := range s.Alerts {
				k := key(&a)
				if _, was := known[k]; was == (a.EndedUnixMs == 0) || a.EndedUnixMs != 0 && a.EndedUnixMs < a.SinceUnixMs {
					t.Fatalf("%s, since %d, ended at %d: was active %t", k, a.SinceUnixMs, a.EndedUnixMs, was)
				}
				if known[k] = a; a.EndedUnixMs != 0 {
					delete(known, k)
				}
			}
			if !slices.Equal(slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(is))) {
				t.Fatalf("after the changes, %v are active, want %v", known, is)
			}
		}
		known, fresh = maps.Clone(is), false
	}
}

// randomGroup stores some readings of devices, during which time passes, and returns them. Times are on a
// grid, so that some readings have the time of another one.
func (m *model) randomGroup(t *testing.T, rng *rand.Rand, devices []string, now *int64,
	counts map[string]int) (group []*storage.Entry) {
	t.Helper()
	for range 1 + rng.IntN(6) {
		r := vitals.Reading{Device: name(t, devices[rng.IntN(len(devices))]), TimeUnixMs: *now - rng.Int64N(3)*minute}
		switch rng.IntN(6) {
		case 0:
			r.TimeUnixMs = *now - rng.Int64N(60)*minute
		case 1:
			r.TimeUnixMs = *now - rng.Int64N(100)*60*minute
		case 2:
			r.TimeUnixMs = *now + rng.Int64N(3)*minute
		}
		r.TimeUnixMs -= r.TimeUnixMs % (minute / 2)
		set := func(s vitals.Sign, values ...vitals.Value) { // often the first
			r.Values.Set(s, values[rng.IntN(len(values))*rng.IntN(2)])
		}
		if rng.IntN(4) > 0 {
			set(vitals.SpO2, 85_00, 91_00, 91_01, 97_00)
		}
		if rng.IntN(3) == 0 {
			set(m.own, 30_3, 30_4, 33_0, 37_1)
		}
		if r.Values.IsZero() || rng.IntN(2) == 0 {
			set(vitals.HeartRate, 120_00, 60_00, 99_99, 100_00)
		}
		e := &storage.Entry{Reading: &r, ReceivedUnixMs: *now}
		try(t, m.store.Append([]*storage.Entry{e}))
		group = append(group, e)
		switch counts[map[storage.Outcome]string{storage.Stored: "stored", storage.Completed: "completed",
			storage.Duplicate: "duplicate"}[e.Outcome]]++; {
		case e.ReceivedUnixMs-r.TimeUnixMs > 10*minute:
			counts["late"]++
		case r.TimeUnixMs > e.ReceivedUnixMs:
			counts["ahead"]++
		}
		*now += rng.Int64N(2 * minute)
	}
	return group
}

// Of two servers with one store, each of which learns from its own commits only of what it has stored
// itself, none begins an alert that is not active, and after a sweep each has exactly those that are.
func TestTwoServers(t *testing.T) { testTwoServers(t, 40) }

func TestTwoServersExhaustive(t *testing.T) { testTwoServers(t, 1000) }

func testTwoServers(t *testing.T, rounds uint64) {
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testTwo(t, rand.New(rand.NewPCG(seed, 40))) })
	}
}

func testTwo(t *testing.T, rng *rand.Rand) {
	m := newModel(t, rng)
	now, devices, counts := int64(1_800_000_000_000), []string{"a1", "a2", "b1"}, map[string]int{}
	var engines [2]*Engine
	var nChanges [2]uint64
	for i := range engines {
		engines[i] = NewEngine(m.store, m.rules, Options{Shared: true, Now: func() time.Time { return time.UnixMilli(now) }})
		engines[i].step(t.Context(), true)
	}
	for range 60 {
		switch rng.IntN(8) {
		case 0:
			now += rng.Int64N(120) * minute
		case 1:
			device := name(t, devices[rng.IntN(len(devices))])
			if _, err := m.store.Erase(device); err == nil {
				engines[rng.IntN(2)].Erased(device)
			}
		default:
			engines[rng.IntN(2)].Publish(m.randomGroup(t, rng, devices, &now, counts))
		}
		all, _ := m.expected(t, now)
		is := map[string]bool{}
		for _, a := range all {
			is[key(&a)] = true
		}
		for i, e := range engines {
			sweep := rng.IntN(4) == 0
			e.step(t.Context(), sweep)
			active, c := e.State(nChanges[i])
			for nChanges[i] = c.N; len(c.Alerts) > 0; c.Alerts = c.Alerts[1:] {
				if a := &c.Alerts[0]; a.EndedUnixMs == 0 && !is[key(a)] {
					t.Fatalf("server %d begins %s, which is not active", i, key(a))
				}
			}
			if sweep {
				m.check(t, active, vitals.Name{}, now, 0)
			}
		}
	}
}

func key(a *Alert) string {
	return fmt.Sprintf("%s %s %d %v", a.Rule.Name, a.Device, a.Rule.Sign, a.Rule.Labels)
}

func name(t *testing.T, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	try(t, err)
	return n
}

var try = polltest.Try
