package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A dictionary holds the names of the gateways that readings name by number. Numbers begin
// at 1, and one that a stored reading has named is never used again.
//
// engine.mu guards everything but names.
type dictionary struct {
	byName map[vitals.Name]uint32
	next   uint32
	added  []uint32 // by the current group

	// last is the gateway that was looked up last, and lastNumber its number: most readings of
	// a batch have the same one.
	last       vitals.Name
	lastNumber uint32

	// used holds the numbers that readings have named since Watch was called; nil if it was not.
	used map[uint32]bool

	mu  sync.RWMutex
	all gatewayNames // guarded by mu; an element is not written once a reading has named it
}

// gatewayNames is the part of a dictionary that readers use: the names by number, nil for numbers without one.
type gatewayNames []*vitals.Name

func newDictionary() *dictionary { return &dictionary{byName: map[vitals.Name]uint32{}, next: 1} }

// names returns the names of all gateways of views published until now.
func (g *dictionary) names() gatewayNames {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.all
}

// at returns the name of a gateway, or nil if there is none. It must not be modified.
func (g gatewayNames) at(number uint32) *vitals.Name {
	if uint64(number) >= uint64(len(g)) {
		return nil
	}
	return g[number]
}

// put records the name of a gateway. While the store is open, its number is higher than those of all readings: readers
// may have the slice.
func (g *dictionary) put(name vitals.Name, number uint32) {
	g.byName[name] = number
	g.mu.Lock()
	defer g.mu.Unlock()
	for uint64(len(g.all)) <= uint64(number) {
		g.all = append(g.all, nil)
	}
	g.all[number] = &name
}

// number returns the number of a gateway, 0 for the zero Name. It reports false if the
// gateway is not known.
func (g *dictionary) number(name *vitals.Name) (uint32, bool) {
	if name.IsZero() {
		return 0, true
	}
	if *name == g.last {
		return g.lastNumber, true
	}
	number, ok := g.byName[*name]
	if ok {
		g.last, g.lastNumber = *name, number
	}
	return number, ok
}

// Number implements [purge.Gateways].
func (g *dictionary) Number(name vitals.Name) uint32 { return g.byName[name] }

// Numbers implements [purge.Gateways].
func (g *dictionary) Numbers() map[uint32]bool {
	all := map[uint32]bool{}
	for _, number := range g.byName {
		all[number] = true
	}
	return all
}

// Watch implements [purge.Gateways].
func (g *dictionary) Watch() { g.used = map[uint32]bool{} }

// Watched implements [purge.Gateways].
func (g *dictionary) Watched() (used map[uint32]bool) {
	used, g.used = g.used, nil
	return used
}

// Forget implements [purge.Gateways]. Readers of older views may still need the name by its number, which stays.
func (g *dictionary) Forget(number uint32) bool {
	name := g.names().at(number)
	if name == nil || g.byName[*name] != number {
		return false
	}
	delete(g.byName, *name)
	g.last = vitals.Name{}
	return true
}

// takeBack removes the gateways that the current group has added, but the first n. No reading has named their numbers,
// which are given again.
func (g *dictionary) takeBack(n int) {
	for _, number := range g.added[n:] {
		g.Forget(number)
		g.next--
	}
	g.added = g.added[:n]
}

// use returns the number of a gateway that a stored reading names. It adds the gateway if
// it is not known.
func (g *dictionary) use(name *vitals.Name) uint32 {
	number, ok := g.number(name)
	if !ok {
		number = g.next
		g.next++
		g.put(*name, number)
		g.added = append(g.added, number)
	}
	if g.used != nil {
		g.used[number] = true
	}
	return number
}

// full reports whether no further gateway can be added.
func (g *dictionary) full(most int) bool { return len(g.byName) >= most || g.next == noGateway }

// write adds the gateways that the current group has added to a batch.
func (g *dictionary) write(b *pebble.Batch) error {
	if len(g.added) == 0 {
		return nil
	}
	for _, number := range g.added {
		if err := b.Set(layout.AppendGatewayKey(nil, number), g.all.at(number).AppendTo(nil), nil); err != nil {
			return err
		}
	}
	g.added = g.added[:0]
	return b.Set([]byte(layout.GatewaysKey), binary.BigEndian.AppendUint32(nil, g.next), nil)
}

// loadDictionary reads the dictionary of a store. It calls problem for each entry that is
// not valid.
func loadDictionary(r pebble.Reader, problem func(error) error) (*dictionary, error) {
	g := newDictionary()
	next, err := readState(r, layout.GatewaysKey, 4, problem)
	if err != nil {
		return nil, err
	}
	g.next = max(uint32(next), 1)
	return g, eachValue(r, layout.GatewayPrefix, problem, g.load)
}

// load adds an entry.
func (g *dictionary) load(key, value []byte) error {
	number, err := layout.DecodeGatewayKey(key)
	if err != nil {
		return fmt.Errorf("%w: key of a gateway: %w", storage.ErrCorrupt, err)
	}
	name, err := layout.DecodeGateway(value)
	switch _, twice := g.byName[name]; {
	case err != nil:
	case number == 0 || number >= g.next:
		err = errors.New("number was not given")
	case twice:
		err = errors.New("name is stored twice")
	}
	if err != nil {
		return fmt.Errorf("%w: gateway %d: %w", storage.ErrCorrupt, number, err)
	}
	g.put(name, number)
	return nil
}

// eachValue calls load with the key and the value of each entry whose key has a prefix. It calls problem for each
// error, and stops if that returns one.
func eachValue(r pebble.Reader, prefix byte, problem func(error) error, load func(key, value []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return damage.Wrap(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			err = load(it.Key(), value)
		}
		if err != nil {
			err = problem(damage.Wrap(err))
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return damage.Wrap(it.Close())
}

// state returns the value of a state, or nil if it is not stored.
func state(r pebble.Reader, key string) ([]byte, error) {
	value, closer, err := r.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, damage.Wrap(err)
	}
	return append([]byte{}, value...), damage.Wrap(closer.Close())
}

// readState returns an integer of some bytes, or 0 if it is not stored. If it cannot be read, it returns what problem
// does.
func readState(r pebble.Reader, key string, bytes int, problem func(error) error) (n uint64, err error) {
	value, err := state(r, key)
	if err == nil && value != nil {
		if n, err = layout.DecodeNumber(value, bytes); err != nil {
			err = fmt.Errorf("%w: state %s: %w", storage.ErrCorrupt, key[1:], err)
		}
	}
	if err != nil {
		return 0, problem(err)
	}
	return n, nil
}
