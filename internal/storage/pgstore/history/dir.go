package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// A directory keeps a history beyond the end of the process. Its files have frames, in the order of acknowledgement.
// The first frame of a file is a state: what is known besides the entries. A frame is written before its transaction is
// answered, and synced within a second.
//
// One goroutine writes all files. Others wait for it, without a lock and not for long: a disk that does not answer must
// not stop the server. What was not written meanwhile is written later, if it is still kept.
type directory struct {
	path   string
	unlock func()
	log    *slog.Logger
	create func(name string, flag int) (file, error)

	id, run int64 // random number of the directory, and number of this run

	// Of the goroutine that writes, once there is one.
	file     file
	size     int64  // bytes of file
	dirty    bool   // file has frames that are not synced
	full     []file // earlier ones, which are to be synced and closed
	segments []segment
	number   int64 // of the last file
	buf      []byte

	// Guarded by the mutex of the history.
	next    int64         // number of entries, of those that were ever added, that were written
	changes []Change      // to be written
	begins  bool          // another file is to begin
	whole   bool          // with everything: the files lack something
	asked   int64         // number of the last request to write
	done    int64         // number of the last one that was carried out
	turn    chan struct{} // closed when done or trouble changes; nil means that Start was not called
	broken  bool          // a write has failed; nothing is written until everything can be
	trouble error         // why nobody waits for the goroutine; nil means the files have everything

	wake  chan struct{} // there is something to write
	stop  context.CancelFunc
	ended chan error
}

// A file is an [os.File].
type file interface {
	Write(p []byte) (int, error)
	Sync() error
	Close() error
}

// A segment is a file.
type segment struct {
	number int64
	last   int64 // entries that were added before it was closed
}

// A Damage is what a file could not be read of.
type Damage struct {
	Server               int64 // whose run has written it; 0: nobody knows
	FromUnixMs, ToUnixMs int64 // when that was acknowledged
}

// Parts of the identity of a run: 31 bits of the directory, 16 of the number of the run, and 16 random ones, by which
// copies of a directory differ.
const (
	runBits    = 16
	randomBits = 16
	maxRuns    = 1<<runBits - 1
)

// maxEarlierRuns is the number of earlier runs that a directory knows, at least.
const maxEarlierRuns = 64

const (
	fileMagic = "PGHIST\x00\x03"
	lockName  = "lock"
	suffix    = ".history"

	unfinished = ".tmp"

	// Length of the payload, CRC-32C of these 4 bytes, CRC-32C of the payload; all are little-endian.
	frameHead = 12
)

// Kinds of frames.
const (
	stateFrame  = 's'
	entryFrame  = 'e'
	changeFrame = 'c'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Open returns a History that is also kept in a directory, and reads what earlier runs have left there. Start must be
// called before Add.
func Open(ctx context.Context, opt Options, path string, log *slog.Logger) (*History, error) {
	h := New(opt)
	d := &directory{path: path, log: log, create: create, wake: make(chan struct{}, 1), ended: make(chan error, 1)}
	if err := d.open(ctx, h); err != nil {
		return nil, fmt.Errorf("open directory of what is remembered: %w", err)
	}
	h.dir = d
	return h, nil
}

func create(name string, flag int) (file, error) {
	return os.OpenFile(name, flag|os.O_CREATE|os.O_WRONLY, 0o600)
}

func (d *directory) open(ctx context.Context, h *History) (err error) {
	if d.path, err = sharedfile.PrivateDir(d.path); err != nil {
		return err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if d.unlock, err = sharedfile.Lock(ctx, filepath.Join(d.path, lockName)); err != nil {
		return err
	}
	if err = d.load(h); err != nil {
		d.unlock()
	}
	return err
}

func (d *directory) name(number int64) string {
	return filepath.Join(d.path, fmt.Sprintf("%012d%s", number, suffix))
}

// Start begins a run of the directory. latest is the highest identity, of those that Range returns, that the database
// knows; 0 means none. older reports whether a later run than those of the directory is among them: the directory is a
// copy of an earlier state, or could not be written.
func (h *History) Start(latest int64) (older bool) {
	d := h.dir
	h.mu.Lock()
	if run := latest >> randomBits & maxRuns; latest != 0 && run > d.run {
		older, d.run = true, run
	}
	if d.id == 0 || d.run == maxRuns {
		d.id, d.run = 1+rand.Int64N(1<<31-1), 0
	}
	d.run++
	h.server = d.id<<(runBits+randomBits) | d.run<<randomBits | rand.Int64N(1<<randomBits)
	d.forgetRuns(h)
	var ctx context.Context
	ctx, d.stop = context.WithCancel(context.Background())
	d.turn, d.whole = make(chan struct{}), true
	go func() { d.ended <- d.loop(ctx, h) }()
	request := d.ask()
	h.mu.Unlock()
	d.wait(h, request, wholeWithin)
	return older
}

// Range returns the lowest and the highest identity that runs of the directory may have.
func (h *History) Range() (from, to int64) {
	from = h.dir.id << (runBits + randomBits)
	return from, from + 1<<(runBits+randomBits) - 1
}

// forgetRuns forgets the slots of the earliest runs, of which there are no entries.
func (d *directory) forgetRuns(h *History) {
	var servers []int64
	for slot := range h.last {
		servers = append(servers, slot.Server)
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	for _, server := range servers[:max(0, len(servers)-maxEarlierRuns)] {
		if slices.ContainsFunc(h.kept, func(e encoded) bool { return e.entry.Server == server }) {
			continue
		}
		for slot := range h.last {
			if slot.Server == server {
				delete(h.last, slot)
				delete(h.first, slot)
				delete(h.gone, slot)
			}
		}
	}
}

// Times of the goroutine that writes.
const (
	syncEvery   = time.Second
	syncWithin  = 10 * time.Second
	retryEvery  = 10 * time.Second
	writeWithin = 2 * time.Second
	wholeWithin = 10 * time.Second
)

const (
	// number from which on files without kept entries go at once, and not only when later ones are synced
	maxFiles     = 16
	minFileBytes = 1 << 16 // size from which on a file may be followed by another one
	maxBufBytes  = 1 << 20 // of a buffer that is kept
)

var (
	errWriteTime = errors.New("a write takes too long")
	errSyncTime  = errors.New("a sync takes too long")
)

// ask makes the goroutine write what is new, and returns the number of the request. The caller has the mutex.
func (d *directory) ask() int64 {
	d.asked++
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return d.asked
}

// wait waits until a request is carried out, or cannot be.
func (d *directory) wait(h *History, request int64, within time.Duration) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for late := false; ; {
		h.mu.Lock()
		if late && d.done < request {
			d.fail(errWriteTime)
		}
		turn, ended := d.turn, d.done >= request || d.trouble != nil
		h.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-turn:
		case <-timer.C:
			late = true
		}
	}
}

// fail notes that the directory cannot be written. The caller has the mutex.
func (d *directory) fail(err error) {
	if d.trouble == nil {
		d.log.Error("what is remembered is in memory only: its directory cannot be written", "error", err)
	}
	d.trouble = err
	d.endTurn()
}

func (d *directory) endTurn() {
	close(d.turn)
	d.turn = make(chan struct{})
}

// A job is what is to be written.
type job struct {
	request int64
	head    []byte // the state with which a file begins; nil means none does
	whole   bool   // that file stands for all files before it
	entries []encoded
	changes []Change
	from    int64 // entries that were written before
	first   int64 // entries that were added before the first one that is kept
}

// take returns what is to be written, or nil. The caller has the mutex.
func (d *directory) take(h *History) *job {
	first := h.added - int64(len(h.kept))
	if d.whole {
		d.next, d.begins = first, true
	}
	if d.next < first { // some has gone before it was written, which the state says
		d.next, d.begins = first, true
	}
	if !d.begins && d.next == h.added && len(d.changes) == 0 {
		d.done = d.asked
		return nil
	}
	j := &job{request: d.asked, whole: d.whole, entries: slices.Clone(h.kept[d.next-first:]), changes: d.changes,
		from: d.next, first: first}
	if d.begins {
		j.head, j.changes = appendState(nil, d.state(h, d.whole)), nil
	}
	d.next, d.changes, d.begins, d.whole = h.added, nil, false, false
	return j
}

// write writes a job.
func (d *directory) write(j *job) error {
	b := d.buf[:0]
	if j.head != nil {
		b = appendFrame(append(b, fileMagic...), func(b []byte) []byte { return append(b, j.head...) })
	}
	for i := range j.entries {
		b = appendFrame(b, func(b []byte) []byte { return appendEntry(b, &j.entries[i]) })
	}
	for i := range j.changes {
		b = appendFrame(b, func(b []byte) []byte { return appendChange(append(b, changeFrame), &j.changes[i]) })
	}
	if d.buf = b; cap(b) > maxBufBytes {
		d.buf = nil
	}
	d.dirty = true
	if j.head == nil {
		d.size += int64(len(b))
		_, err := d.file.Write(b)
		return err
	}
	return d.begin(j, b)
}

// begin begins a file.
func (d *directory) begin(j *job, data []byte) error {
	name, write := d.name(d.number+1), d.writeNew
	if j.whole {
		write = d.writeWhole
	}
	f, err := write(name, data)
	if err != nil {
		return err
	}
	if d.file != nil {
		d.full = append(d.full, d.file)
	}
	if n := len(d.segments); n > 0 {
		d.segments[n-1].last = j.from
	}
	if j.whole {
		for i := range d.segments {
			d.segments[i].last = 0
		}
		for _, f := range d.full {
			_ = f.Close() // a write may have failed, which does not matter any more
		}
		d.full = nil
	}
	d.number++
	d.segments = append(d.segments, segment{number: d.number})
	d.file, d.size = f, int64(len(data))
	if j.whole || len(d.segments) > maxFiles {
		d.removeOld(j.first)
	}
	return nil
}

func (d *directory) writeNew(name string, data []byte) (file, error) {
	f, err := d.create(name, os.O_EXCL)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(data); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return f, nil
}

// writeWhole writes a file that has its name only when it is complete: the ones before it do not count any more.
func (d *directory) writeWhole(name string, data []byte) (file, error) {
	tmp := name + unfinished
	f, err := d.create(tmp, os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(tmp, name)
	}
	if err == nil {
		err = sharedfile.SyncDir(d.path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeOld removes the files of which no entry is kept.
func (d *directory) removeOld(first int64) {
	for len(d.segments) > 1 && d.segments[0].last <= first {
		if err := os.Remove(d.name(d.segments[0].number)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return // it is tried again
		}
		d.segments = d.segments[1:]
	}
}

// loop writes what it is asked to, syncs the files, begins others after a while, and after a failure writes everything
// again.
func (d *directory) loop(ctx context.Context, h *History) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	begun, retried := time.Now(), time.Now()
	var syncing time.Time // since when; zero means no sync is under way
	synced := make(chan error, 1)
	for {
		select {
		case <-d.wake:
		case <-tick.C:
			h.mu.Lock()
			switch {
			case d.broken && time.Since(retried) >= retryEvery:
				retried, d.whole = time.Now(), true
			case !d.broken && time.Since(begun) > max(h.opt.For/4, syncEvery):
				begun, d.begins = time.Now(), true
				h.expire(begun.UnixMilli()) // so that files of a server that stores nothing go as well
				h.damage = slices.DeleteFunc(h.damage,
					func(d Damage) bool { return d.ToUnixMs < begun.Add(-h.opt.For).UnixMilli() })
			}
			if !syncing.IsZero() && time.Since(syncing) > syncWithin {
				d.fail(errSyncTime)
			}
			h.mu.Unlock()
			if syncing.IsZero() && d.dirty && d.file != nil {
				syncing = time.Now()
				flush := d.flush()
				go func() { synced <- flush() }()
			}
		case err := <-synced:
			syncing = time.Time{}
			d.endSync(h, err)
		case <-ctx.Done():
			if !syncing.IsZero() {
				d.endSync(h, <-synced)
			}
			return d.end(h)
		}
		d.turnOnce(h, !syncing.IsZero() && time.Since(syncing) > syncWithin)
	}
}

// end writes what was not written yet, and syncs and closes the files.
func (d *directory) end(h *History) error {
	h.mu.Lock()
	d.whole = d.whole || d.broken
	h.mu.Unlock()
	d.turnOnce(h, false)
	err := h.Trouble()
	if d.file != nil {
		err = errors.Join(err, d.flush()(), d.file.Close())
	}
	return err
}

// turnOnce writes what is new.
func (d *directory) turnOnce(h *History, unsynced bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.broken && !d.whole {
		return
	}
	if j := d.take(h); j != nil {
		h.mu.Unlock()
		err := d.write(j)
		h.mu.Lock()
		if err != nil {
			d.broken = true
			d.fail(err)
			return
		}
		d.broken, d.done = false, j.request
		d.begins = d.begins || d.size >= max(h.opt.MaxBytes/8, minFileBytes)
	}
	if d.trouble != nil && !unsynced {
		d.trouble = nil
		d.log.Info("what is remembered is in its directory again")
	}
	d.endTurn()
}

// flush returns a function that syncs the files, while others may be written.
func (d *directory) flush() func() error {
	full, last := d.full, d.file
	d.full, d.dirty = nil, false
	return func() (err error) {
		for _, f := range full {
			err = errors.Join(err, f.Sync(), f.Close())
		}
		// A file that a whole one has followed is closed: what it has is in that one.
		if err = errors.Join(err, last.Sync(), sharedfile.SyncDir(d.path)); errors.Is(err, os.ErrClosed) {
			return nil
		}
		return err
	}
}

// endSync notes that files were synced.
func (d *directory) endSync(h *History, err error) {
	h.mu.Lock()
	first := h.added - int64(len(h.kept))
	if err != nil && !d.broken {
		d.broken = true
		d.fail(err)
	}
	h.mu.Unlock()
	if err == nil {
		d.removeOld(first) // not before the state in the file that follows is synced
	}
}

// Close ends the use of the directory.
func (h *History) Close() error {
	d := h.dir
	if d == nil {
		return nil
	}
	if d.stop != nil {
		d.stop()
		select {
		case err := <-d.ended:
			d.ended <- nil // another Close does not wait
			d.unlock()
			return err
		case <-time.After(wholeWithin):
			return errWriteTime // the lock is kept: the goroutine may write yet
		}
	}
	d.unlock()
	return nil
}

// appendFrame appends a frame with the payload that add appends.
func appendFrame(b []byte, add func([]byte) []byte) []byte {
	start := len(b)
	b = add(append(b, make([]byte, frameHead)...))
	payload := b[start+frameHead:]
	binary.LittleEndian.PutUint32(b[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(b[start:start+4], castagnoli))
	binary.LittleEndian.PutUint32(b[start+8:], crc32.Checksum(payload, castagnoli))
	return b
}
