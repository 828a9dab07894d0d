package main_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stallMemory bounds the memory of a server with a slow disk: 64 readings in the queue, 200
// connections, and the idle memory of Go and the store, about 60 MB.
const stallMemory = 160 << 20

// The file system freezes. The queue fills, further readings are rejected, queries and livez are
// answered, and when the file system thaws the server continues.
//
// Seen to fail with the mutant unbounded-queue.
func TestStalledDisk(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		t.Parallel()
		d := newDisk(t, 256<<20)
		b := newHarnessIn(t, filepath.Join(d.dir, "data"), lane, "--max-queued=64")
		b.start()
		b.mustPost(`{"device":"before","time":1000,"spo2_pct":97}`, `200 {"status":"stored"}`)
		l := b.load("--users=200", "--posts=20")
		l.awaitAcknowledged(200)
		d.freeze()
		defer d.thaw() // also when the test fails
		// The load fills the queue, so that a new reading is rejected. A reading that finds a place
		// in the queue waits, and is answered in the end.
		var refused *http.Response
		b.server.await("a reading is refused", func() bool {
			answered := make(chan *http.Response, 1)
			go func() {
				resp, err := http.Post("http://"+b.addr+"/v1/readings", "",
					strings.NewReader(`{"device":"during","time":1000,"spo2_pct":97}`))
				if err == nil {
					resp.Body.Close()
					answered <- resp
				}
			}()
			select {
			case refused = <-answered:
			case <-time.After(100 * time.Millisecond):
			}
			return refused != nil
		})
		if refused.StatusCode != 503 || refused.Header.Get("Retry-After") == "" {
			t.Errorf("with a stalled disk a POST is answered %d, Retry-After %q; want 503 and a time", refused.StatusCode,
				refused.Header.Get("Retry-After"))
		}
		if got := status(b.server.url("/livez")); got != 200 {
			t.Errorf("livez: got %d while the disk stalls, want 200", got)
		}
		if got := b.readings("before"); len(got) != 1 {
			t.Errorf("a reader finds %d readings while the disk stalls, want 1", len(got))
		}
		if got := b.server.peakMemory(); got > stallMemory {
			t.Errorf("the server took %d MB, want at most %d", got>>20, stallMemory>>20)
		}
		d.thaw()
		if report := l.wait(); report.Refused503 == 0 || report.Stored != 4000 {
			t.Errorf("%d of 4000 readings are stored, after %d refusals; want all, after some refusals", report.Stored,
				report.Refused503)
		}
		b.mustPost(`{"device":"after","time":1000,"spo2_pct":97}`, `200 {"status":"stored"}`)
		b.finish()
	})
}
