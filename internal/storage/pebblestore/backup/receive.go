package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// # How copies are made atomic
//
// A copy is written to a working directory: DIR.partial, or DIR/partial if DIR exists,
// which must then be empty; it may be a mount point. Each file is synced, then the working
// directory, and then it is checked. Only a valid copy gets its name: DIR.partial
// is renamed to DIR; or the files are moved from DIR/partial to DIR, PULSEGATE last, which
// makes the directory a store.
const partialDir = "partial"

// ErrNotEmpty means that a copy cannot be written because its directory is not empty.
var ErrNotEmpty = errors.New("the directory is not empty")

// Options configures the making of a copy. The zero value is valid.
type Options struct {
	// Bytes is the size of all files, as returned by [Backup.Bytes]. The copy is not
	// begun with less free space, and not continued beyond that size. 0: unknown.
	Bytes int64

	// Progress, if not nil, is called periodically while the written copy is verified,
	// with the number of verified bytes in tables and the number of all.
	Progress func(tableBytes, ofTableBytes int64)

	FS vfs.FS // nil means the operating system's
}

// Receive reads an archive written by [Backup.WriteTo], writes its files to dir, which must be missing
// or empty, and calls check with the directory of the copy before it is given its name. After an
// error, that of ctx included, dir is unchanged.
//
// The error wraps ErrNotEmpty, or storage.ErrDiskLow if there is not enough space.
func Receive(ctx context.Context, r io.Reader, dir string, o Options, check func(dir string) error) error {
	if err := receive(ctx, r, dir, o, check); err != nil {
		return fmt.Errorf("write backup %s: %w", dir, err)
	}
	return nil
}

// CheckDestination returns an error that wraps ErrNotEmpty if a copy cannot be written to dir. A
// nil fsys means the operating system's.
func CheckDestination(dir string, fsys vfs.FS) error {
	if fsys == nil {
		fsys = vfs.Default
	}
	_, err := newDestination(fsys, dir)
	return err
}

// Restore makes a store in dir, which must be missing or empty, from a backup or a store
// that was closed cleanly. The error is as for Receive; it wraps storage.ErrFormat if from is neither.
func Restore(ctx context.Context, from, dir string, o Options, check func(dir string) error) error {
	if err := restore(ctx, from, dir, o, check); err != nil {
		return fmt.Errorf("restore %s to %s: %w", from, dir, err)
	}
	return nil
}

func restore(ctx context.Context, from, dir string, o Options, check func(dir string) error) (err error) {
	b, err := source(ctx, from, o.FS, datadir.ListClosed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return b.Send(func(archive io.Reader, fileBytes int64) error {
		o.Bytes = fileBytes
		return receive(ctx, archive, dir, o, check)
	})
}

func receive(ctx context.Context, r io.Reader, dir string, o Options, check func(dir string) error) (err error) {
	if o.FS == nil {
		o.FS = vfs.Default
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	p, err := newDestination(o.FS, dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.abandon())
		}
	}()
	if err := p.begin(o.Bytes); err != nil {
		return err
	}
	if err := p.write(ctx, r, o.Bytes); err != nil {
		return err
	}
	if err := check(p.work); err != nil {
		what := "verify the copy"
		if errors.Is(err, storage.ErrCorrupt) {
			what = "the copy is damaged"
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return p.commit()
}

// A destination is the directory to which a copy is written.
type destination struct {
	fs     vfs.FS
	dir    string
	parent string // of dir
	work   string // the working directory
	exists bool   // dir existed before

	moved []string // files that were moved from work to dir
}

// newDestination returns an error if dir is not empty.
func newDestination(fsys vfs.FS, dir string) (*destination, error) {
	p := &destination{fs: fsys, dir: dir, parent: fsys.PathDir(dir), work: dir + datadir.PartialSuffix}
	names, err := datadir.Names(fsys, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		p.exists, p.work = true, fsys.PathJoin(dir, partialDir)
		for _, name := range names {
			if name == partialDir {
				return nil, p.unfinished()
			}
			if datadir.Matters(name) {
				return nil, fmt.Errorf("%w: %s holds files (%s, ...)", ErrNotEmpty, dir, name)
			}
		}
	}
	if _, err := fsys.Stat(p.work); err == nil {
		return nil, p.unfinished()
	}
	return p, nil
}

func (p *destination) unfinished() error {
	return fmt.Errorf("%w: %s is an interrupted copy, or one in progress; remove it if none is in progress",
		ErrNotEmpty, p.work)
}

// begin creates the working directory if there is enough space.
func (p *destination) begin(bytes int64) error {
	if bytes > 0 {
		need := uint64(bytes + bytes/64 + 1<<20) // with the overhead of the file system
		usage, err := p.fs.GetDiskUsage(p.nearest())
		if err == nil && usage.AvailBytes < need {
			return fmt.Errorf("%w: %d bytes are free, and the copy takes %d", storage.ErrDiskLow, usage.AvailBytes, need)
		}
	}
	return datadir.Make(p.fs, p.work)
}

// nearest returns the nearest existing parent of the working directory.
func (p *destination) nearest() string {
	for dir := p.fs.PathDir(p.work); ; dir = p.fs.PathDir(dir) {
		if _, err := p.fs.Stat(dir); err == nil || dir == p.fs.PathDir(dir) {
			return dir
		}
	}
}

// write writes the files of an archive, of a size in bytes unless that is 0. Whoever made the archive
// must not fill the disk with more, nor with a few bytes that stand for many.
func (p *destination) write(ctx context.Context, r io.Reader, size int64) error {
	tr := tar.NewReader(r)
	whole := false
	written := int64(0)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if h.Typeflag != tar.TypeReg || h.Name != datadir.ChecksumsFile && !datadir.IsStoreFile(h.Name) ||
			h.Name != p.fs.PathBase(h.Name) {
			return fmt.Errorf("%w: the archive has an entry %q", storage.ErrFormat, h.Name)
		}
		if isSparse(h) || size > 0 && h.Size > size-written {
			return fmt.Errorf("%w: the archive has more bytes than it announces", storage.ErrFormat)
		}
		written += h.Size
		if err := p.writeFile(ctx, h.Name, tr); err != nil {
			return fmt.Errorf("copy %q: %w", h.Name, err)
		}
		whole = h.Name == datadir.FormatFile
	}
	if !whole {
		return fmt.Errorf("read archive: %w: it does not end with %s", io.ErrUnexpectedEOF, datadir.FormatFile)
	}
	return datadir.SyncDir(p.fs, p.work)
}

// isSparse reports whether holes of a file are left out of the archive.
func isSparse(h *tar.Header) bool {
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (p *destination) writeFile(ctx context.Context, name string, r io.Reader) error {
	path := p.fs.PathJoin(p.work, name)
	if _, err := p.fs.Stat(path); err == nil {
		return fmt.Errorf("%w: the archive has it twice", storage.ErrFormat)
	}
	f, err := p.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// The directory may be readable by others. Ignore errors: some file systems have no
	// modes.
	if p.fs == vfs.Default {
		_ = os.Chmod(path, 0o600)
	}
	if _, err := io.Copy(&contextWriter{ctx: ctx, w: f}, r); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// commit gives the copy its name.
func (p *destination) commit() error {
	if !p.exists {
		if err := p.fs.Rename(p.work, p.dir); err != nil {
			return err
		}
		return datadir.SyncDir(p.fs, p.parent)
	}
	names, err := p.fs.List(p.work)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != datadir.FormatFile && name != datadir.LockFile {
			if err := p.move(name); err != nil {
				return err
			}
		}
	}
	// All other files must be in place, durably, before datadir.FormatFile is.
	if err := datadir.SyncDir(p.fs, p.dir); err != nil {
		return err
	}
	if err := p.move(datadir.FormatFile); err != nil {
		return err
	}
	if err := p.fs.RemoveAll(p.work); err != nil {
		return err
	}
	return datadir.SyncDir(p.fs, p.dir)
}

func (p *destination) move(name string) error {
	err := p.fs.Rename(p.fs.PathJoin(p.work, name), p.fs.PathJoin(p.dir, name))
	if err == nil {
		p.moved = append(p.moved, name)
	}
	return err
}

// abandon removes everything that was written, unless the copy is complete.
func (p *destination) abandon() error {
	if slices.Contains(p.moved, datadir.FormatFile) {
		return nil
	}
	var errs []error
	for _, name := range p.moved {
		errs = append(errs, p.fs.Remove(p.fs.PathJoin(p.dir, name)))
	}
	return errors.Join(append(errs, p.fs.RemoveAll(p.work))...)
}
