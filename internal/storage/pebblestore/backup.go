package pebblestore

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

// # How a backup is made
//
// Between two groups, and between two windows that are sealed, Pebble makes a checkpoint: hard
// links to its tables, which never change, and copies of its log and manifest.
// Nothing is written meanwhile, so the checkpoint ends after a complete group: it holds
// every reading acknowledged until then. The checkpoint is sent while the store
// continues to write; it takes extra space only for tables that are compacted away
// meanwhile. If the process is killed, the next start removes the checkpoint.
//
// A backup is the directory of a store. The state of its list of checksums keeps Open
// from writing to it.

// ErrBackup means that a directory cannot be opened for writing because it is a backup.
var ErrBackup = errors.New("pebblestore: the directory is a backup, which must not be changed")

// A Backup is a consistent copy of a store's files, ready to be sent.
type Backup struct {
	fs      vfs.FS
	dir     string
	ctx     context.Context // ends when sending must stop
	files   []datadir.Line  // datadir.FormatFile is the last
	list    []byte          // CHECKSUMS
	release func() error
}

// Backup makes a copy of the store that holds every reading acknowledged so far. Append
// waits while hard links to all tables are made and the log, which is short then, is
// copied.
//
// The error wraps storage.ErrBusy during another backup or an erasure. The caller must
// close the Backup. Closing the store makes WriteTo return an error, and waits for the
// Backup to be closed.
func (s *Store) Backup() (*Backup, error) {
	b, err := s.backup()
	if err != nil {
		return nil, fmt.Errorf("back up store %s: %w", s.dir, err)
	}
	return b, nil
}

func (s *Store) backup() (_ *Backup, err error) {
	if s.readOnly {
		return nil, ErrReadOnly
	}
	done, err := s.maintenance.begin("a backup")
	if err != nil {
		return nil, err
	}
	dir := s.files.FS.PathJoin(s.path, datadir.CheckpointDir)
	release := func() error {
		defer done()
		return s.files.FS.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, release())
		}
	}()
	if err := s.checkpoint(dir); err != nil {
		return nil, err
	}
	// Read the format after the checkpoint: the first assignment raises it before it is stored.
	for name, text := range map[string]string{datadir.ListedFile: datadir.ListedText, datadir.FormatFile: s.files.FormatText()} {
		if err := datadir.WriteSynced(s.files.FS, s.files.FS.PathJoin(dir, name), []byte(text)); err != nil {
			return nil, err
		}
	}
	// An unfinished erasure must be finished in the copy, too.
	in, err := readIntent(s.files)
	if err != nil {
		return nil, err
	}
	if in != nil {
		if err := in.write(s.files.FS, dir); err != nil {
			return nil, err
		}
	}
	return newBackup(s.maintenance.ctx, s.files.FS, dir, datadir.ListBackup, release)
}

// checkpoint makes a checkpoint between two groups, and while nothing is being sealed.
func (s *Store) checkpoint(dir string) error {
	if err := s.files.FS.RemoveAll(dir); err != nil { // left by a backup that could not remove it
		return err
	}
	// Flush first: the shorter the log, the shorter Append waits.
	if s.disk.ready() == nil {
		if err := s.flush(s.maintenance.ctx); err != nil {
			return err
		}
	}
	s.sealing.Lock()
	defer s.sealing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.alarm.reportedErr(); err != nil {
		return err
	}
	return s.guard(func() error { return s.db.Checkpoint(dir) })
}

// flush writes the memtable to a table, concurrently with Append. If the disk is full,
// Pebble retries: flush then waits until ctx ends or the store is closed.
func (s *Store) flush(ctx context.Context) error {
	flushed, renewed, err := s.startFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-renewed:
		// A flush that has not begun when the tree is closed never ends. Reopening
		// the tree has flushed the log.
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.alarm.reportedErr()
	case <-s.maintenance.ctx.Done():
		return storage.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startFlush starts a flush. It returns a channel that is closed when it has ended, and one that
// is closed when the tree is closed for a reopen.
func (s *Store) startFlush() (flushed, renewed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewed == nil {
		s.renewed = make(chan struct{})
	}
	if s.closed.Load() { // a closed DB panics
		return nil, nil, storage.ErrClosed
	}
	if err := s.alarm.reportedErr(); err != nil {
		return nil, nil, err
	}
	// The flush ends the log: what is being committed must be synced before.
	s.committing.Lock()
	defer s.committing.Unlock()
	err = s.guard(func() (err error) { flushed, err = s.db.AsyncFlush(); return err })
	return flushed, s.renewed, err
}

// BackupStopped makes a Backup of a store that is not open. It locks the store until
// the Backup is closed. The error is as for Open; it wraps storage.ErrCorrupt if a file
// differs from the list of checksums.
func BackupStopped(ctx context.Context, dir string, fsys vfs.FS) (*Backup, error) {
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
			err = joinClose(err, d)
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

// newBackup returns a Backup of the files in dir, which must no longer change.
func newBackup(ctx context.Context, fsys vfs.FS, dir string, state datadir.ListState, release func() error) (*Backup, error) {
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

// Close removes the checkpoint, or unlocks the store of BackupStopped.
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
		return joinClose(err, r)
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
