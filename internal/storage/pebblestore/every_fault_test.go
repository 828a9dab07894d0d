package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
	"github.com/pulsegate/pulsegate/vitals"
)

// A valueID identifies one value.
type valueID struct {
	device     vitals.Name
	timeUnixMs int64
	sign       vitals.Sign
}

// A valueLedger records the values that were sent and those that were acknowledged.
type valueLedger struct {
	mu    sync.Mutex // of sent and acked, while append runs
	sent  map[valueID]map[vitals.Value]bool
	acked map[valueID]vitals.Value

	// leaving holds acknowledged values that a removal may have removed. Each reading must
	// be stored as a whole or not at all. If one is true, all of them must be stored or
	// none; if gone is true, none; if begun is true, none after the store was opened again.
	leaving          map[valueID]vitals.Value
	one, begun, gone bool

	shown map[valueID]vitals.Value // the stored values, set by holds
}

func newValueLedger() *valueLedger {
	return &valueLedger{sent: map[valueID]map[vitals.Value]bool{}, acked: map[valueID]vitals.Value{}}
}

// clone returns a copy of a ledger without removals.
func (l *valueLedger) clone() *valueLedger {
	c := newValueLedger()
	for id, values := range l.sent {
		c.sent[id] = maps.Clone(values) // cases run in parallel, and add to it
	}
	maps.Copy(c.acked, l.acked)
	return c
}

// at returns a copy of a disk as a crash leaves it now, and a ledger with what must be on it: what was
// acknowledged before the crash, and no value that was sent afterwards.
func (l *valueLedger) at(disk *vfs.MemFS) (*vfs.MemFS, *valueLedger) {
	l.mu.Lock()
	then := &valueLedger{acked: maps.Clone(l.acked), leaving: l.leaving, one: l.one, begun: l.begun, gone: l.gone}
	l.mu.Unlock()
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	l.mu.Lock()
	defer l.mu.Unlock()
	then.sent = maps.Clone(l.sent)
	for id, values := range l.sent {
		then.sent[id] = maps.Clone(values)
	}
	return crashed, then
}

// leave records that a removal of values begins.
func (l *valueLedger) leave(which func(valueID) bool) {
	l.leaving = map[valueID]vitals.Value{}
	for id, v := range l.acked {
		if which(id) {
			l.leaving[id] = v
			delete(l.acked, id)
		}
	}
}

// stay records that a removal has removed nothing.
func (l *valueLedger) stay() {
	maps.Copy(l.acked, l.leaving)
	l.leaving = nil
}

// left compares the values of a removal with the stored ones.
func (l *valueLedger) left(shown map[valueID]vitals.Value) error {
	values, stayed := map[valueID]int{}, map[valueID]int{} // by reading: with the first sign
	all := 0
	for id, want := range l.leaving {
		reading := valueID{id.device, id.timeUnixMs, 0}
		values[reading]++
		if got, ok := shown[id]; ok {
			if got != want {
				return fmt.Errorf("a value of %s at %d has changed", id.device, id.timeUnixMs)
			}
			stayed[reading]++
			all++
		}
	}
	for reading, n := range stayed {
		if n != values[reading] {
			return fmt.Errorf("of the reading of %s at %d, %d of %d values are stored", reading.device, reading.timeUnixMs, n,
				values[reading])
		}
	}
	if all > 0 && (l.gone || l.begun) || l.one && all > 0 && all < len(l.leaving) {
		return fmt.Errorf("%d of %d removed values are stored", all, len(l.leaving))
	}
	return nil
}

// append appends a group and records the values that were acknowledged.
func (l *valueLedger) append(s storage.Store, group []*storage.Entry) error {
	each := func(e *storage.Entry, note func(valueID, vitals.Value)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for sign, v := range e.Reading.Values.All() {
			note(valueID{e.Reading.Device, e.Reading.TimeUnixMs, sign}, v)
		}
	}
	for _, e := range group {
		each(e, func(id valueID, v vitals.Value) {
			if l.sent[id] == nil {
				l.sent[id] = map[vitals.Value]bool{}
			}
			l.sent[id][v] = true
		})
	}
	if err := s.Append(group); err != nil {
		return err
	}
	for _, e := range group {
		if e.Outcome == storage.Stored || e.Outcome == storage.Completed || e.Outcome == storage.Duplicate {
			each(e, func(id valueID, v vitals.Value) { l.acked[id] = v })
		}
	}
	return nil
}

// holds compares all values in s with the ledger.
func (l *valueLedger) holds(s storage.Store) error {
	shown := map[valueID]vitals.Value{}
	l.shown = shown
	devices := make([]storage.Device, 1000)
	n, err := s.Devices(context.Background(), vitals.Name{}, devices)
	if err != nil {
		return err
	}
	records := make([]storage.Record, 10_000)
	for _, d := range devices[:n] {
		n, err := s.Scan(context.Background(), storage.Range{Device: d.Name, ToUnixMs: 1 << 62}, records)
		if err != nil {
			return err
		}
		for _, r := range records[:n] {
			for sign, v := range r.Values.All() {
				shown[valueID{d.Name, r.TimeUnixMs, sign}] = v
			}
		}
	}
	for id, want := range l.acked {
		if got, ok := shown[id]; !ok || got != want {
			return fmt.Errorf("of %d acknowledged values, that of %s at %d is gone or has changed; %d are stored", len(l.acked),
				id.device, id.timeUnixMs, len(shown))
		}
	}
	for id, v := range shown {
		if !l.sent[id][v] {
			return fmt.Errorf("a value of %s at %d is stored but was not sent", id.device, id.timeUnixMs)
		}
	}
	return l.left(shown)
}

// holdsIn is holds for the store in dir, opened without faults.
func (l *valueLedger) holdsIn(fs vfs.FS, dir string) error {
	s, err := pebblestore.Open(dir, pebblestore.Options{FS: fs, MinFreeBytes: -1})
	if err != nil {
		return err
	}
	if err := errors.Join(l.holds(s), s.Close()); err != nil || !l.one {
		return err
	}
	// If the erasure has removed the values, no file may contain them.
	for id := range l.leaving {
		if _, ok := l.shown[id]; ok {
			return nil
		}
	}
	if found := tracesOf(fs, dir, oldTraces()); len(found) > 0 {
		return fmt.Errorf("%v hold traces of what was erased", found)
	}
	return nil
}

// An nthFault fails the n-th operation of any kind.
type nthFault struct {
	n    int64
	seen atomic.Int64
	at   atomic.Pointer[string] // description of the failed operation
}

func (f *nthFault) String() string { return "nth operation" }

func (f *nthFault) MaybeError(op errorfs.Op) error {
	if f.seen.Add(1) != f.n {
		return nil
	}
	err := []error{syscall.EIO, syscall.EMFILE, syscall.ENOMEM}[f.n%3]
	at := fmt.Sprintf("operation %d, %v of %s: %v", f.n, op.Kind, op.Path, err)
	f.at.Store(&at)
	return err
}

// A faultStore is a store on a disk of which one operation fails, with a ledger of its
// readings. After that operation, the disk works and everything acknowledged must be
// stored.
type faultStore struct {
	disk   *vfs.MemFS
	ledger *valueLedger
	fault  *nthFault
}

// fs returns the disk, with the fault.
func (b *faultStore) fs() vfs.FS { return inject(b.disk, b.fault) }

func (b *faultStore) options() pebblestore.Options {
	return withSmallWindows(pebblestore.Options{FS: b.fs(), OnFatal: func(text string) {
		b.reportFatal(text)
		os.Exit(3)
	}})
}

// withSmallWindows returns o with small memtables, windows and segments, and a sign of the user's own.
func withSmallWindows(o pebblestore.Options) pebblestore.Options {
	o.MinFreeBytes, o.MemTableBytes, o.WindowRows, o.Signs = -1, 64<<10, 400, []vitals.Definition{drift()}
	return pebblestore.WithSegmentRows(o, 20)
}

// reportFatal is called when the process is about to end. Groups may be appended before it ends.
func (b *faultStore) reportFatal(text string) {
	crashed, ledger := b.ledger.at(b.disk)
	err := (&faultStore{ledger: ledger}).verify(crashed)
	if err == nil && (strings.Contains(text, "corrupt") || !strings.Contains(text, "acknowledged")) {
		err = fmt.Errorf("OnFatal was called with %q", text)
	}
	if err != nil {
		fmt.Printf("problem: %s: %v\n", *b.fault.at.Load(), err)
	}
	fmt.Printf("ended %d\n", b.fault.n)
}

// verify verifies the store without faults.
func (b *faultStore) verify(disk *vfs.MemFS) error {
	if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: disk}); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	if err := b.ledger.holdsIn(disk, dataDir); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	return nil
}

// write appends groups until one fails.
func (b *faultStore) write(s storage.Store, groups int) (err error) {
	for k := int64(0); k < int64(groups) && err == nil; k++ {
		group := shifted(manyEntries(150), 1000*k)
		with(group[0], vitals.OwnSign(0), vitals.Value(-k))
		for _, e := range group {
			e.Reading.Gateway = mustName("a-gateway-with-a-long-name-to-fill-the-memtables-sooner")
		}
		if k > 0 {
			group = append(group, entry("dev-1", 1000*k-500, 1), with(entry("dev-2", 1000*(k-1)+3, 2), vitals.SpO2, 5))
		}
		err = b.ledger.append(s, group)
	}
	return err
}

// wasClosed returns the disk of a store that was closed, and wasKilled that of one that was killed.
func wasClosed() (*vfs.MemFS, *valueLedger) { return prepare(true) }
func wasKilled() (*vfs.MemFS, *valueLedger) { return prepare(false) }

func prepare(closed bool) (*vfs.MemFS, *valueLedger) {
	b := &faultStore{disk: vfs.NewCrashableMem(), ledger: newValueLedger()}
	for range 2 {
		s, err := pebblestore.Open(dataDir, withSmallWindows(pebblestore.Options{FS: b.disk}))
		if err == nil {
			err = b.write(s, 12)
		}
		if err != nil {
			panic(err)
		}
		crashed := b.disk.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Close(); err != nil {
			panic(err)
		}
		if !closed {
			b.disk = crashed
		}
	}
	return b.disk, b.ledger
}

// faultScenes are calls on a disk of which one operation fails. Each returns the resulting
// error, and leaves the store closed.
var faultScenes = map[string]struct {
	disk func() (*vfs.MemFS, *valueLedger)
	call func(b *faultStore) error
}{
	"open after a clean stop": {wasClosed, openClose},
	"open after a crash":      {wasKilled, openClose},
	"append": {wasClosed, func(b *faultStore) error {
		s, begin, err := b.openFirst()
		if err != nil {
			return err
		}
		begin()
		err = b.write(s, 14)
		return errors.Join(err, pebblestore.Flush(s), s.Close())
	}},
	"erase": {wasClosed, func(b *faultStore) error {
		s, begin, err := b.openFirst()
		for k := int64(0); k < 6 && err == nil; k++ {
			group := shifted(manyEntries(50), 100_000+1000*k)
			for i := range int64(20) {
				group = append(group, erasedEntry(20*k+i))
			}
			if err = b.ledger.append(s, group); err == nil && k == 2 {
				err = pebblestore.Flush(s)
			}
		}
		if err != nil {
			return err
		}
		b.ledger.leave(func(id valueID) bool { return id.device == mustName(erasedDevice) })
		b.ledger.one = true
		begin()
		switch _, err = s.Erase(mustName(erasedDevice)); {
		case err == nil:
			b.ledger.gone = true
			if found := tracesOf(b.disk, dataDir, append(oldTraces(), erasedDevice[:12])); len(found) > 0 {
				fmt.Printf("problem: after the erasure, %v hold traces\n", found)
			}
		case errors.Is(err, storage.ErrUnfinished):
			b.ledger.begun = true
		default:
			b.ledger.stay()
			b.ledger.one = false
		}
		return errors.Join(err, b.ledger.append(s, []*storage.Entry{newEntry(1), newEntry(2)}), s.Close())
	}},
	"expire": {wasClosed, func(b *faultStore) error {
		const before = 1_900_000_000_000
		s, begin, err := b.openFirst()
		if err == nil {
			err = b.ledger.append(s, shifted(manyEntries(30), before)) // 20 devices have only expired readings
		}
		if err != nil {
			return err
		}
		b.ledger.leave(func(id valueID) bool { return id.timeUnixMs < before })
		begin()
		_, err = s.Expire(context.Background(), before, math.MaxInt64)
		b.ledger.gone = err == nil
		return errors.Join(err, b.ledger.append(s, shifted(manyEntries(50), before+1000)), s.Close())
	}},
	"tidy": {wasClosed, func(b *faultStore) error {
		s, begin, err := b.openFirst()
		for k := int64(0); k < 4 && err == nil; k++ {
			if err = b.ledger.append(s, shifted(manyEntries(50), 100_000+1000*k)); err == nil {
				err = errors.Join(pebblestore.Seal(s), pebblestore.Flush(s))
			}
		}
		if err != nil {
			return err
		}
		begin()
		err = pebblestore.TidyPass(s)
		if degraded := s.Degraded(); degraded != nil {
			fmt.Printf("problem: a fault is reported as damage: %v\n", degraded)
		}
		return errors.Join(err, b.ledger.append(s, []*storage.Entry{newEntry(1), newEntry(2)}), s.Close())
	}},
	"check": {wasKilled, func(b *faultStore) error {
		_, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: b.fs()})
		return err
	}},
	"backup of a stopped store, and restoration": {wasClosed, func(b *faultStore) error {
		fs := b.fs()
		copied, err := backup.Stopped(context.Background(), dataDir, fs)
		if err != nil {
			return err
		}
		var archive bytes.Buffer
		_, err = copied.WriteTo(&archive)
		if err = errors.Join(err, copied.Close()); err != nil {
			return err
		}
		if _, err := pebblestore.ReceiveBackup(context.Background(), &archive, "copy", backup.Options{FS: fs}); err != nil {
			return err
		}
		if _, err := pebblestore.Restore(context.Background(), "copy", "restored", backup.Options{FS: fs}); err != nil {
			return err
		}
		return b.ledger.holdsIn(b.disk, "restored")
	}},
	"backup of a running store": {wasClosed, func(b *faultStore) error {
		s, begin, err := b.openFirst()
		if err != nil {
			return err
		}
		begin()
		sent, err := s.Backup()
		if err == nil {
			var archive bytes.Buffer
			_, err = sent.WriteTo(&archive)
			err = errors.Join(err, sent.Close())
			if err == nil {
				copied := vfs.NewMem()
				_, err = pebblestore.ReceiveBackup(context.Background(), &archive, dataDir, backup.Options{FS: copied})
			}
		}
		return errors.Join(err, s.Close())
	}},
}

// openFirst opens the store of b without faults. Operations are counted, and one fails, only after begin is
// called.
func (b *faultStore) openFirst() (s *pebblestore.Store, begin func(), err error) {
	var begun atomic.Bool
	o := b.options()
	o.FS = inject(b.disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !begun.Load() {
			return nil
		}
		return b.fault.MaybeError(op)
	}))
	s, err = pebblestore.Open(dataDir, o)
	return s, func() { begun.Store(true) }, err
}

func openClose(b *faultStore) error {
	s, err := pebblestore.Open(dataDir, b.options())
	if err != nil {
		return err
	}
	return errors.Join(b.ledger.holds(s), s.Close())
}

// maxTried bounds the number of operations that one process fails, and so its duration.
const maxTried = 10

// failEach fails the operations of a scene in turn. arg has the number of the first, the
// step to the next, and the scene's name. The process ends if a failure ends it.
func failEach(arg string) {
	number, rest, _ := strings.Cut(arg, " ")
	step, name, _ := strings.Cut(rest, " ")
	n, _ := strconv.ParseInt(number, 10, 64)
	stride, _ := strconv.ParseInt(step, 10, 64)
	scene, ok := faultScenes[name]
	if !ok {
		fmt.Printf("problem: no scene %q\n", name)
		return
	}
	disk, ledger := scene.disk()
	for tried := 0; ; n += stride {
		if tried++; tried > maxTried {
			fmt.Printf("paused %d\n", n-stride)
			return
		}
		b := &faultStore{disk: disk.CrashClone(vfs.CrashCloneCfg{}), ledger: ledger.clone(), fault: &nthFault{n: n}}
		err := scene.call(b)
		at := b.fault.at.Load()
		if at == nil {
			if err != nil {
				fmt.Printf("problem: without a fault: %v\n", err)
			}
			fmt.Printf("done %d\n", n)
			return
		}
		if errors.Is(err, storage.ErrCorrupt) {
			fmt.Printf("problem: %s is reported as damage: %v\n", *at, err)
		}
		for what, disk := range map[string]*vfs.MemFS{
			"": b.disk, ", then a loss of power": b.disk.CrashClone(vfs.CrashCloneCfg{}),
		} {
			if err := b.verify(disk); err != nil {
				fmt.Printf("problem: %s%s: %v\n", *at, what, err)
			}
		}
	}
}

// TestEveryFault fails the n-th operation on files, for some n in each scene: reads,
// writes, syncs, changes of names. An error of the operating system must not be reported as
// damage. When the disk works again, all acknowledged readings must be stored, and no
// removed ones. The next start must finish an erasure that has begun, and no file may then
// contain what it removed.
//
// TestEveryFaultExhaustive (make exhaustive) tests every n.
func TestEveryFault(t *testing.T) {
	long(t)
	t.Parallel()
	failAll(t, 40)
}

// failAll fails every stride-th operation of each scene, from a random one on.
func failAll(t *testing.T, stride int) {
	for name := range faultScenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := 0
			for n := 1 + rand.IntN(stride); ; {
				out, err := child(t, "fail each operation", fmt.Sprintf("%d %d %s", n, stride, name)).Output()
				next := 0
				for line := range strings.Lines(string(out)) {
					line = strings.TrimSpace(line)
					switch number, ok := strings.CutPrefix(line, "ended "); {
					case strings.HasPrefix(line, "problem: "):
						t.Error(line)
					case strings.HasPrefix(line, "done "):
						t.Logf("%s operations, %d ended the process", line[5:], ended)
						return
					case ok:
						if next, _ = strconv.Atoi(number); next < n {
							t.Fatalf("the process printed %q", line)
						}
						next += stride
						ended++
					case strings.HasPrefix(line, "paused "):
						n, _ := strconv.Atoi(line[7:])
						next = n + stride
					}
				}
				if next == 0 {
					t.Fatalf("from operation %d on, the process ended with %v and printed %s", n, err, out)
				}
				n = next
			}
		})
	}
}
