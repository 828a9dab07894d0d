package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestRepairGoneEarlier reports as lost what the directory does not have any more of an earlier run, and when that was
// acknowledged.
func TestRepairGoneEarlier(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.RememberDir, r.opt.RememberBytes = t.TempDir(), 1
	var lost []pgstore.Loss
	r.opt.OnLoss = func(l pgstore.Loss) { lost = append(lost, l) }
	first := open(t, r.opt)
	mustStore(t, first, reading("d", 1, 1))
	earlier := r.backup(t)
	fromMs := time.Now().UnixMilli()
	for n := range int64(20) { // more than there are slots
		mustStore(t, first, reading("d", 2+n, 2))
	}
	toMs := time.Now().UnixMilli()
	mustClose(t, first)
	r.restore(t, earlier)
	second := open(t, r.opt)
	const backup = 60_000 // it takes less
	if len(lost) != 1 || lost[0].FromUnixMs < fromMs-backup || lost[0].FromUnixMs > toMs || lost[0].ToUnixMs < toMs {
		t.Errorf("lost %v, want a loss from about %d until %d or later", lost, fromMs, toMs)
	}
	mustStore(t, second, reading("d", 30, 3))
}

// copyDir returns a copy of a directory.
func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	try(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// mustClose closes a store.
func mustClose(t *testing.T, s *pgstore.Store) {
	t.Helper()
	try(t, s.Close())
}

// TestRepairDirectory puts back what earlier runs have acknowledged: of one that was closed, and of one that was
// killed.
func TestRepairDirectory(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.RememberDir = t.TempDir()
	ctx := context.Background()
	first := open(t, r.opt)
	mustStore(t, first, reading("d", 1, 1), reading("erased", 1, 1))
	early, late := r.backup(t), r.backup(t)
	mustStore(t, first, received(reading("d", 2, 2), 0))
	worn := assignment("worn", "S-1", 10, 20)
	try(t, first.Assign(ctx, worn))
	name, _ := vitals.ParseName("erased") // it is a name
	_, err := first.Erase(name)
	try(t, err)
	if _, err := pgstore.Open(ctx, r.opt); err == nil {
		t.Fatal("a second store opened the directory")
	}
	mustClose(t, first)

	check := func(s *pgstore.Store, repairs float64, want ...vitals.Value) {
		t.Helper()
		if err := s.Ready(); err != nil {
			t.Errorf("the store is open, and not ready: %v", err)
		}
		if n := metric(t, s, "pulsegate_postgres_repairs_total", ""); n != repairs {
			t.Errorf("%v repairs, want %v", n, repairs)
		}
		mustHave(t, s, "d", want...)
		mustHave(t, s, "erased", 0)
		if all, err := s.DeviceAssignments(ctx, worn.Device); err != nil || !slices.Equal(all, []storage.Assignment{worn}) {
			t.Errorf("the assignments are %v, %v, want %v", all, err, worn)
		}
		mustNotLose(t, s)
	}
	again := open(t, r.opt)
	check(again, 0, 1, 2)
	mustClose(t, again)

	r.restore(t, early)
	second := open(t, r.opt)
	check(second, 1, 1, 2)
	mustStore(t, second, reading("d", 3, 3))
	r.opt.RememberDir = copyDir(t, r.opt.RememberDir) // as it is when the process is killed now
	mustClose(t, second)
	r.restore(t, late)
	third := open(t, r.opt)
	check(third, 1, 1, 2, 3)
	mustStore(t, third, reading("d", 4, 4))
	mustHave(t, third, "d", 1, 2, 3, 4)
}

// TestRememberDirGone takes the directory away: the store serves on, and says that it remembers in memory only.
func TestRememberDirGone(t *testing.T) {
	t.Parallel()
	o := options(sharedServer(t))
	o.Remember, o.RememberDir = time.Hour, filepath.Join(t.TempDir(), "remembered")
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1))
	if err := s.Memory(); err != nil || metric(t, s, "pulsegate_postgres_remembered_unwritten", "") != 0 {
		t.Errorf("the directory is there, and the store says %v", err)
	}
	try(t, os.RemoveAll(o.RememberDir))
	polltest.Until(t, "the directory is missed", func() bool { return s.Memory() != nil })
	if n := metric(t, s, "pulsegate_postgres_remembered_unwritten", ""); n != 1 {
		t.Errorf("the metric is %v, want 1", n)
	}
	mustStore(t, s, reading("d", 2, 2))
	if err := s.Ready(); err != nil {
		t.Errorf("the store is not ready: %v", err)
	}
}

// TestRepairOldDirectory begins with a copy of the directory from before the last run, and with a database that lacks
// what that copy has: nobody knows what else it lacks.
func TestRepairOldDirectory(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.RememberDir = t.TempDir()
	var lost []pgstore.Loss
	r.opt.OnLoss = func(l pgstore.Loss) { lost = append(lost, l) }
	fromMs := time.Now().UnixMilli()
	first := open(t, r.opt)
	mustStore(t, first, reading("d", 1, 1))
	toMs := time.Now().UnixMilli()
	mustClose(t, first)
	old := copyDir(t, r.opt.RememberDir)
	marks := queryValue[[]int64](t, r.now, "SELECT array_agg(DISTINCT server) FROM "+r.opt.Schema+".marks")
	second := open(t, r.opt)
	mustStore(t, second, reading("d", 2, 2))
	mustClose(t, second)
	execute(t, r.now, "DELETE FROM "+r.opt.Schema+".marks WHERE server = ANY($1)", marks)
	execute(t, r.now, "DELETE FROM "+r.opt.Schema+".readings")
	r.opt.RememberDir = old
	third := open(t, r.opt)
	mustHave(t, third, "d", 1, 0)
	if len(lost) != 1 || lost[0].FromUnixMs < fromMs || lost[0].FromUnixMs > toMs || lost[0].ToUnixMs < toMs {
		t.Errorf("lost %v, want a loss from between %d and %d on, until after that", lost, fromMs, toMs)
	}
	polltest.Until(t, "the loss is reported", func() bool { return third.Degraded() != nil })
}

// TestRepairSigns begins with another order of signs, and with a database that has forgotten them: readings keep
// theirs.
func TestRepairSigns(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.RememberDir = t.TempDir()
	r.opt.Signs = append(ownSigns(), ownSigns()...)
	r.opt.Signs[1].Field = "other"
	none := r.backup(t)
	s := open(t, r.opt)
	e := reading("d", 1, 1)
	e.Reading.Values.Set(vitals.OwnSign(1), 7)
	mustStore(t, s, e)
	mustClose(t, s)
	r.restore(t, none)
	slices.Reverse(r.opt.Signs)
	s = open(t, r.opt)
	records := make([]storage.Record, 2)
	if n, err := s.Scan(context.Background(), storage.Range{Device: e.Reading.Device, ToUnixMs: 10}, records); n != 1 ||
		err != nil {
		t.Fatalf("Scan returned %d, %v", n, err)
	}
	for sg, v := range records[0].Values.All() {
		if d := s.Signs().Of(sg); d.Own() && (d.Field != "other" || v != 7) {
			t.Errorf("the reading has %s %d, want other 7", d.Field, v)
		}
	}
	if !records[0].Values.Equal(&e.Reading.Values) {
		t.Error("the values of the reading differ")
	}
}

// TestRepairDamage begins with a damaged directory: what was in it is reported as lost, by the first run only.
func TestRepairDamage(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.RememberDir = t.TempDir()
	var lost []pgstore.Loss
	r.opt.OnLoss = func(l pgstore.Loss) { lost = append(lost, l) }
	s := open(t, r.opt)
	earlier := r.backup(t)
	fromMs := time.Now().UnixMilli()
	mustStore(t, s, reading("d", 1, 1))
	mustStore(t, s, reading("d", 2, 2))
	mustStore(t, s, reading("d", 3, 3))
	mustClose(t, s)
	files, err := filepath.Glob(filepath.Join(r.opt.RememberDir, "*.history"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	name := files[len(files)-1]
	data, err := os.ReadFile(name)
	try(t, err)
	at := bytes.LastIndexByte(data[:len(data)-60], 'e') // in the frames of the second entry or the third one
	data[at] ^= 1
	try(t, os.WriteFile(name, data, 0o600))
	r.restore(t, earlier)
	s = open(t, r.opt)
	if len(lost) != 1 || lost[0].FromUnixMs > time.Now().UnixMilli() || lost[0].ToUnixMs < fromMs {
		t.Errorf("lost %v, want one loss that ends after %d", lost, fromMs)
	}
	mustClose(t, s)
	s = open(t, r.opt)
	if len(lost) != 1 {
		t.Errorf("lost %v after another restart, want one loss", lost)
	}
	polltest.Until(t, "the loss is reported", func() bool { return s.Degraded() != nil })
}

// TestCopiedDirectory copies the directory of a server that runs, and starts another server with the copy. The copy is
// refused once the first server has stored something, which goes on. A late transaction of an earlier run refuses
// nothing.
func TestCopiedDirectory(t *testing.T) {
	t.Parallel()
	r := startReturning(t)
	r.opt.RememberDir = t.TempDir()
	first := open(t, r.opt)
	mustStore(t, first, reading("d", 1, 1))
	r.opt.RememberDir = copyDir(t, r.opt.RememberDir)
	second := open(t, r.opt)
	mustStore(t, second, reading("d", 2, 2))
	n := int64(2)
	polltest.Until(t, "the copy is refused", func() bool {
		n++
		mustStore(t, first, reading("e", n, 3))
		execute(t, r.now, "UPDATE "+r.opt.Schema+".marks SET at_ms = at_ms + 600000") // as if that were ten minutes later
		return errors.Is(second.Ready(), pgstore.ErrCopied)
	})
	if err := second.Append([]*storage.Entry{reading("d", 1<<20, 1)}); !errors.Is(err, storage.ErrNotWritten) ||
		!errors.Is(err, pgstore.ErrCopied) {
		t.Errorf("the copy returned %v, want ErrCopied, and nothing written", err)
	}
	mustHave(t, second, "d", 1, 2)
	mustClose(t, second)
	mustStore(t, first, reading("d", 1<<20, 1))
	try(t, first.Ready())
	mustClose(t, first)

	alone := open(t, r.opt)
	devices := 2.0
	probe := func() {
		t.Helper()
		devices++
		mustStore(t, alone, reading(fmt.Sprint("device-", devices), 1, 1))
		polltest.Until(t, "the store has looked",
			func() bool { return gauge(t, alone, "pulsegate_store_devices") == devices })
	}
	probe()
	probe()
	execute(t, r.now,
		"UPDATE "+r.opt.Schema+".marks SET number = number + 1, at_ms = 1 WHERE server < (SELECT "+
			"max(server) FROM "+r.opt.Schema+".marks)")
	probe()
	probe()
	try(t, alone.Ready())
	mustNotLose(t, alone)
}
