package query

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestAPIPage checks that docs/api.md has the page sizes, and a row for each flag with its
// default threshold.
//
// It was seen to fail with another page size, another threshold, and a flag left out.
func TestAPIPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	try(t, err)
	page := strings.ReplaceAll(string(text), ",000", "000")
	for _, row := range []string{
		fmt.Sprintf("| `limit` | 1 to %d | %d |", MaxDevices, DefaultDevices),
		fmt.Sprintf("| `limit` | 1 to %d readings | %d as JSON;", MaxReadings, DefaultReadings),
	} {
		if !strings.Contains(page, row) {
			t.Errorf("docs/api.md lacks %q", row)
		}
	}
	limits := vitals.NewSigns().DefaultFlagLimits()
	_, table, _ := strings.Cut(page, "\n## Flags\n")
	for set, f := range limits.Signs.EveryFlag() {
		row, column := f.String(), 1
		if sign, end, _ := strings.Cut(row, " "); end == "low" || end == "high" {
			row = sign
			if end == "high" {
				column = 2
			}
		}
		m := regexp.MustCompile("(?m)^\\| (?:[^|]*, )?`" + row + "`[^|]*\\| (.*?) \\| (.*?) \\|").FindStringSubmatch(table)
		if m == nil {
			t.Errorf("docs/api.md has no row for %s", f)
			continue
		}
		flagged, other, ok := around(m[column])
		if !ok {
			flagged, other = 655_35, 655_35 // never flagged
		}
		has := func(v vitals.Value) bool { return limits.Flags(valuesOf(f, v)).Intersects(set) }
		if ok && !has(flagged) || has(other) {
			t.Errorf("%s: docs/api.md says %q, which is not the default", f, m[column])
		}
	}
}

// TestReasonsOfSelected checks that reasons are looked for only of devices that are selected: with more devices than an
// order has, each request would otherwise look at all of them.
func TestReasonsOfSelected(t *testing.T) {
	var asked []string
	h := New(nil, nil, Options{Alerts: func(devices []storage.Device, _ int64, _ []ActiveAlert) {
		for i := range devices {
			asked = append(asked, devices[i].Name.String())
		}
	}})
	var some []storage.Device
	for _, text := range []string{"icu-1", "ppg-1", "icu-2", "ppg-2"} {
		name, err := vitals.ParseName(text)
		try(t, err)
		some = append(some, storage.Device{Name: name})
	}
	before := slices.Clone(some)
	q, err := parseDevices(everything(nil).access, nil, "sort=worst&match=PPG")
	try(t, err)
	f := h.fleetOf(q, 0)
	try(t, f.add(t.Context(), some))
	if !slices.Equal(asked, []string{"ppg-1", "ppg-2"}) || len(f.found) != 2 || !slices.Equal(some, before) {
		t.Errorf("alerts of %q, found %d", asked, len(f.found))
	}
}

// around returns the last value that a text such as "at most 90" includes, and the first
// that it excludes.
func around(text string) (in, out vitals.Value, ok bool) {
	m := regexp.MustCompile(`(at most|at least|below|above) ([\d.]+)$`).FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	v, err := vitals.ParseValue(m[2], 2)
	if err != nil {
		return 0, 0, false
	}
	switch m[1] {
	case "at most":
		return v, v + 1, true
	case "at least":
		return v, v - 1, true
	case "below":
		return v - 1, v, true
	}
	return v + 1, v, true
}

// valuesOf returns values with v as the subject of a flag.
func valuesOf(f vitals.Flag, v vitals.Value) *vitals.Values {
	var values vitals.Values
	for s := range vitals.Sign(vitals.NumBuiltIn) {
		if s.String() == f.Subject {
			values.Set(s, v)
			return &values
		}
	}
	values.Set(vitals.Diastolic, 100_00)
	values.Set(vitals.Systolic, 100_00+v)
	return &values
}
