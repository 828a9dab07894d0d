package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/bench/report"
	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// sealedCommand measures what sealing costs and saves in PostgreSQL, beside the same readings that are not sealed.
type sealedCommand struct {
	loads
	Devices int `default:"60" help:"Devices with a reading a minute."`
	Minutes int `default:"1440" help:"Readings of each device."`
	Long    int `default:"100000" help:"Readings of one further device."`
}

// A sealedKind is how readings are stored.
type sealedKind struct {
	name       string
	settings   []string // of PostgreSQL
	checked    bool     // as all rows were stored before a server expected readings to be new, and as migrate still stores them
	sealed     bool
	checkpoint bool // between storing and sealing, as there is one in practice: the log has whole pages of the rows that are sealed
	plain      bool // the sealer may not compress the pages that it writes
}

const (
	rowsChecked      = "rows, `ON CONFLICT`"
	rowsOnly         = "rows"
	sealed           = "sealed"
	sealedPlain      = "sealed after a checkpoint, without the right to compress"
	sealedLater      = "sealed after a checkpoint"
	sealedCompressed = "sealed after a checkpoint, `wal_compression = lz4`" // those of vacuum, too
)

func sealedKinds() []sealedKind {
	return []sealedKind{
		{name: rowsChecked, checked: true},
		{name: rowsOnly},
		{name: sealed, sealed: true},
		{name: sealedPlain, sealed: true, checkpoint: true, plain: true},
		{name: sealedLater, sealed: true, checkpoint: true},
		{name: sealedCompressed, sealed: true, checkpoint: true, settings: []string{"wal_compression=lz4"}},
	}
}

func (c *sealedCommand) Run(ctx context.Context, out io.Writer) error {
	if _, err := pgtest.Programs(); err != nil {
		return err
	}
	return c.with(ctx, out, c.measure)
}

func (c *sealedCommand) measure(ctx context.Context) error {
	result := &report.Table{Head: "readings", Columns: []report.Column{
		{Title: "disk, bytes a reading", Figure: "disk", Format: "%.1f"},
		{Title: "log of PostgreSQL, bytes a reading", Figure: "log", Format: "%.0f"},
		{Title: "CPU of PostgreSQL, µs a reading", Figure: "database", Format: "%.2f"},
		{Title: "a device-day, ms", Figure: "day", Format: "%.2f"},
		{Title: "all of the further device, ms", Figure: "long", Format: "%.0f"},
	}}
	if err := compare(&c.common, result, sealedKinds(), func(kind *sealedKind) (name, label string) { return kind.name, "" },
		func(kind *sealedKind) (report.Figures, error) { return c.seal(ctx, kind) }); err != nil {
		return err
	}
	r := c.reportOf(fmt.Sprintf("make bench-sealed ROUNDS=%d", c.Rounds), "Disk is the files of `segments` with their indexes, and of the rows in the other case, by the readings in them. Log and CPU are those of storing the readings in groups of 1,000, of sealing them, and "+
		"of a vacuum of the rows at the end. Scans are pages of 10,000 records, read by the store in this program into memory that it has; the median of several devices or scans.",
		fmt.Sprintf("Readings: %d devices with %d, and one with %d, one a minute with a jitter of a second; two signs, a gateway, received within two seconds", c.Devices, c.Minutes, c.Long),
		fmt.Sprintf("Rounds: %d, each with new databases", c.Rounds))
	r.Tables = []*report.Table{result}
	r.Goals = result.Goals(
		report.Bar{What: "disk, bytes a reading", Row: sealed, Figure: "disk", Limit: 16, Format: "%.1f"},
		report.Bar{What: "log / that of rows with `ON CONFLICT`", Row: sealed, Figure: "log", Base: rowsChecked, Limit: 1.3, Format: "%.2f"},
		report.Bar{What: "the same, with a checkpoint between storing and sealing, `wal_compression = lz4`", Row: sealedCompressed, Figure: "log", Base: rowsChecked, Limit: 1.3, Format: "%.2f"},
		report.Bar{What: "the same, where only the sealer compresses", Row: sealedLater, Figure: "log", Base: rowsChecked, Limit: 1.3, Format: "%.2f"},
		report.Bar{What: "the same, without the right to compress", Row: sealedPlain, Figure: "log", Base: rowsChecked, Limit: 1.3, Format: "%.2f"},
		report.Bar{What: "CPU of PostgreSQL / that of rows with `ON CONFLICT`", Row: sealed, Figure: "database", Base: rowsChecked, Limit: 1.5, Format: "%.2f"},
		report.Bar{What: "a device-day: time / that of rows", Row: sealed, Figure: "day", Base: rowsOnly, Limit: 0.33, Format: "%.2f"},
		report.Bar{What: "all of the further device: time / that of rows", Row: sealed, Figure: "long", Base: rowsOnly, Limit: 0.33, Format: "%.2f"},
	)
	return c.write("sealed", r)
}

// seal measures a new database.
func (c *sealedCommand) seal(ctx context.Context, kind *sealedKind) (f report.Figures, err error) {
	s := &cluster{contestant: &contestant{settings: slices.Concat(databaseSettings, kind.settings)}}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := c.startDatabases(ctx, s); err != nil {
		return nil, err
	}
	db := s.databases[0]
	m, err := s.meter()
	if err != nil {
		return nil, err
	}
	if err := c.storeAndSeal(ctx, db, kind); err != nil {
		return nil, err
	}
	if f, err = m.since(cost{readings: uint64(c.Devices*c.Minutes + c.Long)}); err != nil {
		return nil, err
	}
	var disk float64
	size := "SELECT sum(pg_total_relation_size(inhrelid))::float8 / (SELECT count(*) FROM pulsegate.readings) FROM pg_inherits WHERE inhparent = 'pulsegate.readings'::regclass"
	if kind.sealed {
		size = "SELECT pg_total_relation_size('pulsegate.segments')::float8 / sum(n) FROM pulsegate.segments"
	}
	if err := errors.Join(db.execute(ctx, "ANALYZE"), db.query(ctx, size, &disk)); err != nil {
		return nil, err
	}
	f["disk"] = disk
	store, err := pgstore.Open(ctx, pgstore.Options{DSN: db.dsn, Single: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if f["day"], err = scans(ctx, store, 400, func(i int) (vitals.Name, int64, int) {
		return sealedDevice(i % c.Devices), c.from(c.Minutes), min(c.Minutes, 1440)
	}); err != nil {
		return nil, err
	}
	f["long"], err = scans(ctx, store, 5, func(int) (vitals.Name, int64, int) { return sealedDevice(c.Devices), c.from(c.Long), c.Long })
	return f, err
}

// storeAndSeal stores the readings as kind says, and removes versions of rows that are no longer needed.
func (c *sealedCommand) storeAndSeal(ctx context.Context, db *database, kind *sealedKind) error {
	opt := pgstore.Options{DSN: db.dsn, Single: true}
	if kind.plain {
		const role = "unprivileged"
		if err := db.execute(ctx, "CREATE ROLE "+role+" LOGIN", "CREATE SCHEMA pulsegate AUTHORIZATION "+role); err != nil {
			return err
		}
		opt.DSN = strings.Replace(opt.DSN, "user="+databaseUser, "user="+role, 1)
	}
	stored := opt
	if kind.checked {
		stored.Move = pgstore.MoveTo
	}
	s, err := pgstore.Open(ctx, stored)
	if err == nil {
		err = errors.Join(c.fill(s), s.Close())
	}
	if err == nil && kind.checkpoint {
		err = db.execute(ctx, "CHECKPOINT")
	}
	if err == nil && kind.sealed {
		opt.SealAfter, opt.SealEvery = time.Hour, 5*time.Second
		if s, err = pgstore.Open(ctx, opt); err == nil {
			err = errors.Join(awaitSealed(ctx, db), s.Close())
		}
	}
	if err != nil {
		return err
	}
	return db.execute(ctx, "VACUUM pulsegate.readings")
}

// from returns the time of the first of n readings, which end two days ago.
func (c *sealedCommand) from(n int) int64 {
	return time.Now().Truncate(24*time.Hour).UnixMilli() - int64(n+2880)*60000
}

func sealedDevice(i int) vitals.Name {
	name, err := vitals.ParseName(fmt.Sprintf("device-%06d", i))
	if err != nil {
		panic(err)
	}
	return name
}

// fill stores the readings: minute by minute of all devices, then those of the further one.
func (c *sealedCommand) fill(s *pgstore.Store) error {
	random := rand.New(rand.NewPCG(1, 1))
	var group []*storage.Entry
	flush := func() error {
		err := s.Append(group)
		for _, e := range group {
			if err == nil && e.Outcome != storage.Stored {
				err = fmt.Errorf("a reading got outcome %d", e.Outcome)
			}
		}
		group = group[:0]
		return err
	}
	add := func(device, n, i int) error {
		gateway, err := vitals.ParseName(fmt.Sprintf("gateway-%d", device%20))
		if err != nil {
			return err
		}
		r := &vitals.Reading{Device: sealedDevice(device), TimeUnixMs: c.from(n) + int64(i)*60000 + random.Int64N(1000), Gateway: gateway}
		r.Values.Set(vitals.HeartRate, vitals.Value(6000+10*random.IntN(300)))
		r.Values.Set(vitals.SpO2, vitals.Value(9300+100*random.IntN(6)))
		if group = append(group, &storage.Entry{Reading: r, ReceivedUnixMs: r.TimeUnixMs + random.Int64N(2000)}); len(group) == 1000 {
			return flush()
		}
		return nil
	}
	for i := range c.Minutes {
		for d := range c.Devices {
			if err := add(d, c.Minutes, i); err != nil {
				return err
			}
		}
	}
	for i := range c.Long {
		if err := add(c.Devices, c.Long, i); err != nil {
			return err
		}
	}
	return flush()
}

// awaitSealed waits until all devices have been looked through. It asks on one connection: a new one each time would count as CPU of sealing.
func awaitSealed(ctx context.Context, db *database) error {
	conn, err := pgx.Connect(ctx, db.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for {
		var passed bool
		if err := conn.QueryRow(ctx, "SELECT passed_ms > 0 FROM pulsegate.state").Scan(&passed); err != nil || passed {
			return err
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// scans returns the median time of n scans, in ms.
func scans(ctx context.Context, s *pgstore.Store, n int, of func(i int) (device vitals.Name, fromMs int64, minutes int)) (float64, error) {
	dst := make([]storage.Record, 10000)
	var all []float64
	for i := range n {
		device, fromMs, minutes := of(i)
		took, err := scan(ctx, s, dst, device, fromMs, minutes)
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return report.SpreadOf(all).Median, nil
}

// scan reads a number of minutes of a device into dst, page by page, and returns how long it took, in ms.
func scan(ctx context.Context, s *pgstore.Store, dst []storage.Record, device vitals.Name, fromMs int64, minutes int) (float64, error) {
	r := storage.Range{Device: device, FromUnixMs: fromMs, ToUnixMs: fromMs + int64(minutes)*60000}
	began, read := time.Now(), 0
	for {
		n, err := s.Scan(ctx, r, dst)
		if err != nil {
			return 0, err
		}
		if read += n; n < len(dst) {
			break
		}
		r.FromUnixMs = dst[n-1].TimeUnixMs + 1
	}
	if read != minutes {
		return 0, fmt.Errorf("%d readings were read, want %d", read, minutes)
	}
	return float64(time.Since(began).Microseconds()) / 1000, nil
}
