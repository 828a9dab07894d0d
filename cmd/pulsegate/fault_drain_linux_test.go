package main_test

import (
	"strings"
	"syscall"
	"testing"
)

// A sync fails after the listener is closed, while pending requests are answered. The reason is
// still the last line.
//
// Seen to fail when the process exits without waiting for its log.
func TestStoreFailsWhileDraining(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane, "--max-wait=60s")
		b.start()
		b.mustPost(`{"device":"first","time":1,"spo2_pct":97}`, `200 {"status":"stored"}`)
		_, before := b.log()
		b.tamper("fdatasync:error=EIO:delay_enter=1s")
		answered := make(chan int, 1)
		go func() {
			code, _, _ := b.post(reading(0), false) // the connection may be cut off
			answered <- code
		}()
		b.awaitLog(before)
		b.server.signal(syscall.SIGTERM)
		endsWithReason(t, b)
		if got := <-answered; got == 200 {
			t.Error("the reading whose sync failed is answered 200")
		}
	})
}

// endsWithReason checks that the server exits by itself because its store has failed.
func endsWithReason(t *testing.T, b *harness) {
	t.Helper()
	if code := b.ended(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(b.server.stderr()), "\n")
	last := lines[len(lines)-1]
	for _, want := range []string{"pulsegate: ", b.dir, "can no longer be written", "input/output error"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last line is %q, without %q", last, want)
		}
	}
}
