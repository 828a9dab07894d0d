package pgstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A registry holds what this node knows of the table of devices.
type registry struct {
	mu         sync.Mutex
	known      map[vitals.Name]*known // guarded by mu
	generation int64                  // guarded by mu; of meta when known was read
}

// A known is a device that is registered.
type known struct {
	signs    uint8                  // that its row has, or more than these
	latestMs [vitals.NumSigns]int64 // newest times that this node has stored since the last hint; 0: none
	stored   uint8                  // readings since the last hint
}

// hintEvery is the number of readings of a device after which its row gets the times of its
// latest signs.
const hintEvery = 64

// A registration is a device that a group needs.
type registration struct {
	device vitals.Name
	signs  uint8
	denied storage.Outcome // 0: registered
}

// resolve registers the devices of a group, in their order. It returns the outcomes of those
// that are rejected, nil if there are none, and the generation of what it knows.
func (s *Store) resolve(t *try, group []*storage.Entry) (denied map[vitals.Name]storage.Outcome, generation int64, err error) {
	wanted, generation := s.registry.missing(group)
	if len(wanted) == 0 {
		return nil, generation, nil
	}
	own := *t // an unknown outcome of the registration says nothing about the readings
	err = own.run(func(conn *pgx.Conn) error {
		for i := range wanted {
			wanted[i].denied = 0
		}
		return s.register(conn, wanted, s.opt.Move == 0)
	}, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: register devices: %w", storage.ErrNotWritten, err)
	}
	for _, w := range wanted {
		if w.denied != 0 {
			if denied == nil {
				denied = map[vitals.Name]storage.Outcome{}
			}
			denied[w.device] = w.denied
		}
	}
	s.registry.add(wanted, generation)
	return denied, generation, nil
}

// missing returns the devices of group that are not known, or not with all signs, in their order,
// and the generation of what is known.
func (r *registry) missing(group []*storage.Entry) (wanted []registration, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var at map[vitals.Name]int
	for _, e := range group {
		signs := e.Reading.Values.Present()
		if k := r.known[e.Reading.Device]; k != nil && signs&^k.signs == 0 {
			continue
		}
		if i, ok := at[e.Reading.Device]; ok {
			wanted[i].signs |= signs
			continue
		}
		if at == nil {
			at = map[vitals.Name]int{}
		}
		at[e.Reading.Device] = len(wanted)
		wanted = append(wanted, registration{device: e.Reading.Device, signs: signs})
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
		if w.denied != 0 {
			continue
		}
		k := r.known[w.device]
		if k == nil {
			k = &known{}
			r.known[w.device] = k
		}
		k.signs |= w.signs
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
// new devices with awkward names and those beyond the limit are denied.
func (s *Store) register(conn *pgx.Conn, wanted []registration, limited bool) error {
	ctx := context.Background()
	names := make([]string, len(wanted))
	for i := range wanted {
		names[i] = wanted[i].device.String()
	}
	have, count, err := s.registered(ctx, conn, names)
	if err != nil {
		return err
	}
	change := map[string]int16{}
	added := 0
	for i := range wanted {
		w := &wanted[i]
		signs, known := have[names[i]]
		if known && w.signs&^uint8(signs) == 0 {
			continue
		}
		switch {
		case known || !limited:
		case w.device.IsAwkward():
			w.denied = storage.AwkwardName
			continue
		case count+int64(added) >= int64(s.opt.MaxDevices):
			w.denied = storage.TooManyDevices
			continue
		}
		if !known {
			added++
		}
		change[names[i]] = int16(w.signs)
	}
	if len(change) == 0 {
		return nil
	}
	return s.writeDevices(ctx, conn, wanted, change, limited)
}

// registered returns the signs of those devices that are registered, and the number of all.
func (s *Store) registered(ctx context.Context, q interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}, names []string) (have map[string]int16, count int64, err error) {
	if err := q.QueryRow(ctx, s.sql.of("SELECT devices FROM SCHEMA.meta")).Scan(&count); err != nil {
		return nil, 0, err
	}
	rows, err := q.Query(ctx, s.sql.of("SELECT device, signs FROM SCHEMA.devices WHERE device = ANY($1)"), names)
	if err != nil {
		return nil, 0, err
	}
	have = map[string]int16{}
	var device string
	var signs int16
	_, err = pgx.ForEachRow(rows, []any{&device, &signs}, func() error { have[device] = signs; return nil })
	return have, count, err
}

// writeDevices writes the devices in change. It counts new ones under a lock, and denies those
// that are too many by now.
func (s *Store) writeDevices(ctx context.Context, conn *pgx.Conn, wanted []registration, change map[string]int16, limited bool) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, s.sql.of("SELECT FROM SCHEMA.meta FOR UPDATE")); err != nil {
		return err
	}
	have, count, err := s.registered(ctx, tx, slices.Collect(maps.Keys(change)))
	if err != nil {
		return err
	}
	added := int64(0)
	for i := range wanted {
		name := wanted[i].device.String()
		if _, changed := change[name]; !changed {
			continue
		}
		if _, known := have[name]; known {
			continue
		}
		if limited && count+added >= int64(s.opt.MaxDevices) {
			wanted[i].denied = storage.TooManyDevices
			delete(change, name)
			continue
		}
		added++
	}
	names := slices.Sorted(maps.Keys(change))
	signs := make([]int16, len(names))
	for i, name := range names {
		signs[i] = change[name]
	}
	if _, err := tx.Exec(ctx, s.sql.of(`INSERT INTO SCHEMA.devices AS d (device, signs) SELECT * FROM unnest($1::text[], $2::smallint[])
		ON CONFLICT (device) DO UPDATE SET signs = d.signs | excluded.signs`), names, signs); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql.of("UPDATE SCHEMA.meta SET devices = devices + $1"), added); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// storedLocked notes a reading that a lane is about to store, and reports whether the row of its
// device is due for a hint. If the reading is then rejected, the hint may be too late a time;
// readers find that out.
func (r *registry) storedLocked(reading *vitals.Reading) bool {
	k := r.known[reading.Device]
	if k == nil { // another lane has found a new generation
		return false
	}
	for sg := range vitals.Sign(vitals.NumSigns) {
		if reading.Values.Has(sg) {
			k.latestMs[sg] = max(k.latestMs[sg], reading.TimeUnixMs)
		}
	}
	k.stored++
	return k.stored == hintEvery
}
