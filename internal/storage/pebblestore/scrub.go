package pebblestore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// # Scrubbing
//
// Damage in old readings goes unnoticed until they are read, and by then the backups from
// before the damage may be gone. The scrub therefore reads every table of an open store
// periodically and verifies the checksum of every block.
//
//   - A pass reads the tables in the order of their numbers, up to the newest table at its
//     start. Newer tables have just been written and synced; the next pass reads them.
//   - A pass is paced to finish after seven eighths of its period. The rest is slack for slow
//     disks and for pauses. See scrubRate.
//   - Reads bypass the block cache, and where possible the page cache. See chunkedFile.
//   - The scrub has a file open only within a turn. An erasure or a backup ends the turn and
//     waits until the file is closed; the scrub then waits for its end, and starts the table
//     again. When compaction removes the table that is being read, the scrub closes it before
//     the next chunk, which frees its space. Errors of a table that the store no longer has are
//     ignored.
//   - Progress is stored in the file SCRUB, at most once a minute. Without it, a server that
//     restarts every day would verify the first tables every day and the last ones never.
//     Tables that failed are stored with it and are verified first after a restart, so that a
//     restart does not hide damage until the next pass.
//
// A pass starts with the manifest, which is paced like a table, and with the files that do not
// change while the store is open. Logs are not read: their readings are also in the memtable, from which they are
// written to a table.
//
// An error of the operating system is not damage, because it may be temporary. The table
// is retried after ten minutes, and the delay doubles with each failure.
const (
	scrubMinRate = 256 << 10 // bytes per second; one chunk
	scrubMaxRate = 8 << 20   // 4 TB in a week

	scrubStartDelay = time.Minute      // keeps the disk free during the start
	scrubSaveEvery  = time.Minute      // shortest time between two writes of the progress
	scrubIdleFor    = time.Hour        // longest time between two checks of the clock and the tables
	scrubFaultPause = time.Minute      // after a table that could not be read
	scrubRetryAfter = 10 * time.Minute // first delay
)

// scrubRate returns the rate, in bytes per second, at which to read the given number of
// bytes within the time left.
func scrubRate(bytes int64, left time.Duration) int64 {
	if left <= 0 {
		return scrubMaxRate
	}
	return int64(min(max(float64(bytes)/left.Seconds(), scrubMinRate), scrubMaxRate))
}

// scrubCounters holds the metrics of the scrub.
type scrubCounters struct {
	bytes       atomic.Int64
	endedUnixMs atomic.Int64
	damaged     atomic.Int64 // tables
	unreadable  atomic.Int64 // tables
}

// Scrub verifies all tables, one pass in each period, until ctx ends or the store is closed.
// Close waits for it. Findings are logged, and reported by Degraded and the metrics. At most
// one call may be active. For a read-only store Scrub does nothing.
func (s *Store) Scrub(ctx context.Context, period time.Duration) {
	if s.readOnly {
		return
	}
	leave, ok := s.maintenance.join()
	if !ok {
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.maintenance.ctx, cancel)()
	newScrubber(s, period).run(ctx)
}

// A scrubber is one call of Scrub.
type scrubber struct {
	s      *Store
	period time.Duration
	reader sstable.ReaderOptions
	state  *scrubState

	// bad holds the tables that failed, by number.
	bad map[uint64]*badTable

	nextRead time.Time // not before this
	unsaved  bool      // state has changed since savedAt
	savedAt  time.Time
}

// A badTable is a table that could not be verified.
type badTable struct {
	damaged bool
	retryAt time.Time     // zero: in the next pass
	delay   time.Duration // from the last attempt to retryAt
}

func newScrubber(s *Store, period time.Duration) *scrubber {
	c := &scrubber{s: s, period: period, reader: tableOptions(s.options), bad: map[uint64]*badTable{}, savedAt: time.Now()}
	var err error
	if c.state, err = readScrub(s.files); err != nil {
		s.options.Log.Warn("scrub progress cannot be read: a new pass starts", "dir", s.dir, "error", err)
	}
	for _, number := range c.state.bad {
		c.bad[number] = &badTable{retryAt: time.Now()}
	}
	s.scrubbed.endedUnixMs.Store(c.state.endedUnixMs)
	return c
}

func (c *scrubber) run(ctx context.Context) {
	for wait := min(scrubStartDelay, c.period/100); sleep(ctx, wait) == nil; {
		files, err := c.s.tableFiles()
		if err != nil {
			break // the store is being closed
		}
		wait = c.step(ctx, files)
	}
	if c.unsaved {
		c.save()
	}
}

// tableFiles returns the files of the tables that the store has now.
func (s *Store) tableFiles() ([]datadir.Table, error) {
	v, err := s.views.acquire() // keeps the tree open
	if err != nil {
		return nil, err
	}
	defer s.views.release(v)
	return datadir.Tables(s.db)
}

// step does the next piece of work and returns the time until there is more.
func (c *scrubber) step(ctx context.Context, files []datadir.Table) (wait time.Duration) {
	c.prune(files)
	now := time.Now()
	if begun := &c.state.begunUnixMs; *begun > now.UnixMilli() { // the clock was set back
		*begun = now.UnixMilli()
	}
	if f, ok := c.retry(now, files); ok {
		_, wait = c.verify(ctx, f, scrubMinRate)
		return wait
	}
	if c.state.underWay() {
		return c.continuePass(ctx, now, files)
	}
	if wait = c.untilNext(now); wait <= 0 {
		c.beginPass(ctx, now, files)
	}
	return wait
}

// prune removes failed tables that the store no longer has.
func (c *scrubber) prune(files []datadir.Table) {
	maps.DeleteFunc(c.bad, func(number uint64, _ *badTable) bool {
		_, live := slices.BinarySearchFunc(files, number, compareNumber)
		return !live
	})
	c.publish()
}

// publish updates the counts of failed tables.
func (c *scrubber) publish() {
	damaged := 0
	for _, b := range c.bad {
		if b.damaged {
			damaged++
		}
	}
	c.s.scrubbed.damaged.Store(int64(damaged))
	c.s.scrubbed.unreadable.Store(int64(len(c.bad) - damaged))
}

func compareNumber(f datadir.Table, number uint64) int { return cmp.Compare(f.Number, number) }

// retry returns a failed table that is due for another attempt. All failed tables must be
// among files.
func (c *scrubber) retry(now time.Time, files []datadir.Table) (datadir.Table, bool) {
	for number, b := range c.bad {
		if !b.retryAt.IsZero() && !now.Before(b.retryAt) {
			i, _ := slices.BinarySearchFunc(files, number, compareNumber)
			return files[i], true
		}
	}
	return datadir.Table{}, false
}

// untilNext returns the time until the next pass or retry, at most scrubIdleFor.
func (c *scrubber) untilNext(now time.Time) time.Duration {
	wait := time.UnixMilli(c.state.begunUnixMs).Add(c.period).Sub(now)
	for _, b := range c.bad {
		if !b.retryAt.IsZero() {
			wait = min(wait, b.retryAt.Sub(now))
		}
	}
	return min(wait, scrubIdleFor)
}

func (c *scrubber) beginPass(ctx context.Context, now time.Time, files []datadir.Table) {
	turn, end, err := c.s.maintenance.awaitTurn(ctx)
	if err != nil {
		return
	}
	rate := scrubRate(datadir.TotalBytes(files), c.period-c.period/8)
	err = c.s.files.VerifyOpen(c.damaged, func(path string) func(n int64) error { return c.pace(turn, path, rate) })
	interrupted := turn.Err() != nil
	end()
	switch {
	case err != nil && interrupted:
		return
	case err != nil:
		c.s.options.Log.Warn("files of the store cannot be read: the next scrub pass retries them", "dir", c.s.dir, "error", err)
	}
	last := uint64(0)
	if len(files) > 0 {
		last = files[len(files)-1].Number
	}
	c.state.begin(now.UnixMilli(), last)
	c.unsaved = true
}

// continuePass verifies the next table of the pass, or ends the pass.
func (c *scrubber) continuePass(ctx context.Context, now time.Time, files []datadir.Table) (wait time.Duration) {
	rest := c.state.rest(files)
	if len(rest) == 0 {
		c.endPass(now)
		return 0
	}
	deadline := time.UnixMilli(c.state.begunUnixMs).Add(c.period - c.period/8)
	done, wait := c.verify(ctx, rest[0], scrubRate(datadir.TotalBytes(rest), deadline.Sub(now)))
	if done {
		c.state.next, c.unsaved = rest[0].Number+1, true
		if time.Since(c.savedAt) >= scrubSaveEvery {
			c.save()
		}
	}
	return wait
}

func (c *scrubber) endPass(now time.Time) {
	c.state.end(now.UnixMilli())
	c.s.scrubbed.endedUnixMs.Store(c.state.endedUnixMs)
	c.s.options.Log.Info("scrub pass finished", "dir", c.s.dir,
		"took", now.Sub(time.UnixMilli(c.state.begunUnixMs)).Round(time.Second),
		"damaged", c.s.scrubbed.damaged.Load(), "unreadable", c.s.scrubbed.unreadable.Load())
	c.save()
}

// verify verifies a table. It reports whether the result is final, which it is not after an
// interruption, and how long to wait before the next read.
func (c *scrubber) verify(ctx context.Context, f datadir.Table, bytesPerSecond int64) (done bool, wait time.Duration) {
	turn, end, err := c.s.maintenance.awaitTurn(ctx)
	if err != nil {
		return false, 0
	}
	path := c.s.files.FS.PathJoin(c.s.path, f.Name)
	err = datadir.VerifyTable(turn, c.s.files.FS, path, c.reader, func(file vfs.File) (sstable.ReadableFile, error) {
		return datadir.NewChunkedFile(file, c.pace(turn, path, bytesPerSecond))
	})
	interrupted := turn.Err() != nil
	end()
	switch {
	case err == nil:
		c.markVerified(f, path)
		return true, 0
	case interrupted:
		return false, 0
	case !c.live(f):
		return true, 0
	}
	return true, c.failed(f, path, err)
}

// live reports whether the store still has a table.
func (c *scrubber) live(f datadir.Table) bool {
	files, err := c.s.tableFiles()
	_, live := slices.BinarySearchFunc(files, f.Number, compareNumber)
	return err == nil && live
}

// markVerified records that a table was verified.
func (c *scrubber) markVerified(f datadir.Table, path string) {
	if c.bad[f.Number] == nil {
		return
	}
	c.s.options.Log.Info("table verified after an earlier failure", "file", path)
	delete(c.bad, f.Number)
	c.publish()
	c.save()
}

// failed records that a table could not be verified, and returns how long to wait before the
// next read.
func (c *scrubber) failed(f datadir.Table, path string, err error) (wait time.Duration) {
	b := c.bad[f.Number]
	if b == nil {
		b = &badTable{}
		c.bad[f.Number] = b
	}
	if b.damaged = !isFault(err); b.damaged {
		b.retryAt = time.Time{}
		c.damaged(fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, path, damage.FirstLine(err)))
	} else {
		b.delay = max(2*b.delay, scrubRetryAfter)
		b.retryAt = time.Now().Add(b.delay)
		wait = scrubFaultPause
		c.s.options.Log.Warn("table cannot be read: the scrub retries it", "file", path, "in", b.delay, "error", err)
	}
	c.publish()
	c.save()
	return wait
}

// damaged reports damage. err names the file.
func (c *scrubber) damaged(err error) {
	c.s.troubles.damage(err)
	c.s.options.Log.Error("stored file is damaged", "dir", c.s.dir, "error", err)
}

// pace returns a function to call before reading bytes of a file. It returns an error when the
// turn has ended or the file is gone.
func (c *scrubber) pace(turn context.Context, path string, bytesPerSecond int64) func(n int64) error {
	return func(n int64) error {
		if err := sleep(turn, time.Until(c.nextRead)); err != nil {
			return err
		}
		if _, err := c.s.files.FS.Stat(path); err != nil {
			return err
		}
		c.nextRead = time.Now().Add(time.Duration(float64(n) / float64(bytesPerSecond) * float64(time.Second)))
		c.s.scrubbed.bytes.Add(n)
		return nil
	}
}

// sleep waits for d, or until ctx ends, and then returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// save stores the progress.
func (c *scrubber) save() {
	c.savedAt, c.unsaved = time.Now(), false
	c.state.bad = slices.Sorted(maps.Keys(c.bad))
	c.state.bad = c.state.bad[:min(len(c.state.bad), maxScrubBad)]
	if err := c.state.write(c.s.files); err != nil {
		c.s.options.Log.Warn("scrub progress cannot be stored: after a restart, some tables are read again", "dir", c.s.dir, "error", err)
	}
}
