package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// ErrReadOnly means that the store was opened with Options.ReadOnly. It comes with
// storage.ErrNotWritten.
var ErrReadOnly = errors.New("pebblestore: opened read-only")

// corrupt marks Pebble's reports of damage as storage.ErrCorrupt, and names the file.
func corrupt(err error) error {
	if err == nil || !pebble.IsCorruptionError(err) || errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, info.Path, firstLine(err))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, firstLine(err)+details(err))
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
