package main

import (
	"slices"
	"strings"
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

func TestEncoders(t *testing.T) {
	samples := []sample{
		{device: 7, gateway: 12, timeMs: 1_790_000_000_123},
		{device: 123456, gateway: 3, timeMs: 1_790_000_061_007},
	}
	samples[0].set(vitals.SpO2, 975)
	samples[0].set(vitals.HeartRate, 720)
	for sign, tenths := range []int32{1205, 801, 960, 999, 515} {
		samples[1].set(vitals.Sign(sign), tenths)
	}
	for _, tt := range []struct {
		name string
		e    encoder
		want string
	}{
		{"JSON", jsonArray(), `[{"device":"wearable-000007","time":"2026-09-21T14:13:20.123Z","spo2_pct":97.5,"heart_rate_bpm":72,"gateway":"ward-00012"},` +
			`{"device":"wearable-123456","time":"2026-09-21T14:14:21.007Z","systolic_mmhg":120.5,"diastolic_mmhg":80.1,"spo2_pct":96,"heart_rate_bpm":99.9,"resting_heart_rate_bpm":51.5,"gateway":"ward-00003"}]`},
		{"lines", influxLines(), "vitals,device=wearable-000007,gateway=ward-00012 spo2_pct=97.5,heart_rate_bpm=72 1790000000123\n" +
			"vitals,device=wearable-123456,gateway=ward-00003 systolic_mmhg=120.5,diastolic_mmhg=80.1,spo2_pct=96,heart_rate_bpm=99.9,resting_heart_rate_bpm=51.5 1790000061007\n"},
		{"rows", csvRows(""), "wearable-000007,1790000000123,RECEIVED,,,9750,7200,,ward-00012\nwearable-123456,1790000061007,RECEIVED,12050,8010,9600,9990,5150,ward-00003\n"},
	} {
		got := string(tt.e(nil, samples))
		if tt.name == "rows" {
			_, rest, _ := strings.Cut(got, "1790000000123,")
			received, _, _ := strings.Cut(rest, ",")
			got = strings.ReplaceAll(got, received, "RECEIVED")
		}
		if got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

func BenchmarkWearers(b *testing.B) {
	w := newWearers(20_000, 20, 0, 2, time.Now())
	samples := make([]sample, 1000)
	var body []byte
	e := jsonArray()
	n := 0
	for b.Loop() {
		if n%len(samples) == 0 {
			w.fill(samples)
			body = e(body[:0], samples)
		}
		n++
	}
}
