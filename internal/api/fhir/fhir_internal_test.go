package fhir

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// Ids have the form of FHIR, differ for different names, and lead back to them.
func TestIDs(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-."
	signs := vitals.NewSigns()
	if err := signs.Define(storetest.OwnSigns()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]vitals.Name{}
	rapid.Check(t, func(rt *rapid.T) {
		name, err :=
			vitals.ParseName(rapid.StringMatching(`[a-b._:-]{1,8}|[A-Za-z0-9._:-]{1,64}|[a.]{30,60}|a{30}[._:a-b]{0,34}`).
				Draw(rt, "name"))
		if err != nil {
			rt.Fatal(err)
		}
		text := string(appendDeviceID(nil, &name))
		if other, ok := seen[text]; ok && other != name {
			rt.Fatalf("%s and %s have the id %s", name, other, text)
		}
		seen[text] = name
		d, ok := parseDeviceID(text)
		if !ok || len(text) > maxDeviceID || strings.Trim(text, alphabet) != "" || d.exact && d.name != name ||
			!d.is(&name) || !name.HasPrefix(&d.name) {
			rt.Fatalf("%s has the id %s, which is %+v, %v", name, text, d, ok)
		}
		want := observationID{group(rapid.IntRange(0, numGroups-1).Draw(rt, "group")),
			rapid.Int64Range(0, vitals.MaxTimeUnixMs).Draw(rt, "time"), d}
		observation := mappingOf(signs, want.group).key + "-" + string(appendTimeID(nil, want.unixMs)) + "-" + text
		if got, ok := parseObservationID(signs, observation); !ok || got != want || len(observation) > 64 {
			rt.Fatalf("%s is %+v, %v, want %+v", observation, got, ok, want)
		}
	})
	// Any text is the id of one device at most.
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`(\.h[a-z]{16})?[a-b.uc:_-]{0,52}`).Draw(rt, "text")
		d, ok := parseDeviceID(text)
		if ok && d.exact && string(appendDeviceID(nil, &d.name)) != text {
			rt.Fatalf("%q is taken for %s", text, d.name)
		}
	})
}

func TestDates(t *testing.T) {
	const day = 1_795_219_200_000 // 2026-11-21
	for _, tt := range []struct {
		text string
		want span
	}{
		{"2026-11-21", span{day, day + 86_400_000}},
		{"eq2026-11-21", span{day, day + 86_400_000}},
		{"gt2026-11-21", span{day + 86_400_000, math.MaxInt64}},
		{"sa2026-11-21", span{day + 86_400_000, math.MaxInt64}},
		{"ge2026-11-21", span{day, math.MaxInt64}},
		{"lt2026-11-21", span{0, day}},
		{"eb2026-11-21", span{0, day}},
		{"le2026-11-21", span{0, day + 86_400_000}},
		{"2026", span{1_767_225_600_000, 1_798_761_600_000}},
		{"2026-11", span{1_793_491_200_000, 1_796_083_200_000}},
		{"2024-02", span{1_706_745_600_000, 1_709_251_200_000}},
		{"2026-11-21T01:00", span{day + 3_600_000, day + 3_660_000}},
		{"2026-11-21T01:00Z", span{day + 3_600_000, day + 3_660_000}},
		{"2026-11-21T01:00+01:00", span{day, day + 60_000}},
		{"2026-11-21T01:00 01:00", span{day, day + 60_000}},
		{"2026-11-20T22:30:00-01:30", span{day, day + 1000}},
		{"2026-11-21T00:00:07", span{day + 7000, day + 8000}},
		{"2026-11-21T00:00:07.1Z", span{day + 7100, day + 7200}},
		{"2026-11-21T00:00:07.12Z", span{day + 7120, day + 7130}},
		{"2026-11-21T00:00:07.123Z", span{day + 7123, day + 7124}},
		{"2026-11-21T00:00:07.123000+00:00", span{day + 7123, day + 7124}},
		{"ge1969-12-31", span{-86_400_000, math.MaxInt64}},
	} {
		if got, ok := parseDates(tt.text); !ok || got != tt.want {
			t.Errorf("%s is %v, %v, want %v", tt.text, got, ok, tt.want)
		}
	}
	// Times with up to six decimals select the readings that comparing exact times would.
	for _, decimals := range []string{"1", "10", "100", "101", "1000", "1001", "1009", "1010", "10000", "10001", "100000",
		"100900", "999999"} {
		var micros, length int64 // after the second, and of the period
		fmt.Sscan((decimals + "000000")[:6], &micros)
		length = int64(math.Pow10(6 - len(decimals)))
		for prefix, matches := range map[string]func(micros, from, to int64) bool{
			"eq": func(at, from, to int64) bool { return from <= at && at < to },
			"ge": func(at, from, to int64) bool { return from <= at },
			"gt": func(at, from, to int64) bool { return to <= at },
			"sa": func(at, from, to int64) bool { return to <= at },
			"lt": func(at, from, to int64) bool { return at < from },
			"eb": func(at, from, to int64) bool { return at < from },
			"le": func(at, from, to int64) bool { return at < to },
		} {
			text := prefix + "2026-11-21T00:00:07." + decimals + "Z"
			got, ok := parseDates(text)
			for ms := range int64(1002) {
				if want := matches(ms*1000, micros, micros+length); !ok || got.has(day+7000+ms) != want {
					t.Fatalf("%s: a reading at %d ms: %v, want %v", text, ms, !want, want)
				}
			}
		}
	}
	for _, text := range []string{
		"", "eq", "xx2026", "GT2026", "ne2026", "ap2026", "26", "0000", "2026-13", "2026-02-29", "2026-1-1", "2026-11-21T",
		"2026-11-21T10", "2026-11-21T25:00Z",
		"2026-11-21T10:00:60Z", "2026-11-21T10:00:00.Z", "2026-11-21 10:00:00Z", "2026-11-21T10:00:00.5.5Z",
		"2026-11-21T10:00ZZ", "2026-11-21t10:00Z", "2026-11-21T10:00.5Z", "gtgt2026", "2026-11-21T10:00Zx",
	} {
		if got, ok := parseDates(text); ok {
			t.Errorf("%s is %v", text, got)
		}
	}
}

// TestCodesOf compares the search for the Observations of any one or two signs with their groups.
func TestCodesOf(t *testing.T) {
	signs := vitals.NewSigns()
	usual := vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	if err := signs.Define([]vitals.Definition{
		{Field: "ecg_rate_bpm", Label: "Rate, ECG", Unit: "/min", LOINC: []string{"8867-4"},
			Accepted: vitals.Range{Min: 20, Max: 300}, Usual: usual},
		{Field: "skin_delta_c", Label: "Difference", Unit: "Cel", Accepted: vitals.Range{Min: -5_000, Max: 5_000},
			Usual: usual},
	}); err != nil {
		t.Fatal(err)
	}
	for s, d := range signs.All() {
		for other, e := range signs.All() {
			params := codesOf(signs, 1<<s|1<<other)
			for g := range group(numGroups) {
				m := mappingOf(signs, g)
				if m == nil {
					continue
				}
				has := func(list string) bool {
					return slices.ContainsFunc(m.codes,
						func(c coding) bool { return slices.Contains(strings.Split(list, ","), c.system+"|"+c.code) })
				}
				found := has(strings.TrimPrefix(params[0], "code="))
				if len(params) > 1 {
					found = found && !has(strings.TrimPrefix(params[1], "code:not="))
				}
				if want := g == groupWith(s) || g == groupWith(other); found != want {
					t.Errorf("%s and %s: %q finds %s: %t", d.Field, e.Field, params, m.key, found)
				}
			}
		}
	}
}

// TestJobValid changes each member of a job so that no server has made it.
func TestJobValid(t *testing.T) {
	now := time.Now()
	made := job{Path: "/$export", UnixMs: now.UnixMilli(), ExpiresUnix: now.Add(ExportKept).Unix()}
	if !made.valid(now) || made.valid(now.Add(ExportKept)) {
		t.Error("a job is not valid until it expires")
	}
	long := strings.Repeat("a", maxExport+1)
	for i, change := range []func(*job){
		func(j *job) { j.Scope = -1 }, func(j *job) { j.Scope = ofGroup + 1 }, func(j *job) { j.Scope = ofGroup },
		func(j *job) { j.Group = "w" }, func(j *job) { j.Path = long }, func(j *job) { j.Query = long },
		func(j *job) { j.Params = long },
		func(j *job) { j.UnixMs = -1 }, func(j *job) { j.UnixMs = vitals.MaxTimeUnixMs + 1 },
		func(j *job) { j.ExpiresUnix += 3601 },
	} {
		j := made
		if change(&j); j.valid(now) {
			t.Errorf("%d: %+v is valid", i, j)
		}
	}
}

// TestDeletedExports deletes more exports than are remembered: those that have expired are forgotten first.
func TestDeletedExports(t *testing.T) {
	var d deletedExports
	now := time.Now()
	id := func(i int) [32]byte { return [32]byte{byte(i), byte(i >> 8)} }
	for i := range maxDeleted {
		d.add(id(i), now.Unix()+int64(i%2), now)
	}
	d.add(id(maxDeleted), now.Unix()+1, now)
	for i := range maxDeleted + 1 {
		if got, want := d.has(id(i)), i%2 == 1 || i == maxDeleted; got != want {
			t.Fatalf("export %d is remembered: %t, want %t", i, got, want)
		}
	}
	for i := range maxDeleted {
		d.add(id(maxDeleted+1+i), now.Unix()+1, now)
	}
	if len(d.expires) != maxDeleted || !d.has(id(2*maxDeleted)) {
		t.Errorf("%d exports are remembered", len(d.expires))
	}
}
