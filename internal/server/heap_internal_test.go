package server

import (
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// Memory is returned once, some time after the last of many handshakes.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collections := func() uint32 {
			synctest.Wait()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.NumForcedGC
		}
		var trim trimmer
		before := collections()
		for range trimHandshakes - 1 {
			trim.handshake()
		}
		time.Sleep(2 * trimDelay)
		if n := collections() - before; n != 0 {
			t.Errorf("%d collections after few handshakes, want none", n)
		}
		for range 3 {
			trim.handshake()
			time.Sleep(trimDelay - 1)
		}
		if n := collections() - before; n != 0 {
			t.Errorf("%d collections while handshakes are made, want none", n)
		}
		time.Sleep(3 * trimDelay)
		if n := collections() - before; n != 1 {
			t.Errorf("%d collections after many handshakes, want 1", n)
		}
	})
}

// The ballast defers collections by twice its size, and is small under a small memory limit.
func TestBallast(t *testing.T) {
	goalBytes := func() int {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return int(s[0].Value.Uint64())
	}
	goal := goalBytes()
	ballast := newBallast(math.MaxInt64)
	if n := goalBytes() - goal; n < 2*maxBallastBytes*9/10 {
		t.Errorf("the collector's goal has grown by %d bytes, want about %d", n, 2*maxBallastBytes)
	}
	if n := len(newBallast(128 << 20)); n != 4 {
		t.Errorf("%d parts of 128 MiB of memory, want 4 of 1 MiB", n)
	}
	runtime.KeepAlive(ballast)
}
