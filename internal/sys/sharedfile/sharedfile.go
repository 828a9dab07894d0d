// Package sharedfile changes files that several processes read and change.
//
// # Promise
//
// At any time, at most one process of a machine holds a file's [Lock]. A reader of a
// file that is changed with [Replace] sees either the old or the new content, even
// after a crash.
//
// When root uses this package in a directory of another user, that user gains no access
// to anything else: links are not followed, and only files created by this package
// change their owner.
//
// # Not here
//
// No knowledge of the files' content. No locks between machines: flock on a network
// file system may be local to one machine.
package sharedfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrUncertain means that a file was replaced, but that the change may not survive a
// crash of the machine.
var ErrUncertain = errors.New("the change was made, but may not survive a crash")

// lockPollEvery is the interval between attempts to acquire a lock.
const lockPollEvery = 10 * time.Millisecond

// Lock acquires the lock file at path. It creates the file if necessary, and never
// removes it. If another process holds the lock, Lock waits until ctx is done. The
// kernel releases the lock when the process ends for any reason.
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
			return func() { _ = file.Close() }, nil // closing releases the lock
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

// openLock opens or creates the lock file.
func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		// Do not follow links: the owner of the directory must not choose what root
		// opens.
		return os.OpenFile(path, os.O_RDWR|noFollow, 0)
	}
	giveToFolder(file, path)
	return file, nil
}

// OpenAppend opens the existing regular file at path for reading and appending.
func OpenAppend(path string) (*os.File, error) {
	return openRegular(path, os.O_RDWR|os.O_APPEND|noFollow)
}

// Open opens the regular file at path for reading. A FIFO, a socket or a device is rejected: opening
// or reading one may wait for ever, and no context ends that.
func Open(path string) (*os.File, error) { return openRegular(path, os.O_RDONLY) }

// ErrNotRegular means that a path names something other than a regular file.
var ErrNotRegular = errors.New("not a regular file")

func openRegular(path string, flag int) (*os.File, error) {
	file, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, 0) // of regular files O_NONBLOCK changes nothing
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// ErrPublic means that every user of the machine may write to a directory.
var ErrPublic = errors.New("every user may write to the directory")

// PrivateDir returns the directory in which a server that is configured with path keeps its files. That is path
// itself, or path/pulsegate if every user may write to path and path is the root of a mount, whose mode the owner may
// be unable to change. The caller creates what is missing with mode 0700. For any other directory to which every user
// may write, it returns "" and an error that wraps [ErrPublic].
//
// Whoever may write to path can have made path/pulsegate before the server did. If it is a link, belongs to another
// user, or every user may write to it, it is returned with an error, for callers that only read.
func PrivateDir(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o002 == 0 {
		return path, nil // whatever is wrong with it, its use will show
	}
	if !isMountRoot(path) {
		return "", fmt.Errorf("%s: %w: take that right away with chmod o-w, or name another directory", path, ErrPublic)
	}
	own := filepath.Join(path, "pulsegate")
	info, err = os.Lstat(own)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return own, nil
	case err != nil:
		return own, err
	case !info.IsDir():
		return own, fmt.Errorf("%s is not a directory, and every user may write to %s: remove it, or name another directory",
			own, path)
	case !isOwn(info):
		return own, fmt.Errorf("%s belongs to another user than that of this process, and every user may write to %s: "+
			"change its owner, or name another directory", own, path)
	case info.Mode().Perm()&0o002 != 0:
		return own, fmt.Errorf("%s: %w: take that right away with chmod o-w, or name another directory", own, ErrPublic)
	}
	return own, nil
}

// giveToFolder changes the owner of a new file to the owner of the directory of path.
// Otherwise a file created by root would be inaccessible to him.
func giveToFolder(file *os.File, path string) {
	if info, err := os.Stat(filepath.Dir(path)); err == nil {
		_ = giveTo(file, info) // fails for users other than root, who keep the file
	}
}

// Replace durably and atomically replaces the file at path with one that contains data.
// The caller must hold the lock of path, and path must not be a link.
//
// A new file is accessible only to the directory's owner. An existing file keeps its owner
// and its mode, except write permission for group and others: users who could read it,
// such as a server that runs as another user, still can. After any error but
// [ErrUncertain] the file is unchanged.
func Replace(path string, data []byte) error {
	tmp := path + ".tmp"
	// A file left over from a crash is not in use, because the caller holds the lock.
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

// writeNew durably creates the file tmp with the owner and mode of the file at like.
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

// Read reads a regular file of at most maxBytes. Unlike the functions that change files it follows links:
// mounted secrets are links.
func Read(path string, maxBytes int64) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && int64(len(text)) > maxBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxBytes)
	}
	return text, err
}

// maxSecretBytes bounds a file with a secret.
const maxSecretBytes = 4 << 10

// Secret reads a file with a secret, such as a password or a token, which is a line of text. Its errors do
// not have what is in it.
func Secret(path string) (string, error) {
	text, err := Read(path, maxSecretBytes)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%s: not a line of text", path)
	}
	return secret, nil
}

// SyncDir makes the entries of a directory durable.
func SyncDir(path string) (err error) {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Sync()
}
