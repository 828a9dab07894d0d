package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Report is the result of a check.
type Report struct {
	Format int // version of the directory

	Devices  int64
	Readings int64
	Values   [vitals.MaxSigns]int64 // by sign
	Signs    *vitals.Signs          // that the store has; nil if it could not be opened

	Assignments int64 // of devices to subjects

	// OldestUnixMs and NewestUnixMs are the times of the oldest and the newest
	// reading; both are 0 if there are no readings.
	OldestUnixMs, NewestUnixMs int64

	Erasing vitals.Name // device of an unfinished erasure; zero means there is none

	Tables     int   // table files
	TableBytes int64 // size of the table files
	LogBytes   int64 // size of the write-ahead log's files

	// Problems holds the first hundred problems; More is the number of further ones.
	Problems []error
	More     int
}

const maxProblems = 100

// A Checker verifies a store that is not in use, and reports what it finds.
type Checker struct {
	Report Report

	ctx      context.Context
	progress func(tableBytes, ofTableBytes, readings int64) // may be nil
	verified int64                                          // bytes of tables
}

// NewChecker returns a Checker that has found nothing yet. It stops when ctx ends. progress, if not nil, is
// called periodically with the number of verified bytes in tables, the number of all bytes in tables, and the
// number of verified readings.
func NewChecker(ctx context.Context, progress func(tableBytes, ofTableBytes, readings int64)) *Checker {
	return &Checker{ctx: ctx, progress: progress}
}

// Problem adds a problem to the report. Only one that is no fault means damage.
func (c *Checker) Problem(err error) {
	if !errors.Is(err, storage.ErrCorrupt) && !damage.IsFault(err) {
		err = fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	if len(c.Report.Problems) >= maxProblems {
		c.Report.More++
		return
	}
	c.Report.Problems = append(c.Report.Problems, err)
}

func (c *Checker) step() error {
	if c.progress != nil {
		c.progress(c.verified, c.Report.TableBytes, c.Report.Readings)
	}
	return c.ctx.Err()
}

// ProblemOrFault adds damage to the report, and returns any other error.
func (c *Checker) ProblemOrFault(err error) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	c.Problem(err)
	return nil
}

// Tables verifies the checksum of every block of every table, including blocks that no
// read uses.
func (c *Checker) Tables(fs vfs.FS, dir string, files []datadir.Table, reader sstable.ReaderOptions) error {
	c.Report.Tables = len(files)
	c.Report.TableBytes = datadir.TotalBytes(files)
	for _, f := range files {
		if err := c.step(); err != nil {
			return err
		}
		path := fs.PathJoin(dir, f.Name)
		err := datadir.VerifyTable(c.ctx, fs, path, reader, nil)
		if damage.IsFault(err) {
			return err
		}
		if err != nil {
			c.Problem(fmt.Errorf("file %s: %s", path, damage.FirstLine(err)))
		}
		c.verified += f.Bytes
	}
	return c.step()
}
