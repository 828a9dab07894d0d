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

// ErrReadOnly means that the store was opened with Options.ReadOnly. It comes with
// storage.ErrNotWritten.
var ErrReadOnly = errors.New("pebblestore: opened read-only")

// corrupt marks Pebble's reports of damage as storage.ErrCorrupt, and names the file.
func corrupt(err error) error {
	if err == nil || isFault(err) || !pebble.IsCorruptionError(err) || errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, info.Path, firstLine(err))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, firstLine(err)+details(err))
}

// isFault reports whether the operating system refused an operation, on a disk that fails
// or at a limit, which says nothing about what is stored. That a file is not there does.
func isFault(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}

// openError returns what the error of Pebble's Open says of a store that had been opened
// before.
func (d *directory) openError(err error) error {
	switch {
	case isFault(err):
		return err
	case errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, pebble.ErrDBNotPristine), errors.Is(err, fs.ErrNotExist):
		// Pebble would have made what is missing, had it been allowed to.
		err = fmt.Errorf("files of the store are missing: %s", firstLine(err))
	case strings.Contains(err.Error(), "invalid key=value syntax"), strings.Contains(err.Error(), "invalid section"):
		return fmt.Errorf("%w: file %s*: %s", storage.ErrCorrupt, d.fs.PathJoin(d.path, optionsPrefix), firstLine(err))
	case pebble.IsCorruptionError(err):
		return corrupt(err)
	}
	// What is left is that the files contradict each other.
	if table := tableInText.FindStringSubmatch(err.Error()); table != nil {
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, d.fs.PathJoin(d.path, table[1]+tableSuffix), firstLine(err))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, firstLine(err))
}

// tableInText finds the number of a table in Pebble's texts.
var tableInText = regexp.MustCompile(`\bL[0-6]: ([0-9]{6,})\b`)

// missing marks the error of a file that is not there, but must be, as storage.ErrCorrupt.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return err
}

// firstLine returns the text of err without what was joined to it.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// details returns what Pebble attaches to an error and does not show in its text,
// such as which log was being replayed.
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

// readingError names a reading whose value is damaged, by its key alone.
func readingError(device *vitals.Name, timeUnixMs int64, err error) error {
	return fmt.Errorf("%w: reading of device %s at %d: %w", storage.ErrCorrupt, device, timeUnixMs, err)
}

// recordError names a device whose record is damaged.
func recordError(device *vitals.Name, err error) error {
	return fmt.Errorf("%w: record of device %s: %w", storage.ErrCorrupt, device, err)
}

// joinClose closes c after err and returns both errors.
func joinClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
