package main

import (
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// Pulsegate accepts the readings of wearers, and none occurs twice. Each device has one
// reading per minute.
func TestWearers(t *testing.T) {
	const devices, groups, rounds = 250, 3, 700
	now := time.Now()
	rules, err := vitals.NewValidator(vitals.NewSigns().DefaultLimits())
	try(t, err)
	decoder := vitals.NewDecoder(rules, vitals.DecoderOptions{})
	for _, signs := range []int{2, 5, 10} {
		times := map[vitals.Name][]int64{}
		gateways := map[vitals.Name]map[vitals.Name]bool{}
		for group := range groups {
			w := newWearers(devices, groups, group, signs, now.Add(-rounds*time.Minute))
			e := jsonArray()
			samples := make([]sample, 100)
			var body []byte
			for range len(w.all) * rounds / len(samples) {
				w.fill(samples)
				body = e(body[:0], samples)
				var b vitals.Batch
				try(t, decoder.Decode(body, now.UnixMilli(), &b))
				if len(b.Readings) != len(samples) || len(b.Refused) > 0 {
					t.Fatalf("%d readings accepted, rejected: %v", len(b.Readings), b.Refused)
				}
				for i, r := range b.Readings {
					n := 0
					for sign := range vitals.NumBuiltIn {
						if r.Values.Has(vitals.Sign(sign)) {
							n++
						}
					}
					if n != signs || r.TimeUnixMs != samples[i].timeMs {
						t.Fatalf("%d signs at %d, want %d at %d", n, r.TimeUnixMs, signs, samples[i].timeMs)
					}
					times[r.Device] = append(times[r.Device], r.TimeUnixMs)
					if gateways[r.Device] == nil {
						gateways[r.Device] = map[vitals.Name]bool{}
					}
					gateways[r.Device][r.Gateway] = true
				}
			}
		}
		if len(times) != devices {
			t.Errorf("%d devices, want %d", len(times), devices)
		}
		for device, all := range times {
			if len(all) < rounds-1 || !slices.IsSorted(all) || len(slices.Compact(all)) < len(all) {
				t.Errorf("%s: %d readings at times that do not rise", device, len(all))
			}
			if n := len(gateways[device]); n != 2 {
				t.Errorf("%s: %d gateways, want 2", device, n)
			}
		}
	}
}
