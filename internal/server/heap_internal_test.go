package server

import (
	"runtime"
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
