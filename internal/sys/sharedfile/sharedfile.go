// Package sharedfile changes files that several processes change and read.
//
// # Promise
//
// Of all processes of one machine that take a file's [Lock], one holds it at a
// time. A reader of a file that is changed with [Replace] sees it as it was or as
// it is, and so does whoever comes after a crash.
//
// What root does here in a folder of another user does not give that user more
// than the folder: no link is followed, and only files made here are given to him.
//
// # Not here
//
// No knowledge of what the files hold. No locks between machines: flock on a
// network file system may hold for one machine only.
package sharedfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrUncertain means that a file was replaced, and that it is not known whether
// that outlasts a crash of the machine.
var ErrUncertain = errors.New("sharedfile: the change was made, but it is not certain to outlast a crash")

// lockPollEvery is the time between two tries to get a lock.
const lockPollEvery = 10 * time.Millisecond

// Lock takes the lock file at path, which is made where it is missing and stays.
// It waits for whoever has it, until ctx ends. The kernel gives the lock back when
// its holder ends, however that happens.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := openLock(path)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPollEvery)
	defer tick.Stop()
	for {
		locked, err := tryLock(file)
		if locked {
			return func() { _ = file.Close() }, nil // closing gives the lock back
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another process has the lock: %w", ctx.Err()), file.Close())
		case <-tick.C:
		}
	}
}

// openLock opens the lock file, or makes it.
func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		// No link is followed: who owns the folder must not choose what root opens.
		return os.OpenFile(path, os.O_RDWR|noFollow, 0)
	}
	giveToFolder(file, path)
	return file, nil
}

// OpenAppend opens the file at path, which must be there, for reading and
// appending.
func OpenAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_APPEND|noFollow, 0)
}

// giveToFolder gives a file that was made here to the owner of the folder that
// path is in. What root makes would lock him out otherwise.
func giveToFolder(file *os.File, path string) {
	if info, err := os.Stat(filepath.Dir(path)); err == nil {
		_ = giveTo(file, info) // for others than root it is theirs to keep
	}
}

// Replace puts a file with data in the place of path, durably, and whole or not at
// all. The caller must hold the lock of path, and path must not be a link.
//
// A new file is for the folder's owner only. One that was there hands on its owner and its
// mode, without the group's and others' rights to write: who could read it, such
// as a server that runs as another user, still can. After any error but
// [ErrUncertain] the file is as it was.
func Replace(path string, data []byte) error {
	tmp := path + ".tmp"
	// What a crash has left there is nobody's: the lock is held.
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := writeNew(tmp, path, data); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return nil
}

// writeNew makes the file tmp, durably, with the owner and mode of the one at like.
func writeNew(tmp, like string, data []byte) (err error) {
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := os.Stat(like)
	switch {
	case errors.Is(err, os.ErrNotExist):
		giveToFolder(file, like)
	case err != nil:
		return err
	default:
		if err := errors.Join(giveTo(file, info), file.Chmod(info.Mode().Perm()&^0o022)); err != nil {
			return err
		}
	}
	if _, err := file.Write(data); err != nil {
		return err
	}
	return file.Sync()
}

// SyncDir makes the names in a folder durable.
func SyncDir(path string) (err error) {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Sync()
}
