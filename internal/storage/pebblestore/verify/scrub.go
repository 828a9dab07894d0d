package verify

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
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
//   - Reads bypass the block cache, and where possible the page cache. See datadir.ChunkedFile.
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

// Options configures a [Scrubber]. All fields must be set.
type Options struct {
	Dir    *datadir.Dir
	Name   string // of the directory, for the log
	Reader sstable.ReaderOptions
	Log    *slog.Logger

	// Tables returns the tables that the store has now. An error means that it is being closed.
	Tables func() ([]datadir.Table, error)

	// AwaitTurn waits until the scrub may have a file open. It may until the returned context
	// ends, and must call done after it has closed the file.
	AwaitTurn func(ctx context.Context) (turn context.Context, done func(), err error)

	// OnDamage is called for damage of a file, which err names.
	OnDamage func(err error)
}

// A Scrubber reads the files of an open store periodically.
type Scrubber struct {
	Options

	// BytesRead is the number of bytes read so far.
	BytesRead atomic.Int64

	// EndedUnixMs is the end of the last complete pass; 0 before the first.
	EndedUnixMs atomic.Int64

	// Damaged and Unreadable are the numbers of tables that could not be verified.
	Damaged, Unreadable atomic.Int64

	// Of Run.
	period   time.Duration
	state    *scrubState
	bad      map[uint64]*badTable // the tables that failed, by number
	nextRead time.Time            // not before this
	unsaved  bool                 // state has changed since savedAt
	savedAt  time.Time
}

// A badTable is a table that could not be verified.
type badTable struct {
	damaged bool
	retryAt time.Time     // zero means in the next pass
	delay   time.Duration // from the last attempt to retryAt
}

// NewScrubber returns a Scrubber. It reads nothing yet.
func NewScrubber(o Options) *Scrubber { return &Scrubber{Options: o} }

// Run verifies all tables, one pass in each period, until ctx ends or the store is closed. At most
// one call may be active.
func (c *Scrubber) Run(ctx context.Context, period time.Duration) {
	c.load(period)
	for wait := min(scrubStartDelay, c.period/100); sleep(ctx, wait) == nil; {
		files, err := c.Tables()
		if err != nil {
			break // the store is being closed
		}
		wait = c.step(ctx, files)
	}
	if c.unsaved {
		c.save()
	}
}

// load reads the progress.
func (c *Scrubber) load(period time.Duration) {
	c.period, c.bad, c.savedAt = period, map[uint64]*badTable{}, time.Now()
	var err error
	if c.state, err = readScrub(c.Dir); err != nil {
		c.Log.Warn("scrub progress cannot be read: a new pass starts", "dir", c.Name, "error", err)
	}
	for _, number := range c.state.bad {
		c.bad[number] = &badTable{retryAt: time.Now()}
	}
	c.EndedUnixMs.Store(c.state.endedUnixMs)
}

// step does the next piece of work and returns the time until there is more.
func (c *Scrubber) step(ctx context.Context, files []datadir.Table) (wait time.Duration) {
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
func (c *Scrubber) prune(files []datadir.Table) {
	maps.DeleteFunc(c.bad, func(number uint64, _ *badTable) bool {
		_, live := slices.BinarySearchFunc(files, number, compareNumber)
		return !live
	})
	c.publish()
}

// publish updates the counts of failed tables.
func (c *Scrubber) publish() {
	damaged := 0
	for _, b := range c.bad {
		if b.damaged {
			damaged++
		}
	}
	c.Damaged.Store(int64(damaged))
	c.Unreadable.Store(int64(len(c.bad) - damaged))
}

func compareNumber(f datadir.Table, number uint64) int { return cmp.Compare(f.Number, number) }

// retry returns a failed table that is due for another attempt. All failed tables must be
// among files.
func (c *Scrubber) retry(now time.Time, files []datadir.Table) (datadir.Table, bool) {
	for number, b := range c.bad {
		if !b.retryAt.IsZero() && !now.Before(b.retryAt) {
			i, _ := slices.BinarySearchFunc(files, number, compareNumber)
			return files[i], true
		}
	}
	return datadir.Table{}, false
}

// untilNext returns the time until the next pass or retry, at most scrubIdleFor.
func (c *Scrubber) untilNext(now time.Time) time.Duration {
	wait := time.UnixMilli(c.state.begunUnixMs).Add(c.period).Sub(now)
	for _, b := range c.bad {
		if !b.retryAt.IsZero() {
			wait = min(wait, b.retryAt.Sub(now))
		}
	}
	return min(wait, scrubIdleFor)
}

func (c *Scrubber) beginPass(ctx context.Context, now time.Time, files []datadir.Table) {
	turn, end, err := c.AwaitTurn(ctx)
	if err != nil {
		return
	}
	rate := scrubRate(datadir.TotalBytes(files), c.period-c.period/8)
	err = c.Dir.VerifyOpen(c.damaged, func(path string) func(n int64) error { return c.pace(turn, path, rate) })
	interrupted := turn.Err() != nil
	end()
	switch {
	case err != nil && interrupted:
		return
	case err != nil:
		c.Log.Warn("files of the store cannot be read: the next scrub pass retries them", "dir", c.Name, "error", err)
	}
	last := uint64(0)
	if len(files) > 0 {
		last = files[len(files)-1].Number
	}
	c.state.begin(now.UnixMilli(), last)
	c.unsaved = true
}

// continuePass verifies the next table of the pass, or ends the pass.
func (c *Scrubber) continuePass(ctx context.Context, now time.Time, files []datadir.Table) (wait time.Duration) {
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

func (c *Scrubber) endPass(now time.Time) {
	c.state.end(now.UnixMilli())
	c.EndedUnixMs.Store(c.state.endedUnixMs)
	c.Log.Info("scrub pass finished", "dir", c.Name,
		"took", now.Sub(time.UnixMilli(c.state.begunUnixMs)).Round(time.Second),
		"damaged", c.Damaged.Load(), "unreadable", c.Unreadable.Load())
	c.save()
}

// verify verifies a table. It reports whether the result is final, which it is not after an
// interruption, and how long to wait before the next read.
func (c *Scrubber) verify(ctx context.Context, f datadir.Table, bytesPerSecond int64) (done bool, wait time.Duration) {
	turn, end, err := c.AwaitTurn(ctx)
	if err != nil {
		return false, 0
	}
	path := c.Dir.File(f.Name)
	err = datadir.VerifyTable(turn, c.Dir.FS, path, c.Reader, func(file vfs.File) (sstable.ReadableFile, error) {
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
func (c *Scrubber) live(f datadir.Table) bool {
	files, err := c.Tables()
	_, live := slices.BinarySearchFunc(files, f.Number, compareNumber)
	return err == nil && live
}

// markVerified records that a table was verified.
func (c *Scrubber) markVerified(f datadir.Table, path string) {
	if c.bad[f.Number] == nil {
		return
	}
	c.Log.Info("table verified after an earlier failure", "file", path)
	delete(c.bad, f.Number)
	c.publish()
	c.save()
}

// failed records that a table could not be verified, and returns how long to wait before the
// next read.
func (c *Scrubber) failed(f datadir.Table, path string, err error) (wait time.Duration) {
	b := c.bad[f.Number]
	if b == nil {
		b = &badTable{}
		c.bad[f.Number] = b
	}
	if b.damaged = !damage.IsFault(err); b.damaged {
		b.retryAt = time.Time{}
		c.damaged(fmt.Errorf("%w: file %s: %s", storage.ErrCorrupt, path, damage.FirstLine(err)))
	} else {
		b.delay = max(2*b.delay, scrubRetryAfter)
		b.retryAt = time.Now().Add(b.delay)
		wait = scrubFaultPause
		c.Log.Warn("table cannot be read: the scrub retries it", "file", path, "in", b.delay, "error", err)
	}
	c.publish()
	c.save()
	return wait
}

// damaged reports damage. err names the file.
func (c *Scrubber) damaged(err error) {
	c.OnDamage(err)
	c.Log.Error("stored file is damaged", "dir", c.Name, "error", err)
}

// pace returns a function to call before reading bytes of a file. It returns an error when the
// turn has ended or the file is gone.
func (c *Scrubber) pace(turn context.Context, path string, bytesPerSecond int64) func(n int64) error {
	return func(n int64) error {
		if err := sleep(turn, time.Until(c.nextRead)); err != nil {
			return err
		}
		if _, err := c.Dir.FS.Stat(path); err != nil {
			return err
		}
		c.nextRead = time.Now().Add(time.Duration(float64(n) / float64(bytesPerSecond) * float64(time.Second)))
		c.BytesRead.Add(n)
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
func (c *Scrubber) save() {
	c.savedAt, c.unsaved = time.Now(), false
	c.state.bad = slices.Sorted(maps.Keys(c.bad))
	c.state.bad = c.state.bad[:min(len(c.state.bad), maxScrubBad)]
	if err := c.state.write(c.Dir); err != nil {
		c.Log.Warn("scrub progress cannot be stored: after a restart, some tables are read again", "dir", c.Name,
			"error", err)
	}
}
