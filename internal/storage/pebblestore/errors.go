package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// ErrReadOnly means that the store was opened with Options.ReadOnly. Append returns it
// with storage.ErrNotWritten.
var ErrReadOnly = errors.New("pebblestore: opened read-only")

// corrupt wraps Pebble's errors about damage with storage.ErrCorrupt and the file's name.
func corrupt(err error) error {
	if err == nil || isFault(err) || !pebble.IsCorruptionError(err) || errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, info.Path, firstLine(err))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, firstLine(err)+details(err))
}

// isFault reports whether err is an error of the operating system, such as that of a
// failing disk or of a limit. It is not damage of stored data. A missing file is damage,
// and not a fault.
func isFault(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}

// faultFirst returns the first of two errors of reads, or a fault rather than damage: what was not
// read because of a fault can be read later.
func faultFirst(a, b error) error {
	if a == nil || isFault(b) && !isFault(a) {
		return b
	}
	return a
}

// openError translates an error of Pebble's Open for a store that existed before.
func (d *directory) openError(err error) error {
	switch {
	case isFault(err):
		return err
	case errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, pebble.ErrDBNotPristine), errors.Is(err, fs.ErrNotExist):
		// Without ErrorIfNotExists, Pebble would have created the missing files.
		err = fmt.Errorf("files of the store are missing: %s", firstLine(err))
	case strings.Contains(err.Error(), "invalid key=value syntax"), strings.Contains(err.Error(), "invalid section"):
		return fmt.Errorf("%w: file %s*: %s", storage.ErrCorrupt, d.fs.PathJoin(d.path, optionsPrefix), firstLine(err))
	case pebble.IsCorruptionError(err):
		return corrupt(err)
	}
	// All other errors mean that the files contradict each other.
	if table := tableInText.FindStringSubmatch(err.Error()); table != nil {
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, d.fs.PathJoin(d.path, table[1]+tableSuffix), firstLine(err))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, firstLine(err))
}

// tableInText finds the number of a table in Pebble's texts.
var tableInText = regexp.MustCompile(`\bL[0-6]: ([0-9]{6,})\b`)

// missing wraps err with storage.ErrCorrupt if it means that a required file is missing.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return err
}

// firstLine returns the first line of err's text: without joined errors.
func firstLine(err error) string {
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

// recordError returns an error for a device whose record is damaged.
func recordError(device *vitals.Name, err error) error {
	return fmt.Errorf("%w: record of device %s: %w", storage.ErrCorrupt, device, err)
}

// joinClose closes c and returns err joined with the error of Close.
func joinClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
