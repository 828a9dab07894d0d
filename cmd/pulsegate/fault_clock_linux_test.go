package main_test

import (
	"strings"
	"testing"
)

// clockJumps starts an altered server whose clock jumps.
var clockJumps = []string{"env", "ALTERED=clock"}

// Identity, order and values of readings do not depend on the server's clock, which jumps:
// everything is stored once, under its own time, and repetitions are duplicates. The bound on
// readings of the future, which depends on the clock, is disabled.
//
// Seen to fail with the mutant clamp-time-to-clock.
func TestClockJumps(t *testing.T) {
	bin, err := altered()
	try(t, err)
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane, "--max-ahead=900000h")
		load := b.bin
		b.bin = bin
		b.startUnder(clockJumps)
		b.bin = load
		for _, args := range [][]string{
			{"--users=20", "--posts=50"}, // ends now, by the real clock
			{"--users=10", "--posts=20", "--batch=10", "--mix=real", "--share=skew=1,drop=0.1,forward=0.2,malformed=0"},
		} {
			report := b.load(args...).wait()
			if report.Stored == 0 || report.Rejected > 0 {
				t.Errorf("%d readings are stored and %d refused, want some and none", report.Stored, report.Rejected)
			}
		}
		b.verify()
		// The order is that of the readings' times.
		for _, ms := range []string{"3000", "1000", "2000"} {
			b.mustPost(`{"device":"d","time":`+ms+`,"spo2_pct":97}`, `200 {"status":"stored"}`)
			b.mustPost(`{"device":"d","time":`+ms+`,"spo2_pct":97}`, `200 {"status":"duplicate"}`)
		}
		lines := b.readings("d")
		if len(lines) != 3 || !strings.Contains(lines[0], ":01.000Z") || !strings.Contains(lines[1], ":02.000Z") ||
			!strings.Contains(lines[2], ":03.000Z") {
			t.Errorf("the readings are %q, want those of 1, 2 and 3 s", lines)
		}
		b.server.kill()
		b.start()
		b.finish()
	})
}
