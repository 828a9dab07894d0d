package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// ErrFault is the error of calls that a Fault fails.
var ErrFault = errors.New("fault")

// A Fault is a disk whose At-th call fails or, with Lasting, that call and all later
// ones. Calls are counted from 1. It is not safe for concurrent use.
type Fault struct {
	folder
	At      int
	Lasting bool

	Volatile bool // skips all syncs, to save time

	next string // the call of this kind after skip others fails as well
	skip int

	// Half makes a failing write write half of its data, and a failing replacement take
	// place with an uncertain outcome.
	Half bool

	Calls  []string // all calls
	Failed []string // the calls that failed
}

// With returns opt with f as its disk.
func (f *Fault) With(opt Options) Options {
	opt.disk = f
	return opt
}

// After makes a call of a kind fail, after skip further calls of that kind.
func (f *Fault) After(skip int, kind string) { f.skip, f.next = skip, kind }

func (f *Fault) due() bool {
	f.skip--
	if f.skip >= 0 {
		return false
	}
	f.next = ""
	return true
}

// call counts a call and reports whether it must fail.
func (f *Fault) call(what string) bool {
	f.Calls = append(f.Calls, what)
	if n := len(f.Calls); n == f.At || f.Lasting && f.At > 0 && n > f.At || what == f.next && f.due() {
		f.Failed = append(f.Failed, what)
		return true
	}
	return false
}

func (f *Fault) lock(ctx context.Context, path string) (func(), error) {
	if f.call("lock") {
		return nil, ErrFault
	}
	return f.folder.lock(ctx, path)
}

func (f *Fault) open(path string) (file, error) {
	return f.opened("open for reading", path, f.folder.open)
}

func (f *Fault) openAppend(path string) (file, error) {
	return f.opened("open for appending", path, f.folder.openAppend)
}

func (f *Fault) opened(call, path string, open func(string) (file, error)) (file, error) {
	if f.call(call) {
		return nil, ErrFault
	}
	opened, err := open(path)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file: opened, fault: f}, nil
}

func (f *Fault) stat(path string) (fs.FileInfo, error) {
	if f.call("stat") {
		return nil, ErrFault
	}
	return f.folder.stat(path)
}

func (f *Fault) rename(from, to string) error {
	if f.call("rename") {
		return ErrFault
	}
	return f.folder.rename(from, to)
}

func (f *Fault) replace(path string, data []byte) error {
	if !f.call("replace") {
		return f.folder.replace(path, data)
	}
	if f.Half {
		return errors.Join(f.folder.replace(path, data), sharedfile.ErrUncertain)
	}
	return ErrFault
}

func (f *Fault) syncDir(path string) error {
	if f.call("sync of the directory") {
		return ErrFault
	}
	return f.folder.syncDir(path)
}

// When a sync of a faultyFile fails, it loses what was written since the previous sync.
type faultyFile struct {
	file
	fault    *Fault
	unsynced int64 // bytes
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if f.fault.call("read") {
		return 0, ErrFault
	}
	return f.file.ReadAt(p, off)
}

func (f *faultyFile) Write(p []byte) (int, error) {
	var err error
	if f.fault.call("write") {
		err = ErrFault
		if f.fault.Half {
			p = p[:len(p)/2]
		} else {
			p = nil
		}
	}
	n, writeErr := f.file.Write(p)
	f.unsynced += int64(n)
	return n, errors.Join(err, writeErr)
}

func (f *faultyFile) Stat() (fs.FileInfo, error) {
	if f.fault.call("stat of the file") {
		return nil, ErrFault
	}
	return f.file.Stat()
}

func (f *faultyFile) Sync() error {
	if f.fault.call("sync") {
		info, err := f.file.Stat()
		if err != nil {
			return err
		}
		return errors.Join(ErrFault, f.file.Truncate(info.Size()-f.unsynced))
	}
	f.unsynced = 0
	if f.fault.Volatile {
		return nil
	}
	return f.file.Sync()
}

func (f *faultyFile) Truncate(size int64) error {
	if f.fault.call("truncate") {
		return ErrFault
	}
	return f.file.Truncate(size)
}

func (f *faultyFile) Close() error {
	err := f.file.Close()
	if f.fault.call("close") {
		return ErrFault
	}
	return err
}

// Renamed returns a key that signs with k but has the ID of named.
func Renamed(k, named *Key) *Key {
	return &Key{private: k.private, public: named.public, path: k.path + ".renamed"}
}

// A File is the result of verifying one file of a log.
type File struct {
	Records, FirstSeq, LastSeq uint64
	Prev, Chain                string // before the first record, and of the last one
	TornBytes                  int64
}

// Verify verifies one file of a log.
func Verify(r io.Reader) (File, error) {
	var p position
	torn, err := p.scan(r, func(_, _ mark, _ []byte) error { return nil })
	return File{p.lines, p.before().seq + 1, p.seq, hex.EncodeToString(p.prev[:]), hex.EncodeToString(p.chain[:]), torn},
		err
}
