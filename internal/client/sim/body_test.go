package sim_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/vitals"
)

func decoder(t testing.TB) *vitals.Decoder {
	t.Helper()
	rules, err := vitals.NewValidator(vitals.NewSigns().DefaultLimits())
	try(t, err)
	return vitals.NewDecoder(rules, vitals.DecoderOptions{})
}

func mix(t testing.TB, name string, shares map[string]string) sim.Mix {
	t.Helper()
	m, err := sim.ParseMix(name, shares)
	try(t, err)
	return m
}

// A server decodes from a body exactly what the ledger records as sent.
func TestBodies(t *testing.T) {
	for _, name := range []string{"clean", "real"} {
		opt := sim.Options{Users: 7, Devices: 23, Batch: 5, Posts: 50, Run: "t", Seed: 4,
			Mix: mix(t, name, nil)}.WithDial(noDial)
		for _, c := range sim.Compose(opt, 200) {
			var batch vitals.Batch
			err := decoder(t).Decode([]byte(c.Body), time.Now().UnixMilli(), &batch)
			if c.Flawed {
				continue // see TestFlawsAreRejected
			}
			if err != nil {
				t.Fatalf("%v: %s", err, c.Body)
			}
			if single := batch.Shape == vitals.Single; single != c.Single {
				t.Errorf("decoded as a single reading: %v, want %v: %s", single, c.Single, c.Body)
			}
			if batch.Len() != len(c.TimesMs) {
				t.Fatalf("%d readings, want %d", batch.Len(), len(c.TimesMs))
			}
			for i := range batch.Readings {
				r, at := &batch.Readings[i], batch.Index[i]
				if r.Device.String() != c.Devices[at] || r.TimeUnixMs != c.TimesMs[at] || r.Values != c.Values[at] ||
					r.UTCOffset != c.Offsets[at] {
					t.Errorf("reading %d is decoded as %+v", at, r)
				}
			}
			// Only a wrong clock may cause a rejection.
			for i := range batch.Refused {
				if !errors.Is(&batch.Refused[i], vitals.ErrFuture) || name == "clean" {
					t.Errorf("mix %s: %v", name, &batch.Refused[i])
				}
			}
		}
	}
}

func TestFlawsAreRejected(t *testing.T) {
	flaws := sim.Flaws()
	if len(flaws) < 8 {
		t.Fatalf("%d different flaws", len(flaws))
	}
	for body, want := range flaws {
		var batch vitals.Batch
		err := decoder(t).Decode([]byte(body), 1_795_000_100_000, &batch)
		got := http.StatusOK
		var syntax *vitals.SyntaxError
		switch {
		case errors.As(err, &syntax):
			got = http.StatusBadRequest
		case len(batch.Refused) == 1:
			got = http.StatusUnprocessableEntity
		}
		if got != want {
			t.Errorf("status %d, want %d: %q", got, want, body)
		}
	}
}

// net/http can parse a request, and composing one does not allocate.
func TestEncoder(t *testing.T) {
	for _, gzipped := range []bool{false, true} {
		for _, batch := range []int{1, 20} {
			next, err := sim.Encoder(sim.Options{Users: 3, Batch: batch, Posts: 100, Run: "t", Seed: 1}, gzipped)
			try(t, err)
			req := readRequest(t, next())
			body := readBody(t, req)
			if batch == 1 && !json.Valid([]byte(body)) {
				t.Errorf("the body is not JSON: %s", body)
			}
			if n := strings.Count(body, `"device"`); n != batch {
				t.Errorf("%d readings, want %d", n, batch)
			}
			for range 50 {
				next()
			}
			if n := testing.AllocsPerRun(200, func() { next() }); n != 0 {
				t.Errorf("gzip %v, batch %d: %v allocations for a request, want 0", gzipped, batch, n)
			}
		}
	}
}

func TestMix(t *testing.T) {
	if got := mix(t, "clean", nil).String(); got != "" {
		t.Errorf("clean is %q", got)
	}
	if got := mix(t, "real", map[string]string{"gzip": "0", "drop": "1"}).String(); !strings.Contains(got, "drop=1") ||
		strings.Contains(got, "gzip") {
		t.Errorf("got %q", got)
	}
	for name, shares := range map[string]map[string]string{
		"other": nil, "clean": {"gzip": "2"}, "real": {"jitter": "0.1"},
	} {
		if _, err := sim.ParseMix(name, shares); err == nil {
			t.Errorf("mix %s with %v was accepted", name, shares)
		}
	}
	if _, err := sim.ParseMix("clean", map[string]string{"gzip": "NaN"}); err == nil {
		t.Error("a share that is not a number was accepted")
	}
}
