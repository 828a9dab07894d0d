package recording_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/vitals"
)

// A replay returns the valid rows again and again, with the current time, from another place
// for each device, and ends with its context.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		file := `{"device":"d","time":"2026-01-01T00:00:00+02:00","heart_rate_bpm":60}
{"device":"d","time":"2026-01-01T00:01:00Z","heart_rate_bpm":30000000}
{"device":"d","time":"2026-01-01T00:02:00Z","heart_rate_bpm":62}
`
		r, err := recording.New(strings.NewReader(file), recording.NDJSON, recording.Options{})
		try(t, err)
		var devices []vitals.Name
		for _, text := range []string{"a", "b"} {
			name, err := vitals.ParseName(text)
			try(t, err)
			devices = append(devices, name)
		}
		replay, err := recording.NewReplay(ctx, r, devices, time.Minute)
		try(t, err)
		start := time.Now()
		for i, want := range []vitals.Value{6000, 6200, 6200, 6000, 6000, 6200} {
			reading, line, err := replay.Next()
			try(t, err)
			value, _ := reading.Values.Get(vitals.HeartRate)
			at := start.Add(time.Duration(1+i/2) * time.Minute).UnixMilli()
			if value != want || reading.Device != devices[i%2] || reading.TimeUnixMs != at || reading.UTCOffset != 0 ||
				line != i+1 {
				t.Errorf("reading %d: %v, want %v; %+v", i, value, want, reading)
			}
		}
		cancel()
		if _, _, err := replay.Next(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	})
}
