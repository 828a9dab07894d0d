package alert_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestFirst checks which alert of a device counts where the worst come first: the first one about a sign, or else the
// first one about silence.
func TestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		below := func(name string, least vitals.Value) alert.Rule {
			return alert.Rule{Name: name, Sign: vitals.SpO2, Field: "spo2_pct",
				Met: vitals.Range{Min: vitals.MinValue, Max: least}, Values: 1, MaxAge: 2 * time.Hour}
		}
		silent := func(name string, after time.Duration) alert.Rule { return alert.Rule{Name: name, Silent: after} }
		rules := []alert.Rule{silent("gone", time.Hour), below("far", 60_00), below("near", 90_00),
			silent("silent", time.Minute)}
		engine := alert.NewEngine(store, rules, alert.Options{})
		at := time.Now().Add(-10 * time.Minute).UnixMilli()
		var group []*storage.Entry
		var devices []storage.Device
		for device, v := range map[string]vitals.Value{"both": 55_00, "near": 80_00, "none": 99_00} {
			name, err := vitals.ParseName(device)
			try(t, err)
			r := vitals.Reading{Device: name, TimeUnixMs: at}
			r.Values.Set(vitals.SpO2, v)
			group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: at})
		}
		try(t, store.Append(group))
		for _, device := range []string{"both", "near", "none", "unknown"} {
			name, err := vitals.ParseName(device)
			try(t, err)
			d, err := store.Latest(t.Context(), name)
			if d.Name = name; device != "unknown" {
				try(t, err)
			}
			devices = append(devices, d)
		}
		first := func(fromUnixMs int64) string {
			alerts := make([]query.ActiveAlert, len(devices))
			alert.First(engine, devices, fromUnixMs, alerts)
			return fmt.Sprint(alerts)
		}
		if got, want := first(0), fmt.Sprint(make([]query.ActiveAlert, 4)); got != want {
			t.Errorf("before the states are read: %s", got)
		}
		run(t, engine)
		synctest.Wait()
		since := at + time.Minute.Milliseconds()
		if got, want := first(0), fmt.Sprint([]query.ActiveAlert{
			{Name: "far", Rule: 1, Sign: vitals.SpO2, SinceUnixMs: at},
			{Name: "near", Rule: 2, Sign: vitals.SpO2, SinceUnixMs: at},
			{Name: "silent", Rule: 3, Silence: true, SinceUnixMs: since}, {},
		}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		later := at + 2*time.Minute.Milliseconds()
		silence := query.ActiveAlert{Name: "silent", Rule: 3, Silence: true, SinceUnixMs: later}
		if got, want := first(later), fmt.Sprint([]query.ActiveAlert{silence, silence, silence, {}}); got != want {
			t.Errorf("from %d on: got %s, want %s", later, got, want)
		}
	})
}

// run runs an engine until the test ends.
func run(t *testing.T, engine *alert.Engine) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); engine.Run(t.Context()) }()
	t.Cleanup(func() { <-done })
	time.Sleep(time.Minute)
}
