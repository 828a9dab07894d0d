package main_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// The power goes under load: of an ext4 file system, nothing is left that was not
// on the device by then. The process lives on for a moment, as it may while a disk
// vanishes, and must acknowledge nothing more.
//
// Seen to fail with the mutants answer-before-sync, answer-before-commit and
// ignore-sync-error.
func TestPowerLoss(t *testing.T) {
	onBothLanes(t, func(t *testing.T, lane lane) {
		t.Parallel()
		d := newDisk(t, 512<<20)
		b := newBedIn(t, filepath.Join(d.dir, "data"), lane)
		b.start()
		for _, args := range [][]string{
			{"--users=24"},
			{"--users=8", "--batch=10", "--mix=real"},
			{"--users=50", "--mix=real"},
		} {
			l := b.load(append(args, "--for=1m")...)
			l.awaitAcknowledged(20 + rand.IntN(200))
			d.cutPower()
			time.Sleep(rand.N(50 * time.Millisecond))
			b.server.kill()
			l.settle()
			d.revive()
			b.start()
			b.verify()
		}
		if b.verify() == 0 {
			t.Error("nothing was acknowledged")
		}
		b.term()
		b.check()
	})
}
