package alert

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// expected returns the active alerts by the definition of [Rule], from everything that is stored. Those
// of long runs may have begun earlier than an engine knows.
func expected(t *testing.T, store *storetest.Memory, rules []Rule, nowUnixMs int64) (active []Alert, forgettable map[string]bool) {
	t.Helper()
	forgettable = map[string]bool{}
	err := store.WalkDevices(t.Context(), func(some []storage.Device) {
		for _, d := range some {
			all := make([]storage.Record, 1<<12)
			n, err := store.Scan(t.Context(), storage.Range{Device: d.Name, ToUnixMs: math.MaxInt64}, all)
			if err != nil || n == len(all) {
				t.Fatal(n, err)
			}
			for i := range rules {
				if !rules[i].appliesTo(d.Name.String()) {
					continue
				}
				since, long, is := defined(&rules[i], all[:n], nowUnixMs)
				if is {
					a := Alert{Rule: &rules[i], Device: d.Name, SinceUnixMs: since}
					active = append(active, a)
					if long {
						forgettable[key(&a)] = true
					}
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return active, forgettable
}

// defined returns whether the alert of a rule is active for a device with some records, in ascending
// order, since when, and whether the run is longer than is read of it.
func defined(rule *Rule, records []storage.Record, nowUnixMs int64) (sinceUnixMs int64, long, active bool) {
	if rule.Silent != 0 {
		age := nowUnixMs - records[len(records)-1].TimeUnixMs
		return records[len(records)-1].TimeUnixMs + rule.Silent.Milliseconds(), false,
			age >= rule.Silent.Milliseconds() && (rule.MaxAge == 0 || age < rule.MaxAge.Milliseconds())
	}
	var inRun []storage.Record // the newest first
	for _, r := range slices.Backward(records) {
		v, has := r.Values.Get(rule.Sign)
		if !has {
			continue
		}
		if !rule.Met.Contains(v) || len(inRun) > 0 && inRun[len(inRun)-1].TimeUnixMs-r.TimeUnixMs >= Lasts.Milliseconds() {
			break
		}
		inRun = append(inRun, r)
	}
	if len(inRun) == 0 || nowUnixMs-inRun[0].TimeUnixMs >= Lasts.Milliseconds() {
		return 0, false, false
	}
	var young []int64
	for _, r := range slices.Backward(inRun) {
		if r.ReceivedUnixMs-r.TimeUnixMs <= rule.MaxAge.Milliseconds() {
			young = append(young, r.TimeUnixMs)
		}
	}
	for i, unixMs := range young {
		if i+1 >= rule.Values && unixMs-young[0] >= rule.For.Milliseconds() {
			return unixMs, inRun[0].TimeUnixMs-inRun[len(inRun)-1].TimeUnixMs >= enough.Milliseconds(), true
		}
	}
	return 0, false, false
}

func sorted(alerts []Alert) (texts []string) {
	for _, a := range alerts {
		texts = append(texts, fmt.Sprintf("%s %s %v %v", a.Rule.Name, a.Device, a.Rule.Labels, a.SinceUnixMs))
	}
	slices.Sort(texts)
	return texts
}

// step does what Run does in a round.
func (e *Engine) step(ctx context.Context, sweep bool) {
	select {
	case <-e.restart:
		e.begin()
		sweep = true
	default:
	}
	if _, lost := e.take(nil); lost || sweep {
		e.sweep(ctx)
	}
	e.readUnread(ctx)
	e.settle(true)
}

const minute = int64(time.Minute / time.Millisecond)

// testRules returns rules with all kinds of conditions.
func testRules(rng *rand.Rand) []Rule {
	rules := []Rule{
		{Name: "Low", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, Values: 1, MaxAge: 10 * time.Minute},
		{Name: "Lasting", Sign: vitals.SpO2, Met: vitals.Range{Min: vitals.MinValue, Max: 90_00}, For: 2 * time.Minute, Values: 3, MaxAge: 10 * time.Minute},
		{Name: "Fast", Sign: vitals.HeartRate, Met: vitals.Range{Min: 100_00, Max: vitals.MaxValue}, For: 5 * time.Minute, Values: 1, MaxAge: time.Minute, Devices: "a"},
		{Name: "Often", Sign: vitals.HeartRate, Met: vitals.Range{Min: 100_00, Max: vitals.MaxValue}, Values: 4, MaxAge: 48 * time.Hour, Labels: map[string]string{"severity": "page"}},
		{Name: "Silent", Silent: 30 * time.Minute},
		{Name: "Gone", Silent: 10 * time.Minute, MaxAge: 3 * time.Hour, Devices: "a1"},
	}
	rng.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
	return rules[:1+rng.IntN(len(rules))]
}

// After each random change, the alerts of an engine are those of the definition.
func TestModel(t *testing.T) { testModels(t, 40) }

func TestModelExhaustive(t *testing.T) { testModels(t, 1000) }

func testModels(t *testing.T, rounds uint64) {
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testModel(t, rand.New(rand.NewPCG(seed, 39))) })
	}
}

func testModel(t *testing.T, rng *rand.Rand) {
	store := storetest.NewMemory()
	now := int64(1_800_000_000_000)
	rules := testRules(rng)
	start := func() *Engine {
		return NewEngine(store, rules, Options{Now: func() time.Time { return time.UnixMilli(now) }})
	}
	e := start()
	devices := []string{"a1", "a2", "b1"}
	var expired int64           // readings before this were removed
	known := map[string]Alert{} // that were reported as active and not as ended
	nChanges := uint64(0)
	for range 60 {
		sweep, fresh := false, false
		switch rng.IntN(14) {
		default:
			group := randomGroup(t, rng, devices, &now)
			if err := store.Append(group); err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(8) {
			case 0: // the inbox was full
				sweep = true
				e.inbox.Lose(1)
			default:
				e.Publish(group)
			}
		case 0:
			now += rng.Int64N(120) * minute
		case 1:
			now -= rng.Int64N(120) * minute
		case 2:
			now += 30 * 60 * minute
		case 3:
			device := name(t, devices[rng.IntN(len(devices))])
			if _, err := store.Erase(device); err == nil {
				e.Erased(device)
			}
		case 4:
			// A run of four values may have begun almost 3 Lasts ago. What is removed later does not matter.
			expired = max(expired, now-5*Lasts.Milliseconds()-rng.Int64N(90)*minute)
			if _, err := store.Expire(t.Context(), expired, math.MaxInt64); err != nil {
				t.Fatal(err)
			}
			sweep = true
		case 5:
			rules = testRules(rng)
			e.SetRules(rules)
		case 6:
			e, fresh = start(), true
			sweep, nChanges = true, 0
		}
		e.step(t.Context(), sweep || !e.ready)
		active, s := e.State(nChanges)
		want, forgettable := expected(t, store, rules, now)
		for i := range want {
			for _, a := range active {
				if key(&a) == key(&want[i]) && (a.SinceUnixMs < expired || forgettable[key(&a)] && a.SinceUnixMs > want[i].SinceUnixMs) {
					want[i].SinceUnixMs = a.SinceUnixMs
				}
			}
		}
		if !s.Ready || !slices.Equal(sorted(active), sorted(want)) {
			t.Fatalf("at %d: ready %t, got %q, want %q", now, s.Ready, sorted(active), sorted(want))
		}
		// The changes lead from what was active to what is.
		nChanges = s.N
		is := map[string]Alert{}
		for _, a := range active {
			is[key(&a)] = a
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
		known = maps.Clone(is)
	}
}

// randomGroup returns some readings of devices, during which time passes.
func randomGroup(t *testing.T, rng *rand.Rand, devices []string, now *int64) (group []*storage.Entry) {
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
		if rng.IntN(4) > 0 {
			r.Values.Set(vitals.SpO2, []vitals.Value{85_00, 90_00, 90_01, 97_00}[rng.IntN(4)*rng.IntN(2)])
		}
		if r.Values.IsZero() || rng.IntN(2) == 0 {
			r.Values.Set(vitals.HeartRate, []vitals.Value{120_00, 60_00, 99_99, 100_00}[rng.IntN(4)*rng.IntN(2)])
		}
		group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: *now})
		*now += rng.Int64N(2 * minute)
	}
	return group
}

// Of two servers with one store, each of which learns only of what it has stored itself, neither
// has an alert too much, and together they have all.
func TestTwoServers(t *testing.T) { testTwoServers(t, 20) }

func TestTwoServersExhaustive(t *testing.T) { testTwoServers(t, 500) }

func testTwoServers(t *testing.T, rounds uint64) {
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(seed, 40))
		store, now, rules := storetest.NewMemory(), int64(1_800_000_000_000), testRules(rng)
		var engines [2]*Engine
		for i := range engines {
			engines[i] = NewEngine(store, rules, Options{Shared: true, Now: func() time.Time { return time.UnixMilli(now) }})
			engines[i].step(t.Context(), true)
		}
		for range 60 {
			switch rng.IntN(8) {
			case 0:
				now += rng.Int64N(120) * minute
			case 1:
				device := name(t, []string{"a1", "a2", "b1"}[rng.IntN(3)])
				if _, err := store.Erase(device); err == nil {
					engines[rng.IntN(2)].Erased(device)
				}
			default:
				group := randomGroup(t, rng, []string{"a1", "a2", "b1"}, &now)
				if err := store.Append(group); err != nil {
					t.Fatal(err)
				}
				engines[rng.IntN(2)].Publish(group)
			}
			missing := map[string]bool{}
			all, _ := expected(t, store, rules, now)
			for _, a := range all {
				missing[key(&a)] = true
			}
			var both []string
			for _, e := range engines {
				e.step(t.Context(), true)
				for _, a := range first(e.State(0)) {
					both = append(both, key(&a))
				}
			}
			for _, k := range both {
				if _, expected := missing[k]; !expected {
					t.Fatalf("seed %d: %s is not active", seed, k)
				}
				missing[k] = false
			}
			for k, is := range missing {
				if is {
					t.Fatalf("seed %d: %s is missing", seed, k)
				}
			}
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

func key(a *Alert) string {
	return fmt.Sprintf("%s %s %d %v", a.Rule.Name, a.Device, cmp.Or(int(a.Rule.Silent), int(a.Rule.Sign)), a.Rule.Labels)
}

func name(t *testing.T, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
