// Package damage distinguishes damage of stored data from errors of the operating system.
//
// # Promise
//
// An error that wraps storage.ErrCorrupt means that stored bytes are not what was written. The error
// of a failing disk, or of a limit, does not: it may be temporary, and is returned unchanged.
//
// # Not here
//
// What to do about either: callers differ.
package damage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// Wrap wraps Pebble's errors about damage with storage.ErrCorrupt and the file's name.
func Wrap(err error) error {
	if err == nil || IsFault(err) || !pebble.IsCorruptionError(err) || errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, info.Path, FirstLine(err))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, FirstLine(err)+details(err))
}

// IsFault reports whether err is an error of the operating system, such as that of a
// failing disk or of a limit, or of a context that has ended. It is not damage of stored
// data. A missing file is damage, and not a fault.
func IsFault(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}

// First returns the first of two errors of reads, or a fault rather than damage: what was not
// read because of a fault can be read later.
func First(a, b error) error {
	if a == nil || IsFault(b) && !IsFault(a) {
		return b
	}
	return a
}

// Missing wraps err with storage.ErrCorrupt if it means that a required file is missing.
func Missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return err
}

// FirstLine returns the first line of err's text: without joined errors.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// details returns the details that Pebble attaches to an error and that are not in its
// text, such as the log that was being replayed.
func details(err error) string {
	var all []string
	for ; err != nil; err = errors.Unwrap(err) {
		if d, ok := err.(interface{ ErrorDetail() string }); ok {
			all = append(all, d.ErrorDetail())
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, "; ") + ")"
}
