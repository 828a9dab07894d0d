package history

import (
	"bytes"
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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// A directory keeps a history beyond the end of the process. Its files have frames, in the order of acknowledgement. The first frame of a
// file is a state: what is known besides the entries. A frame is written before its transaction is answered, and synced within a second.
type directory struct {
	path   string
	unlock func()
	log    *slog.Logger

	id, run  int64 // random number of the directory, and number of this run
	file     *os.File
	written  int64      // bytes of file
	full     []*os.File // earlier ones, which are to be synced and closed
	segments []segment
	number   int64 // of the last file
	failed   bool  // the last write failed; the files lack entries
	dirty    bool  // file has frames that are not synced

	stop   context.CancelFunc
	synced sync.WaitGroup
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

// Parts of the identity of a run: 31 bits of the directory, 16 of the number of the run, and 16 random ones, by which copies of
// a directory differ.
const (
	runBits    = 16
	randomBits = 16
	maxRuns    = 1<<runBits - 1
)

// maxEarlierRuns is the number of earlier runs that a directory knows, at least.
const maxEarlierRuns = 64

const (
	fileMagic = "PGHIST\x00\x02"
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

// Open returns a History that is also kept in a directory, and reads what earlier runs have left there. Start must be called before Add.
func Open(ctx context.Context, opt Options, path string, log *slog.Logger) (*History, error) {
	h := New(opt)
	d := &directory{path: path, log: log}
	if err := d.open(ctx, h); err != nil {
		return nil, fmt.Errorf("open directory of what is remembered: %w", err)
	}
	h.dir = d
	return h, nil
}

func (d *directory) open(ctx context.Context, h *History) error {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var err error
	if d.unlock, err = sharedfile.Lock(ctx, filepath.Join(d.path, lockName)); err != nil {
		return err
	}
	if err = d.load(h); err != nil {
		d.unlock()
	}
	return err
}

// load reads all files.
func (d *directory) load(h *History) error {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), unfinished) {
			if err := os.Remove(filepath.Join(d.path, f.Name())); err != nil {
				return err
			}
		}
		text, ok := strings.CutSuffix(f.Name(), suffix)
		if number, err := strconv.ParseInt(text, 10, 64); ok && err == nil {
			d.segments = append(d.segments, segment{number: number})
			d.number = max(d.number, number)
		}
	}
	slices.SortFunc(d.segments, func(a, b segment) int { return int(a.number - b.number) })
	for i := range d.segments {
		name := d.name(d.segments[i].number)
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		r := &reader{h: h, d: d, server: h.server}
		if n := len(h.kept); n > 0 {
			r.untilMs = h.kept[n-1].entry.UnixMs
		}
		rest := r.file(data)
		switch {
		case rest == 0:
		case r.torn && i+1 == len(d.segments):
			d.log.Info("the end of a file of what is remembered is cut off: it was not acknowledged", "file", name, "bytes", rest)
		default:
			d.log.Error("a file of what is remembered is damaged", "file", name, "bytes", rest)
			h.damage = append(h.damage, Damage{r.server, r.untilMs, modified(name)})
		}
		d.segments[i].last = h.added
	}
	return nil
}

// modified returns when a file was written last.
func modified(name string) int64 {
	if info, err := os.Stat(name); err == nil {
		return info.ModTime().UnixMilli()
	}
	return time.Now().UnixMilli()
}

func (d *directory) name(number int64) string {
	return filepath.Join(d.path, fmt.Sprintf("%012d%s", number, suffix))
}

// A reader decodes a file.
type reader struct {
	h *History
	d *directory

	server  int64 // whose run has written the file
	untilMs int64 // when the last entry was acknowledged, or the file begun
	torn    bool  // the file ends within a frame
}

// file reads the frames of a file, and returns the number of bytes that it could not read.
func (r *reader) file(data []byte) (rest int) {
	frames, ok := bytes.CutPrefix(data, []byte(fileMagic))
	if !ok {
		r.torn = len(data) < len(fileMagic)
		return len(data)
	}
	for first := true; len(frames) > 0; first = false {
		if len(frames) < frameHead {
			r.torn = true
			return len(frames)
		}
		length := binary.LittleEndian.Uint32(frames)
		if crc32.Checksum(frames[:4], castagnoli) != binary.LittleEndian.Uint32(frames[4:]) {
			return len(frames)
		}
		if r.torn = uint64(length) > uint64(len(frames)-frameHead); r.torn {
			return len(frames)
		}
		payload := frames[frameHead : frameHead+int(length)]
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(frames[8:]) || !r.frame(payload, first) {
			return len(frames)
		}
		frames = frames[frameHead+int(length):]
	}
	return 0
}

// frame adds what a frame has. The first one must be a state.
func (r *reader) frame(payload []byte, first bool) bool {
	p := &decoder{b: payload}
	switch kind := p.byte(); {
	case first && kind == stateFrame:
		s := p.state()
		if p.end() {
			r.server, r.untilMs = s.server, s.nowMs
			r.d.id, r.d.run = s.id, s.run
			s.restore(r.h)
			return true
		}
	case !first && kind == entryFrame:
		e := p.entry()
		if _, err := e.decode(); p.end() && err == nil {
			r.untilMs = e.entry.UnixMs
			r.h.add(e)
			return true
		}
	case !first && kind == changeFrame:
		c := p.change()
		if p.end() {
			r.h.changes = replaced(r.h.changes, c)
			return true
		}
	}
	return false
}

// Start begins a run of the directory. latest is the highest identity, of those that Range returns, that the database knows; 0 means none. older
// reports whether a later run than those of the directory is among them: the directory is a copy of an earlier state.
func (h *History) Start(latest int64) (older bool, err error) {
	d := h.dir
	h.mu.Lock()
	defer h.mu.Unlock()
	if run := latest >> randomBits & maxRuns; latest != 0 && run > d.run {
		older, d.run = true, run
	}
	if d.id == 0 || d.run == maxRuns {
		d.id, d.run = 1+rand.Int64N(1<<31-1), 0
	}
	d.run++
	h.server = d.id<<(runBits+randomBits) | d.run<<randomBits | rand.Int64N(1<<randomBits)
	d.forgetRuns(h)
	if err := d.begin(h, true); err != nil {
		return older, fmt.Errorf("write what is remembered: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.synced.Go(func() { d.sync(ctx, h) })
	return older, nil
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
				delete(h.gone, slot)
			}
		}
	}
}

// begin begins a file. If it is whole, it has all entries, stands for all files before it, and is synced.
func (d *directory) begin(h *History, whole bool) error {
	buf := appendFrame([]byte(fileMagic), func(b []byte) []byte { return appendState(b, d.state(h, whole)) })
	name, write := d.name(d.number+1), d.writeNew
	if whole {
		for i := range h.kept {
			buf = appendFrame(buf, func(b []byte) []byte { return appendEntry(b, &h.kept[i]) })
		}
		write = d.writeWhole
	}
	file, err := write(name, buf)
	if err != nil {
		return err
	}
	if d.file != nil {
		d.full = append(d.full, d.file)
	}
	if n := len(d.segments); n > 0 {
		d.segments[n-1].last = h.added
	}
	if whole {
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
	d.file, d.written, d.dirty, d.failed = file, int64(len(buf)), true, false
	if whole || len(d.segments) > maxFiles {
		d.removeOld(h)
	}
	return nil
}

func (d *directory) writeNew(name string, data []byte) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = file.Write(data); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(name))
	}
	return file, nil
}

// writeWhole writes a file that has its name only when it is complete: the ones before it do not count any more.
func (d *directory) writeWhole(name string, data []byte) (*os.File, error) {
	tmp := name + unfinished
	file, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = file.Write(data); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(tmp, name)
	}
	if err == nil {
		err = sharedfile.SyncDir(d.path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// removeOld removes the files of which no entry is kept.
func (d *directory) removeOld(h *History) {
	first := h.added - int64(len(h.kept)) // entries that were added before the first one kept
	for len(d.segments) > 1 && d.segments[0].last <= first {
		if err := os.Remove(d.name(d.segments[0].number)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return // it is tried again
		}
		d.segments = d.segments[1:]
	}
}

// write appends a frame. After an error the history is kept in memory only, until the sync goroutine can write all of it again.
func (d *directory) write(h *History, frame func([]byte) []byte) {
	if d.failed || d.file == nil {
		return
	}
	h.buf = appendFrame(h.buf[:0], frame)
	n, err := d.file.Write(h.buf)
	d.written += int64(n)
	d.dirty = true
	if err != nil {
		d.fail(err)
		return
	}
	if d.written >= max(h.opt.MaxBytes/8, minFileBytes) {
		if err := d.begin(h, false); err != nil {
			d.fail(err)
		}
	}
}

// maxFiles is the number of files from which on those without kept entries go at once, and not only when later ones are synced.
const maxFiles = 16

// minFileBytes is the size of a file from which on it may be followed by another one.
const minFileBytes = 1 << 16

func (d *directory) fail(err error) {
	d.failed = true
	d.log.Error("what is remembered is in memory only: its directory cannot be written", "error", err)
}

// Times of the sync goroutine.
const (
	syncEvery  = time.Second
	retryEvery = 10 * time.Second
)

// sync syncs the files, begins others after a while, and after a failure writes everything again.
func (d *directory) sync(ctx context.Context, h *History) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	begun, retried := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.mu.Lock()
		switch {
		case d.failed && time.Since(retried) >= retryEvery:
			retried = time.Now()
			if d.begin(h, true) == nil {
				d.log.Info("what is remembered is in its directory again")
			}
		case !d.failed && time.Since(begun) > max(h.opt.For/4, syncEvery):
			begun = time.Now()
			h.expire(begun.UnixMilli()) // so that files of a server that stores nothing go as well
			h.damage = slices.DeleteFunc(h.damage, func(d Damage) bool { return d.ToUnixMs < begun.Add(-h.opt.For).UnixMilli() })
			if err := d.begin(h, false); err != nil {
				d.fail(err)
			}
		}
		h.mu.Unlock()
		d.flush(h)
	}
}

// flush syncs the files, while others may write.
func (d *directory) flush(h *History) {
	h.mu.Lock()
	full, file, dirty := d.full, d.file, d.dirty
	d.full, d.dirty = nil, false
	h.mu.Unlock()
	var err error
	for _, f := range full {
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if dirty {
		// A file that a whole one has followed is closed: what it has is in that one.
		if err = errors.Join(err, file.Sync(), sharedfile.SyncDir(d.path)); errors.Is(err, os.ErrClosed) {
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && dirty:
		d.removeOld(h) // not before the state in the file that follows is synced
	case err != nil && !d.failed:
		d.fail(err)
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
		d.synced.Wait()
	}
	defer d.unlock()
	if d.file == nil {
		return nil
	}
	d.flush(h)
	return d.file.Close()
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
