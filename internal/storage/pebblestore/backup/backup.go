package backup

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// A Backup is a consistent copy of a store's files, ready to be sent.
type Backup struct {
	fs      vfs.FS
	dir     string
	ctx     context.Context // ends when sending must stop
	files   []datadir.Line  // datadir.FormatFile is the last
	list    []byte          // CHECKSUMS
	release func() error
}

// Stopped makes a Backup of a store that is not open. It locks the store until the Backup is closed.
// The error is as for opening a store; it wraps storage.ErrCorrupt if a file differs from the list of
// files. A nil fsys means the operating system's.
func Stopped(ctx context.Context, dir string, fsys vfs.FS) (*Backup, error) {
	b, err := source(ctx, dir, fsys, datadir.ListBackup)
	if err != nil {
		return nil, fmt.Errorf("back up store %s: %w", dir, err)
	}
	return b, nil
}

// source makes a Backup of a store that is not open. Its list has the given state.
func source(ctx context.Context, dir string, fsys vfs.FS, state datadir.ListState) (_ *Backup, err error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	d, err := datadir.Open(fsys, dir, true, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	l, err := d.VerifyAll()
	if err != nil {
		return nil, err
	}
	if state == datadir.ListClosed && (l == nil || !l.State.Complete()) {
		return nil, fmt.Errorf("%w: it is neither a backup nor a store that was closed cleanly", storage.ErrFormat)
	}
	return newBackup(ctx, d.FS, d.Path, state, d.Close)
}

// # How a running store is backed up
//
// A checkpoint of Pebble has hard links to its tables, which never change, and copies of its log and
// manifest. It is sent while the store continues to write; it takes extra space only for tables that
// are compacted away before it was sent. If the process is killed, the next start removes the checkpoint.
//
// A backup is the directory of a store. The state of its list of checksums keeps a store from being
// opened for writing in it.

// Running makes a Backup of the open store in d. checkpoint writes what the store holds at one time to the
// directory that it gets, which does not exist. WriteTo stops when ctx ends. done is called once: when the
// Backup is closed, or if it cannot be made.
func Running(ctx context.Context, d *datadir.Dir, checkpoint func(dir string) error, done func()) (_ *Backup,
	err error) {
	dir := d.File(datadir.CheckpointDir)
	release := func() error {
		defer done()
		return d.FS.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, release())
		}
	}()
	if err := d.FS.RemoveAll(dir); err != nil { // left by a Backup that could not remove it
		return nil, err
	}
	if err := checkpoint(dir); err != nil {
		return nil, err
	}
	// Read the format after the checkpoint: the first assignment raises it before it is stored.
	for name, text := range map[string]string{datadir.ListedFile: datadir.ListedText,
		datadir.FormatFile: datadir.FormatText} {
		if err := datadir.WriteSynced(d.FS, d.FS.PathJoin(dir, name), []byte(text)); err != nil {
			return nil, err
		}
	}
	return newBackup(ctx, d.FS, dir, datadir.ListBackup, release)
}

// newBackup returns a Backup of the files in dir, which must no longer change, with the list of a
// state. WriteTo stops when ctx ends, and Close calls release.
func newBackup(ctx context.Context, fsys vfs.FS, dir string, state datadir.ListState,
	release func() error) (*Backup, error) {
	list, err := datadir.ListFiles(fsys, dir, state)
	if err != nil {
		return nil, err
	}
	files := slices.Clone(list.Files)
	slices.SortStableFunc(files, func(a, b datadir.Line) int { return cmp.Compare(last(a.Name), last(b.Name)) })
	return &Backup{fs: fsys, dir: dir, ctx: ctx, files: files, list: list.Text(), release: release}, nil
}

// last is a sort key: 1 for the file that must be last in an archive, 0 for others.
func last(name string) int {
	if name == datadir.FormatFile {
		return 1
	}
	return 0
}

// Bytes returns the total size of the files.
func (b *Backup) Bytes() int64 {
	n := int64(len(b.list))
	for _, f := range b.files {
		n += f.Bytes
	}
	return n
}

// Close removes the checkpoint, or unlocks the store of Stopped.
func (b *Backup) Close() error { return b.release() }

// WriteTo writes the files as a tar archive: first CHECKSUMS, then the others, last
// PULSEGATE. An archive without PULSEGATE is incomplete.
func (b *Backup) WriteTo(w io.Writer) (int64, error) {
	out := &contextWriter{ctx: b.ctx, w: w}
	if err := b.write(tar.NewWriter(out)); err != nil {
		return out.n, fmt.Errorf("send backup: %w", err)
	}
	return out.n, nil
}

// Send passes the archive and the size of its files to receive, and returns its error.
// The archive never leaves memory.
func (b *Backup) Send(receive func(archive io.Reader, fileBytes int64) error) error {
	r, w := io.Pipe()
	var sending sync.WaitGroup
	sending.Go(func() {
		_, err := b.WriteTo(w)
		w.CloseWithError(err) // returns nil
	})
	err := receive(r, b.Bytes())
	r.Close() // ends the sender; returns nil
	sending.Wait()
	return err
}

func (b *Backup) write(tw *tar.Writer) error {
	if err := tw.WriteHeader(tarHeader(datadir.ChecksumsFile, int64(len(b.list)))); err != nil {
		return err
	}
	if _, err := tw.Write(b.list); err != nil {
		return err
	}
	for _, f := range b.files {
		if err := tw.WriteHeader(tarHeader(f.Name, f.Bytes)); err != nil {
			return err
		}
		if err := b.copy(tw, f); err != nil {
			return fmt.Errorf("file %s: %w", f.Name, err)
		}
	}
	return tw.Close()
}

func tarHeader(name string, bytes int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: bytes, Mode: 0o600}
}

func (b *Backup) copy(w io.Writer, f datadir.Line) error {
	r, err := b.fs.Open(b.fs.PathJoin(b.dir, f.Name), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(w, r, f.Bytes); err != nil {
		return errors.Join(err, r.Close())
	}
	return r.Close()
}

// A contextWriter writes until its context ends.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
	n   int64
}

func (w *contextWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.w.Write(p)
	w.n += int64(n)
	return n, err
}
