package migrate_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/migrate"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// moveVariable makes the test binary move a store, so that the process can be killed.
const moveVariable = "MIGRATE_TEST"

func TestMain(m *testing.M) {
	if stores := os.Getenv(moveVariable); stores != "" {
		from, to, _ := strings.Cut(stores, " ")
		if err := move(from, to, func(_ migrate.Step, n int64) { fmt.Println(n) }); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// dsn returns the options of a place that is the address of a server, a "#" and the name of a
// schema, and not a directory.
func dsn(place string) (o pgstore.Options, ok bool) {
	o.Single = true
	o.DSN, o.Schema, ok = strings.Cut(place, "#")
	return o, ok
}

// openFrom opens a store to read, and returns the number of its readings.
func openFrom(place string) (migrate.Source, int64, error) {
	if o, ok := dsn(place); ok {
		o.Move = pgstore.MoveFrom
		s, err := pgstore.Open(context.Background(), o)
		if err != nil {
			return nil, 0, err
		}
		n, err := s.CountReadings(context.Background())
		return s, n, err
	}
	s, report, err := pebblestore.OpenVerified(context.Background(), place, pebblestore.CheckOptions{})
	return s, report.Readings, err
}

func openTo(place string, signs []vitals.Definition) (migrate.Target, error) {
	if o, ok := dsn(place); ok {
		o.Move, o.Signs = pgstore.MoveTo, signs
		return pgstore.Open(context.Background(), o)
	}
	return pebblestore.OpenPartial(place, pebblestore.Options{WindowRows: 64, Signs: signs})
}

// move moves a store.
func move(from, to string, progress func(migrate.Step, int64)) error {
	source, readings, err := openFrom(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := openTo(to, migrate.Definitions(source.Signs()))
	if err != nil {
		return err
	}
	defer target.Close()
	_, err = migrate.Run(context.Background(), migrate.Options{From: source, To: target, Readings: readings,
		OnProgress: progress})
	return err
}

var schemas atomic.Int64

// database returns the address of a schema that does not exist.
func database(server *pgtest.Server) string {
	return fmt.Sprintf("%s#m%d", server.DSN(), schemas.Add(1))
}

// contents returns what a store has.
func contents(t rapid.TB, place string) []string {
	s, _, err := openFrom(place)
	try(t, err)
	defer s.Close()
	return all(t, s)
}

// A store is moved from a directory to PostgreSQL and back, and is the same in each place.
func TestRoundTrip(t *testing.T) { roundTrip(t, "4") }

func TestRoundTripExhaustive(t *testing.T) { roundTrip(t, "40") }

// roundTrip moves this many random stores.
func roundTrip(t *testing.T, stores string) {
	server := pgtest.Start(t, "fsync=off")
	checks := flag.Lookup("rapid.checks")
	was := checks.Value.String()
	if err := checks.Value.Set(stores); err != nil { // each opens a database four times
		t.Fatal(err)
	}
	defer func() { _ = checks.Value.Set(was) }()
	dirs := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		first, middle, last := filepath.Join(dirs, fmt.Sprint(n)), database(server),
			filepath.Join(dirs, fmt.Sprint(n, "-last"))
		// Each place has other numbers of the signs.
		own := storetest.OwnSigns()
		s, err := pebblestore.Open(first, pebblestore.Options{WindowRows: 8, Signs: own})
		try(t, err)
		for range rapid.IntRange(1, 4).Draw(t, "groups") {
			try(t, s.Append(draw(t, vitals.MaxSigns)))
		}
		assign(t, s)
		want := all(t, s)
		try(t, s.Close())
		for _, places := range [][2]string{{first, middle}, {middle, last}} {
			slices.Reverse(own)
			if prepared, err := openTo(places[1], own[:n%len(own)]); err != nil {
				t.Fatal(err)
			} else if err := prepared.Close(); err != nil {
				t.Fatal(err)
			}
			try(t, move(places[0], places[1], nil))
			if got := contents(t, places[1]); !slices.Equal(got, want) {
				t.Fatalf("%s has\n%q\nwant\n%q", places[1], got, want)
			}
		}
	})
}

// A process that moves a store is killed at random points, again and again.
func TestKilledProcess(t *testing.T) { killAfter(t, 16) }

func TestKilledProcessExhaustive(t *testing.T) { killAfter(t, 1) }

// killAfter kills a process after one to most more steps than the one before.
func killAfter(t *testing.T, most int) {
	server := pgtest.Start(t, "fsync=off")
	first, middle, last := filepath.Join(t.TempDir(), "first"), database(server), filepath.Join(t.TempDir(), "last")
	s, err := pebblestore.Open(first, pebblestore.Options{})
	try(t, err)
	random := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		var group []*storage.Entry
		for range 3000 {
			e := entry(fmt.Sprintf("d-%d", random.IntN(40)), random.Int64N(100_000), 6000)
			if random.IntN(2) == 0 {
				e.Reading.Gateway = name(fmt.Sprintf("g-%d", random.IntN(3)))
			}
			if random.IntN(2) == 0 {
				e.Reading.Values.Set(vitals.SpO2, 9800)
			}
			group = append(group, e)
		}
		try(t, s.Append(group))
	}
	want := all(t, s)
	try(t, s.Close())
	for _, places := range [][2]string{{first, middle}, {middle, last}} {
		kills := 0
		for lines := 1; ; lines += 1 + random.IntN(most) {
			if !killed(t, places, lines) {
				break
			}
			kills++
			awaitUnlocked(t, server)
		}
		if kills == 0 {
			t.Error("no process was killed in time")
		}
		if got := contents(t, places[1]); !slices.Equal(got, want) {
			t.Fatalf("%s is not equal to %s", places[1], places[0])
		}
	}
}

// killed runs a process that moves a store, and kills it when it has reported progress some times.
// It reports false if the process ended before.
func killed(t *testing.T, places [2]string, lines int) bool {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), moveVariable+"="+places[0]+" "+places[1])
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	try(t, err)
	var last string
	for in := bufio.NewScanner(out); lines > 0 && in.Scan(); lines-- {
		last = in.Text()
	}
	if lines > 0 {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, last)
		}
		return false
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return true
}

// awaitUnlocked waits until the backends of a process that was killed have noticed that. The next
// process waits for their lock for a second only.
func awaitUnlocked(t *testing.T, server *pgtest.Server) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.DSN())
	try(t, err)
	defer conn.Close(ctx)
	polltest.Until(t, "the lock of the killed process is released", func() bool {
		var held int
		try(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&held))
		return held == 0
	})
}

// A source with a damaged file is refused, and one without a file too, before anything is written.
func TestDamagedSource(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	s, err := pebblestore.Open(from, pebblestore.Options{WindowRows: 8})
	try(t, err)
	for i := range int64(100) {
		try(t, s.Append([]*storage.Entry{entry("a", i, 6000)}))
	}
	try(t, s.Close())
	files, err := filepath.Glob(filepath.Join(from, "*.*"))
	try(t, err)
	for _, file := range files {
		was, err := os.ReadFile(file)
		try(t, err)
		if len(was) == 0 {
			continue
		}
		flipped := slices.Clone(was)
		flipped[len(flipped)/2] ^= 4
		for _, text := range [][]byte{flipped, nil} {
			try(t, os.WriteFile(file, text, 0o600))
			if text == nil {
				_ = os.Remove(file)
			}
			if err := move(from, to, nil); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s changed, removed %v: %v", filepath.Base(file), text == nil, err)
			}
			if made, _ := filepath.Glob(to + "*"); made != nil {
				t.Fatalf("it made %s", made)
			}
		}
		try(t, os.WriteFile(file, was, 0o600))
	}
	try(t, move(from, to, nil))
}

// A device of PostgreSQL that its table of devices lacks is not silently left behind.
func TestLostDevice(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	from, to := database(server), filepath.Join(t.TempDir(), "to")
	o, _ := dsn(from)
	s, err := pgstore.Open(t.Context(), o)
	try(t, err)
	try(t, s.Append([]*storage.Entry{entry("a", 1, 6000), entry("b", 1, 6000)}), s.Close())
	server.Execute(t, "DELETE FROM "+o.Schema+".devices WHERE device = 'a'")
	if err := move(from, to, nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Fatal(err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Fatal("the target was published")
	}
}
