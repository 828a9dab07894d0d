package history_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

func open(t testing.TB, opt history.Options, dir string) *history.History {
	t.Helper()
	h, err := history.Open(context.Background(), opt, dir, slog.New(slog.DiscardHandler))
	try(t, err)
	t.Cleanup(func() { _ = h.Close() }) // it may be closed already
	return h
}

func start(t testing.TB, h *history.History) {
	t.Helper()
	if h.Start(0) || h.Trouble() != nil {
		t.Fatal("the directory is older than its last run, or is not written:", h.Trouble())
	}
}

func stop(t testing.TB, h *history.History) {
	t.Helper()
	try(t, h.Close())
}

// entries returns what a history has.
func entries(t testing.TB, h *history.History) (all []*history.Entry) {
	t.Helper()
	for e, err := range h.All() {
		try(t, err)
		all = append(all, e)
	}
	return all
}

// group returns readings for Add.
func group(n int, at int64) (all []*storage.Entry) {
	for i := range n {
		r := &vitals.Reading{Device: name(fmt.Sprintf("bed-%04d", i)), TimeUnixMs: at, Gateway: name("ward-7")}
		r.Values.Set(vitals.HeartRate, vitals.Value(6000+i%40*100))
		all = append(all, &storage.Entry{Reading: r, ReceivedUnixMs: at + 7})
	}
	return all
}

func entry(server, number, at int64) history.Entry {
	return history.Entry{Mark: history.Mark{Slot: history.Slot{Server: server, Slot: int16(number % 3)}, Number: number},
		Generation: number / 5, Epoch: 1, UnixMs: at}
}

// A world is a history with a directory, and one without that gets the same.
type world struct {
	t       *testing.T
	opt     history.Options
	dir     string
	h, twin *history.History
	rng     *rand.Rand

	number, at int64
	changes    []history.Change
}

func (w *world) step() {
	switch w.rng.IntN(20) {
	case 0: // the process ends, perhaps without Close
		if dir := w.t.TempDir(); w.rng.IntN(2) == 0 {
			try(w.t, os.CopyFS(dir, os.DirFS(w.dir)))
			w.dir = dir
		}
		stop(w.t, w.h)
		w.h = open(w.t, w.opt, w.dir)
		w.compare()
		start(w.t, w.h)
	case 1:
		w.changes = append(w.changes, history.Change{ID: w.rng.Int64(), Generation: w.number, Kind: 1, Device: name("d"),
			ToMs: w.at, AtMs: w.at})
		if len(w.changes) > 5 {
			w.changes = w.changes[1:]
		}
		w.h.SetChanges(w.changes)
	case 2:
		w.at += w.rng.Int64N(30_000)
	case 3:
		if w.rng.IntN(5) == 0 {
			w.h.Forget()
			w.twin.Forget()
		}
	default:
		w.number++
		w.at += w.rng.Int64N(1000)
		e := entry(w.h.Server(), w.number, w.at)
		if w.rng.IntN(10) == 0 {
			e.Assignments, e.PreviousToMs = []storage.Assignment{{Device: name("a"), Subject: "S", FromUnixMs: 1,
				ToUnixMs: w.at}, {Device: name("a"), Subject: "T", ToUnixMs: 1}}, 5
		}
		readings := group(w.rng.IntN(50), w.at)
		w.h.Add(e, readings)
		w.twin.Add(e, readings)
	}
}

func (w *world) compare() {
	w.t.Helper()
	got, want := entries(w.t, w.h), entries(w.t, w.twin)
	if !slices.EqualFunc(got, want, equal) {
		w.t.Fatalf("the history has %d entries, want %d, or other ones", len(got), len(want))
	}
	for what, maps := range map[string][2]map[history.Slot]int64{"Gone": {w.h.Past().Gone, w.twin.Past().Gone},
		"Last": {w.h.Past().Last, w.twin.Past().Last}} {
		for slot, number := range maps[1] {
			if maps[0][slot] != number {
				w.t.Fatalf("%s has %d for %v, want %d", what, maps[0][slot], slot, number)
			}
		}
	}
	if len(w.h.Past().Damage) != 0 {
		w.t.Fatalf("damage: %v", w.h.Past().Damage)
	}
	for _, c := range w.changes {
		if !slices.Contains(w.h.Changes(), c) {
			w.t.Fatalf("change %v is missing", c)
		}
	}
}

// TestDirectory compares a history that is opened again and again with one that stays in memory.
func TestDirectory(t *testing.T) {
	for seed := range uint64(4) {
		opt := history.Options{For: 10 * time.Second, MaxBytes: 20_000}
		if seed == 0 {
			opt.MaxBytes = 1 << 20 // and so a file has more than one state
		}
		w := &world{t: t, opt: opt, dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 1)), twin: history.New(opt),
			at: time.Now().UnixMilli()}
		w.h = open(t, opt, w.dir)
		start(t, w.h)
		for n := range 300 {
			w.step()
			if n%20 == 0 {
				w.compare()
			}
		}
		w.compare()
		stop(t, w.h)
	}
}

// TestDirectoryIdentity checks the identities of runs, and that a directory that is a copy of an earlier state is
// noticed.
func TestDirectoryIdentity(t *testing.T) {
	opt, dir := history.Options{For: time.Hour, MaxBytes: 1 << 20}, t.TempDir()
	h := open(t, opt, dir)
	start(t, h)
	first := h.Server()
	h.Add(entry(first, 1, 1), group(3, 1))
	h.SetSigns([]byte("signs"))
	if _, err := history.Open(context.Background(), opt, dir, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a directory in use was opened")
	}
	stop(t, h)
	copied := t.TempDir()
	try(t, os.CopyFS(copied, os.DirFS(dir)))
	var servers []int64
	for range 3 {
		h := open(t, opt, dir)
		start(t, h)
		from, to := h.Range()
		if s := h.Server(); s <= first || s < from || s > to || slices.Contains(servers, s) {
			t.Errorf("identity %d after %d, in the range from %d to %d", s, first, from, to)
		}
		servers = append(servers, h.Server())
		if string(h.Signs()) != "signs" {
			t.Errorf("the signs are %q", h.Signs())
		}
		if last := h.Past().Last[entry(first, 1, 1).Slot]; last != 1 || len(entries(t, h)) != 1 {
			t.Errorf("number %d and %d entries of the first run, want 1 and 1", last, len(entries(t, h)))
		}
		stop(t, h)
	}
	h = open(t, opt, copied)
	if !h.Start(servers[2]) {
		t.Error("an earlier state was not noticed")
	}
	if h.Server() <= servers[2] {
		t.Error("an identity was given twice")
	}
}

// written returns a directory with files, and their entries.
func written(t testing.TB, number int) (dir string, files []string, want []*history.Entry) {
	dir = t.TempDir()
	h := open(t, history.Options{For: time.Hour, MaxBytes: 1 << 20}, dir)
	start(t, h)
	h.SetChanges([]history.Change{{ID: 1, Device: name("d")}})
	for n := range number {
		h.Add(entry(h.Server(), int64(n+1), int64(1000+n)), group(2+n%2, int64(n)))
	}
	want = entries(t, h)
	stop(t, h)
	files, err := filepath.Glob(filepath.Join(dir, "*.history"))
	try(t, err)
	return dir, files, want
}

// TestTornEnd cuts the last file at every byte: the entries before that byte are there, and it is not damage.
func TestTornEnd(t *testing.T) {
	dir, files, want := written(t, 4)
	data, err := os.ReadFile(files[len(files)-1])
	try(t, err)
	most := 0
	for n := range len(data) {
		try(t, os.WriteFile(files[len(files)-1], data[:n], 0o600))
		h := open(t, history.Options{For: time.Hour, MaxBytes: 1 << 20}, dir)
		got := entries(t, h)
		if len(got) < most || len(got) >= len(want) || !slices.EqualFunc(got, want[:len(got)], equal) ||
			len(h.Past().Damage) != 0 {
			t.Fatalf("%d of %d bytes: %d entries after %d, damage %v", n, len(data), len(got), most, h.Past().Damage)
		}
		most = len(got)
		stop(t, h)
	}
	if most != len(want)-1 {
		t.Errorf("%d entries without the last byte, want %d", most, len(want)-1)
	}
}

// TestDamagedFile changes every byte of a file. No other entry than those that were added is returned, and what is
// missing is reported.
func TestDamagedFile(t *testing.T) {
	dir, files, want := written(t, 2)
	name := files[len(files)-1]
	data, err := os.ReadFile(name)
	try(t, err)
	for n := range data {
		changed := slices.Clone(data)
		changed[n] ^= 1 << (n % 8)
		try(t, os.WriteFile(name, changed, 0o600))
		h := open(t, history.Options{For: time.Hour, MaxBytes: 1 << 20}, dir)
		got := entries(t, h)
		if len(got) >= len(want) || !slices.EqualFunc(got, want[:len(got)], equal) {
			t.Fatalf("byte %d: %d entries, or others", n, len(got))
		}
		d := h.Past().Damage
		if len(d) != 1 || len(got) > 0 && (d[0].Server != want[0].Server || d[0].FromUnixMs != got[len(got)-1].UnixMs) {
			t.Fatalf("byte %d: %d entries, damage %v", n, len(got), d)
		}
		start(t, h)
		stop(t, h)
		again := open(t, history.Options{For: time.Hour, MaxBytes: 1 << 20}, dir)
		if !slices.Equal(again.Past().Damage, d) || len(entries(t, again)) != len(got) {
			t.Fatalf("byte %d: another run has %d entries, damage %v, want %d, %v", n, len(entries(t, again)),
				again.Past().Damage, len(got), d)
		}
		stop(t, again)
		later, err := filepath.Glob(filepath.Join(dir, "*.history"))
		try(t, err)
		for _, f := range later {
			try(t, os.Remove(f))
		}
	}
}

// TestDirectoryFails takes the directory away for a while: the history goes on in memory, and then writes everything
// again.
func TestDirectoryFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "remember")
	opt := history.Options{For: time.Minute, MaxBytes: 1 << 20}
	var want []*history.Entry
	var last map[history.Slot]int64
	synctest.Test(t, func(t *testing.T) {
		h := open(t, opt, dir)
		start(t, h)
		add := func(number int64) { h.Add(entry(h.Server(), number, time.Now().UnixMilli()), group(10, number)) }
		add(1)
		try(t, os.RemoveAll(dir))
		time.Sleep(20 * time.Second) // a further file cannot be made
		synctest.Wait()
		add(2)
		try(t, os.Mkdir(dir, 0o700))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		add(3)
		want, last = entries(t, h), h.Past().Last
		stop(t, h)
	})
	if len(want) != 3 {
		t.Fatalf("the history has %d entries, want 3", len(want))
	}
	h := open(t, opt, dir)
	if got := entries(t, h); !slices.EqualFunc(got, want, equal) || !maps.Equal(h.Past().Last, last) ||
		len(h.Past().Damage) != 0 {
		t.Errorf("%d entries, last ones %v, damage %v; want %d, %v, none", len(got), h.Past().Last, h.Past().Damage,
			len(want), last)
	}
}

// A stallingFile waits before it writes or syncs, while there is a channel that is open.
type stallingFile struct {
	history.File
	writes, syncs *atomic.Pointer[chan struct{}]
}

func await(c *chan struct{}) {
	if c != nil {
		<-*c
	}
}

func (f stallingFile) Write(p []byte) (int, error) {
	await(f.writes.Load())
	return f.File.Write(p)
}

func (f stallingFile) Sync() error {
	await(f.syncs.Load())
	return f.File.Sync()
}

// TestDirectoryStalls lets the disk stop to answer writes, and then syncs: nobody waits for it for longer than two
// seconds, and all of a stalled disk for no longer than one does. When it answers again, it gets what it lacks.
func TestDirectoryStalls(t *testing.T) {
	for _, what := range []string{"writes", "syncs"} {
		t.Run(what, func(t *testing.T) {
			dir, killed, opt := t.TempDir(), t.TempDir(), history.Options{For: time.Hour, MaxBytes: 1 << 20}
			var want []*history.Entry
			synctest.Test(t, func(t *testing.T) {
				var f stallingFile
				f.writes, f.syncs = new(atomic.Pointer[chan struct{}]), new(atomic.Pointer[chan struct{}])
				h := open(t, opt, dir)
				history.Intercept(h, func(file history.File) history.File { return stallingFile{file, f.writes, f.syncs} })
				start(t, h)
				var number atomic.Int64
				add := func() {
					n := number.Add(1)
					h.Add(entry(h.Server(), n, time.Now().UnixMilli()), group(10, n))
				}
				add()
				answers := make(chan struct{})
				map[string]*atomic.Pointer[chan struct{}]{"writes": f.writes, "syncs": f.syncs}[what].Store(&answers)
				began := time.Now()
				var adding sync.WaitGroup
				for range 5 {
					adding.Go(add)
				}
				adding.Wait()
				add()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("Add took %v", took)
				}
				time.Sleep(20 * time.Second)
				began = time.Now()
				add()
				h.SetChanges([]history.Change{{ID: 1}})
				if took := time.Since(began); took > 0 || h.Trouble() == nil {
					t.Errorf("Add took %v, and the trouble is %v", took, h.Trouble())
				}
				close(answers)
				time.Sleep(20 * time.Second)
				if h.Trouble() != nil {
					t.Errorf("the disk answers, and the trouble is %v", h.Trouble())
				}
				add()
				want = entries(t, h)
				try(t, os.CopyFS(killed, os.DirFS(dir)))
				stop(t, h)
			})
			for _, dir := range []string{dir, killed} {
				h := open(t, opt, dir)
				if got := entries(t, h); len(want) != 9 || !slices.EqualFunc(got, want, equal) || len(h.Changes()) != 1 ||
					len(h.Past().Damage) != 0 {
					t.Errorf("%d entries, %d changes, damage %v; want %d, which are 9, 1, none", len(got), len(h.Changes()),
						h.Past().Damage, len(want))
				}
				stop(t, h)
			}
		})
	}
}

// TestDirectoryBounded adds for long: the files do not take much more than what is remembered.
func TestDirectoryBounded(t *testing.T) {
	dir := t.TempDir()
	h := open(t, history.Options{For: time.Hour, MaxBytes: 1 << 19}, dir)
	start(t, h)
	for n := range int64(1500) {
		h.Add(entry(h.Server(), n+1, n), group(300, n))
		var size int64
		files, err := os.ReadDir(dir)
		try(t, err)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				size += info.Size()
			}
		}
		if kept, _ := h.Stats(); kept > 1<<19 || size > 1<<19+17<<16 {
			t.Fatalf("after %d transactions %d bytes are remembered, and the files have %d", n+1, kept, size)
		}
	}
	if len(h.Past().Gone) == 0 {
		t.Error("nothing has gone")
	}
	stop(t, h)
}

// TestAddAllocs checks that the number of allocations of Add does not depend on that of readings.
func TestAddAllocs(t *testing.T) {
	h := open(t, history.Options{For: time.Hour, MaxBytes: 1 << 20}, t.TempDir())
	start(t, h)
	readings, number := fleet(1000, 1000), int64(0)
	allocs := testing.AllocsPerRun(100, func() {
		number++
		h.Add(entry(h.Server(), number, 1), readings)
	})
	if allocs > 20 {
		t.Errorf("%v allocations for 1,000 readings, want at most 20", allocs)
	}
	stop(t, h)
}

// FuzzFile opens a directory with any bytes as its last file.
func FuzzFile(f *testing.F) {
	_, files, _ := written(f, 3)
	data, err := os.ReadFile(files[0])
	try(f, err)
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		try(t, os.WriteFile(filepath.Join(dir, "000000000001.history"), history.Summed(data), 0o600))
		opt := history.Options{For: time.Hour, MaxBytes: 1 << 20}
		h := open(t, opt, dir)
		want := entries(t, h)
		start(t, h)
		last, changes := h.Past().Last, h.Changes()
		stop(t, h)
		again := open(t, opt, dir)
		if got := entries(t, again); !slices.EqualFunc(got, want, equal) || !maps.Equal(again.Past().Last, last) ||
			!slices.Equal(again.Changes(), changes) {
			t.Errorf("another run has %d entries, %v, %v, want %d, %v, %v", len(got), again.Past().Last, again.Changes(),
				len(want), last, changes)
		}
		stop(t, again)
	})
}
