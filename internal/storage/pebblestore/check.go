package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/verify"
	"github.com/pulsegate/pulsegate/vitals"
)

// CheckOptions configures [Check]. The zero value is valid.
type CheckOptions struct {
	// Progress is as in [verify.NewChecker].
	Progress func(tableBytes, ofTableBytes, readings int64)

	Log *slog.Logger // as in Options
	FS  vfs.FS       // as in Options
}

// A Report is the result of Check.
type Report = verify.Report

// Check opens the store in dir read-only and verifies all of it: that the log can be
// replayed, that every block of every table matches its checksum, that Pebble's levels
// are ordered, that every key and value is well-formed, and that the package comment's
// invariants of device records hold. It changes nothing but the lock file, and works
// on a store after a crash.
//
// If the store has problems, the error joins the Problems of the Report and wraps
// storage.ErrCorrupt. If the store cannot be opened, the error is also that of Open, and
// the Report holds what was found so far.
func Check(ctx context.Context, dir string, o CheckOptions) (Report, error) {
	c := checker{verify.NewChecker(ctx, o.Progress)}
	opts := Options{FS: o.FS, Log: o.Log, ReadOnly: true, MinFreeBytes: -1, inspect: c.files,
		problem: c.ProblemOrFault}.withDefaults()
	err := c.run(dir, opts)
	// A damaged file found so far may be the reason why the store cannot be opened.
	if err = errors.Join(errors.Join(c.Report.Problems...), err); err != nil {
		return c.Report, fmt.Errorf("check store %s: %w", dir, err)
	}
	return c.Report, nil
}

// A checker checks a store.
type checker struct{ *verify.Checker }

func (c checker) run(dir string, o Options) (err error) {
	s, err := open(dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	c.Report.Signs = s.signs
	c.Report.Format = datadir.Version
	logs, err := datadir.LogBytes(s.files.FS, s.path)
	if err != nil {
		return err
	}
	c.Report.LogBytes = int64(logs)
	tables, err := datadir.Tables(s.db)
	if err != nil {
		return err
	}
	if err := c.Tables(s.files.FS, s.path, tables, tableOptions(o)); err != nil {
		return err
	}
	if err := c.content(s); err != nil {
		return err
	}
	err = s.db.CheckLevels(nil)
	if err == nil || damage.IsFault(err) {
		return err
	}
	c.Problem(damage.Wrap(err))
	return nil
}

// files verifies files that Pebble does not verify, or does not read.
func (c checker) files(d *datadir.Dir) (*datadir.List, error) {
	l, err := d.Verify(c.Problem)
	if err != nil {
		return nil, err
	}
	in, err := purge.ReadIntent(d)
	if in != nil {
		c.Report.Erasing = in.Device
	}
	if err != nil {
		err = c.ProblemOrFault(err)
	}
	return l, err
}

// content verifies the content of the tree. Groups and the dictionary were verified when the store was opened.
func (c checker) content(s *Store) error {
	v, err := s.views.acquire()
	if err != nil {
		return err
	}
	defer s.views.release(v)
	names := s.gateways.names()
	return c.Content(verify.Content{
		View: v, Windows: v.windows, Signs: s.signs, Readings: s.readings.Load(),
		HasGateway: func(number uint32) bool { return names.at(number) != nil },
		Merge:      mergeRows,
	})
}

// mergeRows calls visit with the rows of a device from windows and segments.
func mergeRows(ctx context.Context, device *vitals.Name, windows [][]columns.Row,
	segments func() ([]columns.Row, error), visit func([]columns.Row)) error {
	merge := rowScanner{ctx: ctx, device: device}
	for _, rows := range windows {
		merge.sources = append(merge.sources, rowSource{rows: rows})
	}
	merge.sources = append(merge.sources, rowSource{more: segments})
	for {
		rows, err := merge.next(math.MaxInt)
		if err != nil || len(rows) == 0 {
			return err
		}
		visit(rows)
	}
}
