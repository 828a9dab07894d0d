package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/client/sim"
)

// The oracle of the fault tests detects each kind of difference: an older copy of a store lacks
// readings, a reading to which another client added a sign is altered, and a reading that was
// not sent is unknown.
func TestOracleSees(t *testing.T) {
	t.Parallel()
	b := newHarness(t, fastLane)
	b.start()
	kept := b.load("--users=4", "--posts=10")
	kept.wait()
	b.term()
	older := b.dir + ".older"
	try(t, os.CopyFS(older, os.DirFS(b.dir)))
	b.start()
	lost := b.load("--users=4", "--posts=10", "--start=2026-01-01T00:00:00Z")
	acknowledged := lost.wait().Stored
	b.verify()
	b.server.kill()

	b.dir = older
	b.start()
	device, first := sentFirst(t, kept)
	b.mustPost(`{"device":"`+device+`","time":`+first+`,"resting_heart_rate_bpm":77}`, `200 {"status":"stored"}`)
	b.mustPost(`{"device":"`+device+`","time":1,"heart_rate_bpm":77}`, `200 {"status":"stored"}`)
	for _, tt := range []struct {
		load                      *load
		missing, altered, unknown uint64
	}{
		{lost, acknowledged, 0, 0},
		{kept, 0, 1, 1},
	} {
		out, errs, code := output(t, b.bin, "sim", "verify", tt.load.ledger, "--target=http://"+b.addr, "--json")
		var v sim.Verification
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		if code != 1 || v.Missing != tt.missing || v.Altered != tt.altered || v.Unknown != tt.unknown || v.Doubled != 0 {
			t.Errorf("exit code %d, %d missing, %d altered, %d unknown, %d doubled; want 1, %d, %d, %d, 0",
				code, v.Missing, v.Altered, v.Unknown, v.Doubled, tt.missing, tt.altered, tt.unknown)
		}
	}
}

// sentFirst returns device and time of a reading that was sent without a resting heart rate and
// without an offset.
func sentFirst(t *testing.T, l *load) (device, unixMs string) {
	t.Helper()
	text, err := os.ReadFile(l.ledger)
	try(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 6 && f[0] == "S" && strings.Count(f[4], ",") == 3 &&
			!strings.ContainsAny(f[3], "+-") {
			return f[2], f[3]
		}
	}
	t.Fatal("no reading is without a resting heart rate")
	return "", ""
}
