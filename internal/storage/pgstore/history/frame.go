package history

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Change is a change that the store knows, which a History only keeps.
type Change struct {
	ID         int64
	Generation int64 // of the database after the transaction that inserted the row
	Since      int64 // the same, in the history in which the change was made
	Learned    int64 // the generation that it had when this server learned it first
	Epoch      int64 // and the number of the history
	Kind       int16
	Device     vitals.Name // of an erasure
	Subject    storage.Subject
	FromMs     int64 // first and last time of the readings that it removes
	ToMs       int64
	AtMs       int64 // when it was made, by the clock of the server that made it

	// Of an erasure of values: see storage.Erasure.
	Signs   uint32
	Gateway vitals.Name
	Shared  bool
}

// A state is the first frame of a file.
type state struct {
	id, run, server int64
	nowMs           int64 // when the file was begun
	epoch           int64
	whole           bool // the files before it do not count
	gone            map[Slot]int64
	first, last     map[Slot]int64
	changes         []Change
	damage          []Damage
	signs           []byte
}

func (d *directory) state(h *History, whole bool) *state {
	return &state{d.id, d.run, h.server, time.Now().UnixMilli(), h.epoch, whole, h.gone, h.first, h.last, h.changes,
		h.damage, h.signs}
}

// restore sets what the first frame of a file says.
func (s *state) restore(h *History) {
	if s.whole {
		h.kept, h.bytes, h.damage = nil, 0, nil
		clear(h.gone)
		clear(h.first)
		clear(h.last)
	}
	h.server, h.changes, h.signs = s.server, s.changes, s.signs
	h.epoch, h.untilMs = max(h.epoch, s.epoch), max(h.untilMs, s.nowMs)
	for slot, number := range s.gone {
		h.gone[slot] = max(h.gone[slot], number)
	}
	for slot, ms := range s.first {
		if _, known := h.first[slot]; !known {
			h.first[slot] = ms
		}
	}
	for slot, number := range s.last {
		h.last[slot] = max(h.last[slot], number)
	}
	for _, d := range s.damage {
		if !slices.Contains(h.damage, d) {
			h.damage = append(h.damage, d)
		}
	}
	for len(h.kept) > 0 && h.kept[0].entry.Number <= h.gone[h.kept[0].entry.Slot] {
		h.removeFirst()
	}
}

func appendState(b []byte, s *state) []byte {
	b = appendInts(append(b, stateFrame), s.id, s.run, s.server, s.nowMs, s.epoch, bit(s.whole))
	for _, m := range []map[Slot]int64{s.gone, s.first, s.last} {
		b = binary.AppendUvarint(b, uint64(len(m)))
		for slot, number := range m {
			b = appendInts(b, slot.Server, int64(slot.Slot), number)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(s.changes)))
	for i := range s.changes {
		b = appendChange(b, &s.changes[i])
	}
	b = binary.AppendUvarint(b, uint64(len(s.damage)))
	for _, d := range s.damage {
		b = appendInts(b, d.Server, d.FromUnixMs, d.ToUnixMs)
	}
	return appendBytes(b, s.signs)
}

func appendChange(b []byte, c *Change) []byte {
	b = appendInts(b, c.ID, c.Generation, c.Since, c.Learned, c.Epoch, int64(c.Kind), c.FromMs, c.ToMs, c.AtMs,
		int64(c.Signs), bit(c.Shared))
	return appendBytes(appendName(appendName(b, &c.Device), &c.Gateway), []byte(c.Subject))
}

func appendEntry(b []byte, e *encoded) []byte {
	x := &e.entry
	b = appendInts(append(b, entryFrame), x.Server, int64(x.Slot.Slot), x.Number, x.Generation, x.Epoch, x.UnixMs,
		x.PreviousToMs)
	b = binary.AppendUvarint(b, uint64(len(x.Assignments)))
	for i := range x.Assignments {
		a := &x.Assignments[i]
		b = appendBytes(appendName(b, &a.Device), []byte(a.Subject))
		b = appendInts(b, a.FromUnixMs, a.ToUnixMs, int64(a.By), a.NamedUnixMs, a.ChangedUnixMs)
	}
	return append(b, e.rows...)
}

func bit(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

func appendInts(b []byte, all ...int64) []byte {
	for _, v := range all {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

func appendName(b []byte, n *vitals.Name) []byte {
	var text [vitals.MaxNameBytes]byte
	return appendBytes(b, n.AppendTo(text[:0]))
}

// A decoder decodes a payload. After bytes that are not valid, bad is set, and all methods return zero values.
type decoder struct {
	b   []byte
	bad bool
}

// end reports whether all bytes were decoded, and were valid.
func (p *decoder) end() bool { return !p.bad && len(p.b) == 0 }

func (p *decoder) fail() {
	p.b, p.bad = nil, true
}

func (p *decoder) byte() (c byte) {
	if len(p.b) == 0 {
		p.fail()
		return 0
	}
	c, p.b = p.b[0], p.b[1:]
	return c
}

func (p *decoder) int() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *decoder) uint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *decoder) ints(all ...*int64) {
	for _, v := range all {
		*v = p.int()
	}
}

// count returns a number of items, each of which takes at least a byte.
func (p *decoder) count() int {
	v := p.uint()
	if v > uint64(len(p.b)) {
		p.fail()
		return 0
	}
	return int(v)
}

func (p *decoder) bytes() (data []byte) {
	n := p.count()
	data, p.b = p.b[:n], p.b[n:]
	return data
}

func (p *decoder) name() (n vitals.Name) {
	text := p.bytes()
	if len(text) == 0 {
		return n
	}
	n, err := vitals.ParseName(text)
	if err != nil {
		p.fail()
	}
	return n
}

func (p *decoder) slot() Slot {
	server, slot := p.int(), p.int()
	return Slot{server, int16(slot)}
}

func (p *decoder) state() *state {
	s := &state{}
	p.ints(&s.id, &s.run, &s.server, &s.nowMs, &s.epoch)
	s.whole = p.int() != 0
	for _, m := range []*map[Slot]int64{&s.gone, &s.first, &s.last} {
		*m = map[Slot]int64{}
		for range p.count() {
			slot := p.slot()
			(*m)[slot] = p.int()
		}
	}
	for range p.count() {
		s.changes = append(s.changes, p.change())
	}
	for range p.count() {
		var d Damage
		p.ints(&d.Server, &d.FromUnixMs, &d.ToUnixMs)
		s.damage = append(s.damage, d)
	}
	s.signs = bytes.Clone(p.bytes())
	return s
}

func (p *decoder) change() (c Change) {
	var kind, signs, shared int64
	p.ints(&c.ID, &c.Generation, &c.Since, &c.Learned, &c.Epoch, &kind, &c.FromMs, &c.ToMs, &c.AtMs, &signs, &shared)
	c.Kind, c.Device, c.Gateway, c.Subject = int16(kind), p.name(), p.name(), storage.Subject(p.bytes())
	c.Signs, c.Shared = uint32(signs), shared != 0
	return c
}

func (p *decoder) entry() (e encoded) {
	x := &e.entry
	x.Slot = p.slot()
	p.ints(&x.Number, &x.Generation, &x.Epoch, &x.UnixMs, &x.PreviousToMs)
	for range p.count() {
		a := storage.Assignment{Device: p.name(), Subject: storage.Subject(p.bytes())}
		var by int64
		p.ints(&a.FromUnixMs, &a.ToUnixMs, &by, &a.NamedUnixMs, &a.ChangedUnixMs)
		a.By = storage.Maker(by)
		x.Assignments = append(x.Assignments, a)
	}
	e.rows, p.b = bytes.Clone(p.b), nil
	return e
}
