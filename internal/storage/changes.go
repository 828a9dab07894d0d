package storage

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// ErrUnknownPosition means that a position is not one of the store, or that the store no longer keeps everything that
// follows it.
var ErrUnknownPosition = errors.New("the position is not of this store, or is too old")

// A Position is a point in the order of a store's changes. Everything that the store had at one moment comes before
// it. The zero Position comes before everything. Mark is random, so the positions of two stores differ. A store
// that was made from a copy of another one, or that has lost what it had, does not know the positions that came
// later in the other.
type Position struct {
	Event, Mark   uint64 // number and mark of the last event
	ChangedUnixMs int64  // no later change has an earlier time
	Group         uint64 // number of the next group of readings; with a Snapshot, of what the store has written after it

	// Snapshot has the transactions of readings that come before the position, in the store's own encoding. It is empty
	// if Group says which groups do.
	Snapshot string
}

// IsZero reports whether p is the zero Position.
func (p *Position) IsZero() bool { return *p == Position{} }

// Same reports whether nothing has changed between p and q, two positions of one store.
func (p *Position) Same(q *Position) bool {
	if p.Snapshot != "" || q.Snapshot != "" {
		return p.Event == q.Event && p.Snapshot == q.Snapshot
	}
	return p.Event == q.Event && p.Group == q.Group
}

// A ChangeKind is what a [Change] says.
type ChangeKind uint8

// The kinds of changes. All but the first and the last two are events.
const (
	ChangedReading   ChangeKind = 1 + iota // Record is the reading of Device, as it is stored now
	ChangeAssigned                         // Subject wore Device from FromUnixMs to ToUnixMs
	ChangeUnassigned                       // Subject did not wear Device from FromUnixMs to ToUnixMs
	ChangeErased                           // what Signs says of Device from FromUnixMs to ToUnixMs was erased
	ChangeExpired                          // readings of all devices before ToUnixMs have expired
	ChangeSign                             // signs of a user's own were defined
	ChangeBegin                            // a copy of the whole store begins
	ChangeComplete                         // the copy is complete
)

// A Change is something that was changed in a store, or what its kind says.
type Change struct {
	Kind   ChangeKind
	Number uint64 // of an event, in the order of events
	Device vitals.Name

	Subject  Subject   // of a reading by the assignments when it is read, or of an assignment
	Subjects []Subject // who wore the device of a ChangeErased

	FromUnixMs, ToUnixMs int64
	Record               Record
	Copy                 uint64 // identifies the copy of a ChangeBegin or ChangeComplete

	// Signs is the presence of a sign that was defined. In a ChangeErased it is 0 if everything was erased, assignments
	// included; otherwise, the values of these signs were, and assignments stay. A store may have signs in it that are
	// not defined, which [NextChanges] leaves out.
	Signs uint32

	// Left is set in a ChangeErased if values of Signs are left, which other gateways have sent. [NextChanges] delivers
	// the readings of its time again after it.
	Left bool
}

// An ErasedEvent returns the event of an erasure. all are the assignments of the device before it.
func ErasedEvent(e *Erasure, all []Assignment) Change {
	x := Change{Kind: ChangeErased, Device: e.Device, FromUnixMs: e.FromUnixMs, ToUnixMs: e.ToUnixMs}
	switch {
	case e.Subject != "":
		x.Subjects = []Subject{e.Subject}
		return x
	case e.OfValues():
		x.Left = !e.Gateway.IsZero()
		if x.Signs = e.Signs; x.Signs == 0 {
			x.Signs = math.MaxUint32
		}
	default:
		x.ToUnixMs = OpenEnd
	}
	span := Assignment{FromUnixMs: x.FromUnixMs, ToUnixMs: x.ToUnixMs}
	for i := range all {
		a := &all[i]
		if a.Subject != "" && a.overlaps(&span) && !slices.Contains(x.Subjects, a.Subject) {
			x.Subjects = append(x.Subjects, a.Subject)
		}
	}
	return x
}

// A ChangedKey is the place of a reading among changed ones: these are divided into parts, and ordered in each by
// device and time. The zero key comes before all.
type ChangedKey struct {
	Part       uint64 // the store's own number
	Device     vitals.Name
	TimeUnixMs int64
}

// CursorKeyBytes is the length of a store's key of cursors.
const CursorKeyBytes = 32

// A Horizon is what an event of kind ChangeExpired is about: the readings from before a time that were not changed
// after the event. They are not delivered, even while they are still stored. Readings from before the time that arrive
// or are completed after the event are stored and delivered until another event is about them.
type Horizon struct{ BeforeUnixMs, AtUnixMs int64 }

// AddHorizon returns all and the horizon of a later event. It does not modify all.
func AddHorizon(all []Horizon, h Horizon) []Horizon {
	all = slices.DeleteFunc(slices.Clone(all), func(x Horizon) bool { return x.BeforeUnixMs <= h.BeforeUnixMs })
	return append(all, h)
}

// HasExpired reports whether an event of kind ChangeExpired is about a reading.
func HasExpired(all []Horizon, r *Record) bool {
	changedUnixMs := max(r.ReceivedUnixMs, r.ChangedUnixMs)
	return slices.ContainsFunc(all, func(h Horizon) bool {
		return r.TimeUnixMs < h.BeforeUnixMs && changedUnixMs <= h.AtUnixMs
	})
}

// Changes is a store whose changes can be read in an order. Its methods may run concurrently with all others, and
// return what is on stable storage. [NextChanges] reads them for a consumer.
//
// A reading is delivered when it was stored or completed, without those before it being kept. Everything else that
// changes is an event.
type Changes interface {
	// Position returns the position after everything that is stored, and a channel that is closed when there may be a
	// later one, for all who wait, or when the store is closed.
	Position(ctx context.Context) (Position, <-chan struct{}, error)

	// PositionAt returns a position before everything that was changed at a time or later. If events are not kept for
	// that long, it is the first position with which events begin that are.
	PositionAt(ctx context.Context, unixMs int64) (Position, error)

	// KeptSince returns a time after which all events are there: none was removed, and none was not kept. It is 0 if the
	// store has no events yet.
	KeptSince(ctx context.Context) (unixMs int64, err error)

	// CheckPosition returns nil if everything that has changed since p can be read, and otherwise an error that wraps
	// ErrUnknownPosition.
	CheckPosition(ctx context.Context, p Position) error

	// CursorKey returns a random key of CursorKeyBytes, with which cursors are encrypted for consumers. It stays with the
	// store, and all servers of a store have the same. The caller must not modify it.
	CursorKey(ctx context.Context) ([]byte, error)

	// ReadChanges calls do with what reads the changes between two positions, of which each may be zero, or an error that
	// wraps ErrUnknownPosition unless the store knows both. It returns the error of do. If it returns nil, the positions
	// have been known while do read, and it may have changed from and to: they then also say that the store has what do
	// has read. do must not call the store.
	ReadChanges(ctx context.Context, from, to *Position, do func(ChangeReader) error) error

	ChangeReader
	Signs() *vitals.Signs
}

// A ChangeReader reads what consumers need.
type ChangeReader interface {
	// Horizons returns what has expired and VisitChanged does not leave out. The caller must not modify it.
	Horizons() []Horizon

	// VisitEvents calls visit with the events after a number, up to another one, in their order, until it returns
	// false. visit must not call the store.
	VisitEvents(ctx context.Context, after, last uint64, visit func(*Change) (more bool)) error

	// VisitChanged calls visit with readings that were changed since from, until it returns false. All that were changed
	// between from and to are among them, unless they were removed. It continues after a key, and takes devices whose
	// names have a prefix. A record without values is of a reading that has expired, and counts as read only. visit must
	// not call the store, and must not retain its arguments.
	VisitChanged(ctx context.Context, from, to Position, after ChangedKey, prefix vitals.Name,
		visit func(part uint64, device *vitals.Name, records []Record) (more bool)) error

	Scan(ctx context.Context, r Range, dst []Record) (int, error)
	VisitAssignments(ctx context.Context, devices []vitals.Name, visit func(*Assignment)) error
	Assignments(ctx context.Context, after AssignmentKey, dst []Assignment) (int, error)
}

// ReadKnown implements [Changes.ReadChanges] for a store that knows a position as long as it lasts: events may only be
// forgotten while they are read, so it checks the positions again.
func ReadKnown(ctx context.Context, s Changes, from, to *Position, do func(ChangeReader) error) error {
	check := func() error {
		for _, p := range []*Position{from, to} {
			if p.IsZero() || p == to && *to == *from {
				continue
			}
			if err := s.CheckPosition(ctx, *p); err != nil {
				return err
			}
		}
		return nil
	}
	err := check()
	if err == nil {
		err = do(s)
	}
	if err == nil {
		err = check()
	}
	return err
}

// An AssignmentEvent returns the event of a changed assignment, given what it was before, the zero Assignment if it is
// new. It returns false if nobody's readings have become another's, as with a span of nobody.
func AssignmentEvent(now, before *Assignment) (e Change, ok bool) {
	e = Change{Kind: ChangeAssigned, Device: now.Device, Subject: now.Subject, FromUnixMs: now.FromUnixMs,
		ToUnixMs: now.ToUnixMs}
	if before.Subject != "" && now.ToUnixMs < before.ToUnixMs {
		e.Kind, e.FromUnixMs, e.ToUnixMs = ChangeUnassigned, now.ToUnixMs, before.ToUnixMs
	}
	return e, now.Subject != "" && (before.Subject == "" || now.FromUnixMs != before.FromUnixMs ||
		now.ToUnixMs != before.ToUnixMs)
}
