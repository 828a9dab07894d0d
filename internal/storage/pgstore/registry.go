package pgstore

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A registry holds what this node knows of the table of devices.
type registry struct {
	mu         sync.Mutex
	known      map[vitals.Name]*known // guarded by mu
	generation int64                  // guarded by mu; of state when known was read
	collidedAt time.Time              // guarded by mu; when a reading that was expected to be new was found stored
	settlesFor time.Duration          // guarded by mu; how long no reading is expected to be new after that
}

// A known is a device that is registered.
type known struct {
	signs    uint32 // that its row has, or more than these
	newestMs int64  // newest time of any reading that this node has sent; 0 means none
	// newest times with each of signs, in the order of their numbers, that this node has stored; 0 means none
	latestMs []int64
	stored   uint8 // readings since the last hint
}

// latest returns the place of a sign in latestMs; nil if signs lacks it.
func (k *known) latest(sg vitals.Sign) *int64 {
	if k.signs&(1<<sg) == 0 {
		return nil
	}
	return &k.latestMs[bits.OnesCount32(k.signs&(1<<sg-1))]
}

// add adds signs.
func (k *known) add(signs uint32) {
	old := *k
	k.signs |= signs
	if k.signs == old.signs {
		return
	}
	k.latestMs = make([]int64, bits.OnesCount32(k.signs))
	for _, sg := range inBits(old.signs) {
		*k.latest(sg) = *old.latest(sg)
	}
	k.stored = hintEvery - 1 // the next reading gives a hint
}

// hintEvery is the number of readings of a device after which its row gets the times of its
// latest signs.
const hintEvery = 64

// A registration is a device that a group needs.
type registration struct {
	device vitals.Name
	signs  uint32
	denied storage.Outcome // 0 means registered or refused

	claimed bool // each of its readings has a claim
	refused bool // and each claim rejects its reading
}

// resolve registers the devices of a group, in their order. It settles the entries of those that are rejected, and
// returns the others, and the generation of what it knows.
func (s *writer) resolve(t *try, group []*storage.Entry) (kept []*storage.Entry, generation int64, err error) {
	wanted, generation := s.registry.missing(group)
	if len(wanted) == 0 {
		return group, generation, nil
	}
	own := *t // an unknown outcome of the registration says nothing about the readings
	err = own.run(func(conn *pgx.Conn) error {
		if err := s.refuseClaims(conn, wanted, group); err != nil {
			return err
		}
		return s.register(conn, wanted, s.opt.Move == 0)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("%w: register devices: %w", storage.ErrNotWritten, err)
	}
	denied, refused := map[vitals.Name]storage.Outcome{}, map[vitals.Name]bool{}
	for _, w := range wanted {
		if w.denied != 0 {
			denied[w.device] = w.denied
		} else if w.refused {
			refused[w.device] = true
		}
	}
	s.registry.add(wanted, generation)
	if len(refused) > 0 {
		group = slices.DeleteFunc(slices.Clone(group), func(e *storage.Entry) bool {
			return refused[e.Reading.Device] && !e.Reading.Values.IsZero()
		})
	}
	if len(denied) > 0 {
		group = s.admit(group, func(e *storage.Entry) storage.Outcome {
			if e.Reading.Values.IsZero() {
				return 0
			}
			return denied[e.Reading.Device]
		})
	}
	return group, generation, nil
}

// refuseClaims refuses the devices of which each reading is rejected because of its claim, and sets these outcomes.
// Rows of devices without readings would count for MaxDevices.
func (s *writer) refuseClaims(q querier, wanted []registration, group []*storage.Entry) error {
	var names []string
	at := map[vitals.Name]*registration{}
	for i := range wanted {
		if w := &wanted[i]; w.claimed {
			w.refused, at[w.device], names = true, w, append(names, w.device.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	all, err := s.assigned(q, names, "")
	if err != nil {
		return err
	}
	wearers := map[vitals.Name]*storage.Wearers{}
	for _, e := range group {
		w := at[e.Reading.Device]
		switch {
		case w == nil:
			continue
		case e.Claim == nil: // a reading of signs that the device is known with
			w.refused = false
			continue
		case wearers[w.device] == nil:
			wearers[w.device] = storage.NewWearers(all[w.device])
		}
		rejected := wearers[w.device].Settle(e, false)
		switch {
		case !e.Reading.Values.IsZero():
			e.Outcome = rejected
			w.refused = w.refused && rejected != 0
		case rejected == 0: // it may end the assignment that would reject a later reading
			wearers[w.device].Settle(e, true)
		}
	}
	return nil
}

// missing returns the devices of group that are not known, or not with all signs, in their order,
// and the generation of what is known.
func (r *registry) missing(group []*storage.Entry) (wanted []registration, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var at map[vitals.Name]int
	for _, e := range group {
		signs := e.Reading.Values.Present()
		if k := r.known[e.Reading.Device]; signs == 0 || k != nil && signs&^k.signs == 0 {
			continue
		}
		if i, ok := at[e.Reading.Device]; ok {
			wanted[i].signs |= signs
			wanted[i].claimed = wanted[i].claimed && e.Claim != nil
			continue
		}
		if at == nil {
			at = map[vitals.Name]int{}
		}
		at[e.Reading.Device] = len(wanted)
		wanted = append(wanted, registration{device: e.Reading.Device, signs: signs, claimed: e.Claim != nil})
	}
	return wanted, r.generation
}

// add notes devices that were registered after missing has returned generation. If there is a later
// one by now, they may be deleted again, and it notes nothing.
func (r *registry) add(all []registration, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation != generation {
		return
	}
	for _, w := range all {
		if w.denied != 0 || w.refused {
			continue
		}
		k := r.known[w.device]
		if k == nil {
			k = &known{}
			r.known[w.device] = k
		}
		k.add(w.signs)
	}
}

// renew forgets all devices if they were read in an earlier generation.
func (r *registry) renew(generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if generation > r.generation {
		r.generation = generation
		clear(r.known)
	}
}

// register adds devices to the table of devices, or signs to those that are in it. If limited,
// new devices with awkward names and those beyond the limit are denied. It looks first, and counts
// again under a lock if there is anything to write.
func (s *writer) register(conn beginner, wanted []registration, limited bool) error {
	ctx := context.Background()
	if names, _, _, err := s.unregistered(ctx, conn, "", wanted, limited); err != nil || len(names) == 0 {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		names, signs, added, err := s.unregistered(ctx, tx, " FOR UPDATE", wanted, limited)
		if err != nil || len(names) == 0 {
			return err
		}
		if _, err := tx.Exec(ctx,
			s.sql.of(
				`INSERT INTO SCHEMA.devices AS d (device, signs) SELECT * FROM unnest($1::text[], $2::integer[]) AS u(device, signs)
			ON CONFLICT (device) DO UPDATE SET signs = d.signs | excluded.signs`), names, signs); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.sql.of("UPDATE SCHEMA.state SET devices = devices + $1"), added)
		return err
	})
}

// A querier is a connection or a transaction.
type querier interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

// A beginner is a connection, or a transaction that begins another one in it.
type beginner interface {
	querier
	Begin(context.Context) (pgx.Tx, error)
}

// unregistered returns the devices that are to be written, by name, with their signs, and the number
// of new ones among them. It sets which of wanted are denied.
func (s *writer) unregistered(ctx context.Context, q querier, lock string, wanted []registration,
	limited bool) (names []string, signs []int32, added int64, err error) {
	var count int64
	if err := q.QueryRow(ctx, s.sql.of("SELECT devices FROM SCHEMA.state"+lock)).Scan(&count); err != nil {
		return nil, nil, 0, err
	}
	all := make([]string, len(wanted))
	for i := range wanted {
		all[i] = wanted[i].device.String()
	}
	rows, err := q.Query(ctx, s.sql.of("SELECT device, signs FROM SCHEMA.devices WHERE device = ANY($1)"), all)
	if err != nil {
		return nil, nil, 0, err
	}
	have := map[string]int32{}
	var device string
	var sign int32
	if _, err = pgx.ForEachRow(rows, []any{&device, &sign}, func() error { have[device] = sign; return nil }); err != nil {
		return nil, nil, 0, err
	}
	change := map[string]int32{}
	for i := range wanted {
		w := &wanted[i]
		w.denied = 0
		old, known := have[all[i]]
		switch {
		case known && (w.refused || w.signs&^uint32(old) == 0):
			continue
		case known:
		case limited && w.device.IsAwkward():
			w.denied = storage.AwkwardName
			continue
		case limited && count+added >= int64(s.opt.MaxDevices):
			w.denied = storage.TooManyDevices
			continue
		case w.refused:
			continue
		default:
			added++
		}
		change[all[i]] = int32(w.signs)
	}
	names = slices.Sorted(maps.Keys(change)) // in the same order in all nodes, which then do not deadlock
	for _, name := range names {
		signs = append(signs, change[name])
	}
	return names, signs, added, nil
}

// settlesFor is how long a node expects no reading to be new after one was not: each such error costs an attempt, and
// is a line in PostgreSQL's log. Tests shorten it before they open stores.
var settlesFor = time.Minute

// collided notes that a reading that was expected to be new was found stored.
func (r *registry) collided() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collidedAt = time.Now()
}

// note notes a reading that a lane is about to store, and reports whether the row of its
// device is due for a hint. If the reading is then rejected, the hint may be too late a time;
// readers find that out.
func (k *known) note(reading *vitals.Reading) bool {
	k.newestMs = max(k.newestMs, reading.TimeUnixMs)
	for sg := range reading.Values.All() {
		if ms := k.latest(sg); ms != nil { // otherwise another lane has found a new generation
			*ms = max(*ms, reading.TimeUnixMs)
		}
	}
	k.stored++
	return k.stored == hintEvery
}
