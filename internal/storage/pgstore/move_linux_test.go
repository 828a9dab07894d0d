package pgstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
)

// A move and nodes exclude each other, also while a node has no connection.
func TestMoveExcludesNodes(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	node := open(t, o)
	moving := o
	for _, moving.Move = range []pgstore.Move{pgstore.MoveFrom, pgstore.MoveTo} {
		if _, err := pgstore.Open(t.Context(), moving); !errors.Is(err, storage.ErrLocked) {
			t.Fatalf("a move beside a node: %v", err)
		}
	}
	try(t, node.Close())

	move := open(t, moving)
	if _, err := pgstore.Open(t.Context(), o); !errors.Is(err, storage.ErrLocked) ||
		!strings.Contains(err.Error(), "pulsegate migrate") {
		t.Fatalf("a node beside a move: %v", err)
	}
	if _, err := pgstore.Open(t.Context(), moving); !errors.Is(err, storage.ErrLocked) {
		t.Fatalf("two moves: %v", err)
	}
	try(t, move.Alone(t.Context()))
	// The lock is lost with its connection.
	execute(t, server,
		"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'")
	if err := move.Alone(t.Context()); err == nil {
		t.Fatal("the lost lock is not noticed")
	}
	try(t, move.Close())
	// A terminated process of PostgreSQL closes its connection before it releases its locks.
	polltest.Until(t, "the lock is released", func() bool {
		return queryValue[int](t, server,
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'") == 0
	})
	open(t, o)
}

// An unfinished move is refused by nodes, and as a source; a further move continues it.
func TestUnfinishedMove(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	from, to := o, o
	from.Move, to.Move = pgstore.MoveFrom, pgstore.MoveTo
	if _, err := pgstore.Open(t.Context(), from); !errors.Is(err, storage.ErrFormat) {
		t.Fatalf("a source that does not exist: %v", err)
	}
	if n := queryValue[int](t, server, "SELECT count(*) FROM pg_namespace WHERE nspname = $1", o.Schema); n != 0 {
		t.Fatal("a source was created")
	}
	to.MaxDevices = 1
	move := open(t, to)
	try(t, move.Begin())
	group := []*storage.Entry{reading("a", 1, 1), reading("b", 1, 1), reading("-c", 1, 1)}
	try(t, move.Append(group))
	for _, e := range group { // more devices than a node would accept, and an awkward name
		if e.Outcome != storage.Stored {
			t.Errorf("a reading of the device %s has the outcome %d", e.Reading.Device, e.Outcome)
		}
	}
	try(t, move.Close())
	for _, o := range []pgstore.Options{o, from} {
		if _, err := pgstore.Open(t.Context(), o); !errors.Is(err, storage.ErrFormat) ||
			!strings.Contains(err.Error(), "unfinished") {
			t.Fatalf("an unfinished move: %v", err)
		}
	}
	move = open(t, to)
	try(t, errors.Join(move.Begin(), move.Publish()))
	open(t, o)
}

// A move adds one gap to the events, however much it assigns: consumers of changes begin again.
func TestMoveAddsOneGap(t *testing.T) {
	server := sharedServer(t)
	to := options(server)
	to.Move = pgstore.MoveTo
	move := open(t, to)
	try(t, move.Begin())
	device := reading("d", 1, 1).Reading.Device
	for from := range int64(5) {
		try(t, move.Assign(t.Context(), storage.Assignment{Device: device, Subject: "P-17", FromUnixMs: 10 * from,
			ToUnixMs: 10*from + 5}))
	}
	events := "SELECT count(*) FROM " + to.Schema + ".events"
	before := queryValue[int](t, server, events)
	try(t, move.Publish())
	if n := queryValue[int](t, server, events); before != 1 || n != 2 {
		t.Errorf("there are %d events before Publish and %d after it, want 1 and 2", before, n)
	}
}
