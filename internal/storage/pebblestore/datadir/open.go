package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
)

// OpenError translates an error of Pebble's Open for a store that existed before.
func (d *Dir) OpenError(err error) error {
	switch {
	case damage.IsFault(err):
		return err
	case errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, pebble.ErrDBNotPristine), errors.Is(err, fs.ErrNotExist):
		// Without ErrorIfNotExists, Pebble would have created the missing files.
		err = fmt.Errorf("files of the store are missing: %s", damage.FirstLine(err))
	case strings.Contains(err.Error(), "invalid key=value syntax"), strings.Contains(err.Error(), "invalid section"):
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, d.File(d.options()), damage.FirstLine(err))
	case pebble.IsCorruptionError(err):
		return damage.Wrap(err)
	}
	// All other errors mean that the files contradict each other.
	if table := tableInText.FindStringSubmatch(err.Error()); table != nil {
		return fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, d.File(table[1]+TableSuffix), damage.FirstLine(err))
	}
	return fmt.Errorf("%w: %s", storage.ErrCorrupt, damage.FirstLine(err))
}

// options returns the name of the newest file of options, which is the one that Pebble reads.
func (d *Dir) options() string {
	newest := optionsPrefix + "*" // if the files cannot be listed
	names, _ := d.FS.List(d.Path) // the error of Open is reported
	for _, name := range names {
		if strings.HasPrefix(name, optionsPrefix) && (newest == optionsPrefix+"*" || name > newest) {
			newest = name
		}
	}
	return newest
}

// tableInText finds the number of a table in Pebble's texts.
var tableInText = regexp.MustCompile(`\bL[0-6]: ([0-9]{6,})\b`)

// Prepare prepares the opening of a store for writing, with its verified list, or nil: it removes
// unfinished files, and marks the list as that of a store being opened. The error wraps
// storage.ErrDiskLow if there is not enough space to replay the log.
func (d *Dir) Prepare(l *List, minFreeBytes int64) error {
	d.WasClosed = l != nil && l.State.Complete()
	if err := checkReplaySpace(d.FS, d.Path, minFreeBytes); err != nil {
		return err
	}
	if err := removeUnfinished(d.FS, d.Path); err != nil {
		return fmt.Errorf("remove unfinished files: %w", err)
	}
	return d.beginOpening(l)
}
