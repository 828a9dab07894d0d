package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// # How a consumer gets all changes
//
// A consumer reads in passes. A pass has two positions, from and to, the one of its beginning. It delivers
//
//  1. the events between from and to, in their order;
//  2. every stored reading that was changed since from, as it is when it is read.
//
// The next pass begins at to. So what changes during a pass is delivered by the next one, if the pass itself does not
// deliver it already, and nothing is kept for a consumer: it may stop anywhere, and for days.
//
// The first pass of a consumer without a position is a copy: it delivers the definitions of signs and all assignments
// in place of events, and all readings, between ChangeBegin and ChangeComplete. Whatever the consumer has and does not
// receive between the two is not stored.
//
// A consumer that sees only what some subjects wore gets the readings of an assignment after its event: they may have
// been stored long before. An erasure of what one gateway has sent is delivered as one of all that was measured at the
// time, and what it has left follows: a consumer need not know which gateways have completed a reading.

// A ChangeFilter selects changes. Its zero value selects all.
type ChangeFilter struct {
	Prefix  vitals.Name             // of the names of devices
	Signs   uint32                  // presence of the signs; 0 means all
	Device  func(*vitals.Name) bool // nil means all devices
	Subject func(Subject) bool      // if not nil, only what these subjects wore
}

// A ChangeCursor is how far a consumer has come. Its zero value begins with a copy.
type ChangeCursor struct {
	From, To Position
	Copy     uint64 // identifies the copy that the pass makes; 0 if it makes none

	stage    passStage
	event    uint64     // the last one, or the next sign
	key      ChangedKey // of the last reading, or, without its part, of the last assignment or reading of a span
	toUnixMs int64      // end of the span
}

// A passStage is what a pass delivers next.
type passStage uint8

const (
	betweenPasses passStage = iota
	passSigns               // of a copy: those of a user's own
	passEvents              // or, in a copy, assignments
	passSpan                // the readings of the time of the last event
	passReadings
	passEnd // of a copy

	numPassStages
)

// AppendTo appends the encoding of c.
func (c *ChangeCursor) AppendTo(dst []byte) []byte {
	dst = append(dst, byte(c.stage))
	dst = appendPosition(dst, &c.From)
	if c.stage == betweenPasses {
		return dst
	}
	dst = binary.AppendUvarint(appendPosition(dst, &c.To), c.Copy)
	dst = binary.AppendVarint(binary.AppendUvarint(dst, c.event), c.toUnixMs)
	dst = binary.AppendVarint(binary.AppendUvarint(dst, c.key.Part), c.key.TimeUnixMs)
	return c.key.Device.AppendTo(dst)
}

func appendPosition(dst []byte, p *Position) []byte {
	dst = binary.AppendVarint(binary.AppendUvarint(dst, p.Event), p.ChangedUnixMs)
	dst = binary.BigEndian.AppendUint64(binary.AppendUvarint(dst, p.Group), p.Mark)
	return append(binary.AppendUvarint(dst, uint64(len(p.Snapshot))), p.Snapshot...)
}

// errCursor is the error of bytes that are no cursor.
var errCursor = errors.New("not a cursor of changes")

// ParseChangeCursor parses the encoding of a cursor.
func ParseChangeCursor(b []byte) (c ChangeCursor, err error) {
	d := cursorDecoder{b: b}
	c.stage = passStage(d.byte())
	d.position(&c.From)
	if c.stage != betweenPasses {
		d.position(&c.To)
		c.Copy, c.event, c.toUnixMs, c.key.Part, c.key.TimeUnixMs = d.uvarint(), d.uvarint(), d.varint(),
			d.uvarint(), d.varint()
		if len(d.b) > 0 && !d.failed {
			var nameErr error
			c.key.Device, nameErr = vitals.ParseName(d.b)
			d.failed, d.b = nameErr != nil, nil
		}
	}
	if d.failed || len(d.b) > 0 || c.stage >= numPassStages || c.From.IsZero() != (c.Copy != 0) {
		return ChangeCursor{}, errCursor
	}
	return c, nil
}

// A cursorDecoder decodes what is left of a cursor.
type cursorDecoder struct {
	b      []byte
	failed bool
}

func (d *cursorDecoder) take(n int) []byte {
	if n <= 0 || n > len(d.b) {
		d.failed = true
		return make([]byte, 8)
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

func (d *cursorDecoder) byte() byte { return d.take(1)[0] }

func (d *cursorDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.take(n)
	return v
}

func (d *cursorDecoder) varint() int64 {
	v, n := binary.Varint(d.b)
	d.take(n)
	return v
}

func (d *cursorDecoder) position(p *Position) {
	p.Event, p.ChangedUnixMs, p.Group = d.uvarint(), d.varint(), d.uvarint()
	p.Mark = binary.BigEndian.Uint64(d.take(8))
	if n := d.uvarint(); n > uint64(len(d.b)) {
		d.failed = true
	} else if n > 0 {
		p.Snapshot = string(d.take(int(n)))
	}
}

// maxExamined is the number of changed readings after which [NextChanges] returns even if few were selected.
const maxExamined = 1 << 17

// NextChanges returns the next changes after a cursor, at most most, and moves the cursor after them. caughtUp reports
// that nothing was stored beyond them when the call read the store last. If there are no changes and caughtUp is false,
// those that were examined were not selected. The error wraps [ErrUnknownPosition] if the consumer must begin with a
// copy. After an error the cursor must not be used.
func NextChanges(ctx context.Context, s Changes, c *ChangeCursor, f *ChangeFilter, most int) (page []Change,
	caughtUp bool, err error) {
	p := pass{ctx: ctx, s: s, c: c, f: f, most: most}
	caughtUp, err = p.run()
	return p.page, caughtUp, err
}

// A pass reads a page of a pass, or of several.
type pass struct {
	ctx      context.Context
	s        Changes
	r        ChangeReader // reads s in the pass
	c        *ChangeCursor
	f        *ChangeFilter
	most     int
	page     []Change
	examined int
	ended    bool      // all of the pass was read
	expired  []Horizon // before the readings were read
}

func (p *pass) full() bool { return len(p.page) >= p.most || p.examined >= maxExamined }

// left returns how many changes fit.
func (p *pass) left() int { return p.most - len(p.page) }

// run reads a page.
func (p *pass) run() (caughtUp bool, err error) {
	c := p.c
	for !p.full() {
		if c.stage == betweenPasses {
			now, _, err := p.s.Position(p.ctx)
			if err == nil && !c.From.IsZero() {
				err = p.s.CheckPosition(p.ctx, c.From)
			}
			if err != nil {
				return false, err
			}
			if now.Same(&c.From) && !c.From.IsZero() {
				return true, nil
			}
			p.begin(now)
		}
		err = p.s.ReadChanges(p.ctx, &c.From, &c.To, func(r ChangeReader) error {
			p.r = r
			return p.read()
		})
		if err != nil {
			return false, err
		}
		if p.ended {
			p.end()
		}
	}
	return false, nil
}

// read reads until the page is full, or the end of the pass.
func (p *pass) read() (err error) {
	c := p.c
	for !p.full() && !p.ended && err == nil {
		switch c.stage {
		case passSigns:
			p.signs()
		case passEvents:
			err = p.events()
		case passSpan:
			err = p.span()
		case passReadings:
			err = p.readings()
		case passEnd:
			p.page = append(p.page, Change{Kind: ChangeComplete, Copy: c.Copy})
			p.ended = true
		}
	}
	return err
}

// begin begins a pass.
func (p *pass) begin(now Position) {
	c := p.c
	*c = ChangeCursor{From: c.From, To: now, stage: passEvents, event: c.From.Event}
	if c.From.IsZero() {
		c.stage, c.Copy = passSigns, rand.Uint64()|1
		p.page = append(p.page, Change{Kind: ChangeBegin, Copy: c.Copy})
	}
}

// end ends a pass.
func (p *pass) end() { *p.c, p.ended = ChangeCursor{From: p.c.To}, false }

// signs adds the definitions of signs of a copy, after the time before which readings have expired.
func (p *pass) signs() {
	if expired := p.s.Horizons(); p.c.event == 0 && len(expired) > 0 { // the first has the latest time
		p.event(&Change{Kind: ChangeExpired, ToUnixMs: expired[0].BeforeUnixMs})
	}
	for ; p.c.event < vitals.MaxSigns; p.c.event++ {
		if p.full() && p.c.event > 0 { // the first is built in
			return
		}
		if d := p.s.Signs().Of(vitals.Sign(p.c.event)); d != nil && d.Own() {
			p.event(&Change{Kind: ChangeSign, Signs: 1 << p.c.event})
		}
	}
	p.c.stage = passEvents
}

// events adds events, or the assignments of a copy.
func (p *pass) events() (err error) {
	c, stopped := p.c, false
	visit := func(e *Change) (more bool) {
		if stopped = p.full(); stopped {
			return false
		}
		p.examined++
		c.event = e.Number
		// What an assignment makes visible follows it, and so does what an erasure has left.
		follows := e.Kind == ChangeAssigned && p.f.Subject != nil || e.Kind == ChangeErased && e.Left
		if stopped = p.event(e) && follows; stopped {
			c.stage, c.key, c.toUnixMs = passSpan, ChangedKey{Device: e.Device, TimeUnixMs: e.FromUnixMs}, e.ToUnixMs
		}
		return !stopped
	}
	if c.Copy == 0 {
		err = p.r.VisitEvents(p.ctx, c.event, c.To.Event, visit)
	} else {
		err = p.assignments(visit)
	}
	if err != nil || stopped {
		return err
	}
	c.stage, c.key = passReadings, ChangedKey{}
	if c.Copy != 0 && p.f.Subject != nil { // the readings have followed their assignments
		c.stage = passEnd
	}
	return nil
}

// assignments calls visit with all assignments, as events.
func (p *pass) assignments(visit func(*Change) bool) error {
	var some [64]Assignment
	for n := len(some); n == len(some); {
		var err error
		n, err = p.r.Assignments(p.ctx, AssignmentKey{p.c.key.Device, p.c.key.TimeUnixMs}, some[:])
		if err != nil {
			return err
		}
		for i := range some[:n] {
			if e, ok := AssignmentEvent(&some[i], &Assignment{}); ok && !visit(&e) {
				return nil
			}
			e := &some[i]
			p.c.key.Device, p.c.key.TimeUnixMs = e.Device, e.FromUnixMs
		}
	}
	return nil
}

// event adds an event if it is selected, and reports whether it is.
func (p *pass) event(e *Change) bool {
	device := p.selects(&e.Device)
	switch e.Kind {
	case ChangeAssigned, ChangeUnassigned:
		if !device || p.f.Subject != nil && !p.f.Subject(e.Subject) {
			return false
		}
	case ChangeErased:
		signs := e.Signs
		e.Signs &= p.s.Signs().Known()  // it has all if all values were erased
		if signs != 0 && e.Signs == 0 { // of signs without readings: 0 would say that everything was erased
			return false
		}
		if !device || p.f.Signs != 0 && e.Signs != 0 && p.f.Signs&e.Signs == 0 {
			return false
		}
		if p.f.Subject != nil {
			e.Subjects = slices.DeleteFunc(slices.Clone(e.Subjects), func(s Subject) bool { return !p.f.Subject(s) })
			if len(e.Subjects) == 0 {
				return false
			}
		}
	case ChangeSign:
		if p.f.Signs != 0 && p.f.Signs&e.Signs == 0 {
			return false
		}
	}
	p.page = append(p.page, *e)
	return true
}

// selects reports whether a device is selected.
func (p *pass) selects(device *vitals.Name) bool {
	return device.HasPrefix(&p.f.Prefix) && (p.f.Device == nil || p.f.Device(device))
}

// span adds readings of an event's time. The cursor may come from a consumer that sees other devices.
func (p *pass) span() error {
	c, first := p.c, len(p.page)
	if !p.selects(&c.key.Device) {
		c.stage, c.key.TimeUnixMs = passEvents, c.toUnixMs-1
		return nil
	}
	p.expired = p.r.Horizons()
	records := make([]Record, p.step())
	n, err := p.r.Scan(p.ctx, Range{Device: c.key.Device, FromUnixMs: c.key.TimeUnixMs, ToUnixMs: c.toUnixMs}, records)
	if err != nil {
		return err
	}
	p.examined += n + 1
	device := c.key.Device
	p.add(0, &device, records[:n])
	if n < len(records) {
		c.stage, c.key.TimeUnixMs = passEvents, c.toUnixMs-1 // after the assignment, and before the next one
	} else {
		c.key.TimeUnixMs = records[n-1].TimeUnixMs + 1
	}
	last, cut, err := p.settle(first)
	if cut {
		c.stage, c.key = passSpan, ChangedKey{Device: device, TimeUnixMs: last.TimeUnixMs + 1}
	}
	return err
}

// step returns how many readings to read at once: more than fit, since few may be selected.
func (p *pass) step() int { return max(min(p.left(), maxExamined), 1024) }

// readings adds changed readings.
func (p *pass) readings() error {
	c, first, stopped := p.c, len(p.page), false
	p.expired = p.r.Horizons()
	end := first + p.step()
	err := p.r.VisitChanged(p.ctx, c.From, c.To, c.key, p.f.Prefix,
		func(part uint64, device *vitals.Name, records []Record) bool {
			if stopped = p.examined >= maxExamined || len(p.page) >= end; stopped {
				return false
			}
			n := len(records)
			if p.selects(device) {
				n = min(n, end-len(p.page))
				p.add(part, device, records[:n])
			}
			p.examined += n
			c.key = ChangedKey{part, *device, records[n-1].TimeUnixMs}
			stopped = n < len(records)
			return !stopped
		})
	if err != nil {
		return err
	}
	last, cut, err := p.settle(first)
	if cut {
		c.key = last
	} else if !stopped {
		if c.stage = passEnd; c.Copy == 0 {
			p.ended = true
		}
	}
	return err
}

// add adds readings of a device, which settle completes. The number of each is that of its part until then.
func (p *pass) add(part uint64, device *vitals.Name, records []Record) {
	if free := cap(p.page) - len(p.page); free < len(records) { // a page that grows in steps takes twice the time
		p.page = slices.Grow(p.page, max(len(records), min(p.left(), 1024)))
	}
	for i := range records {
		if !HasExpired(p.expired, &records[i]) {
			p.page = append(p.page, Change{Kind: ChangedReading, Number: part, Device: *device, Record: records[i]})
		}
	}
}

// settle completes the readings of the page from first on, and removes those that are not selected. If there are more
// than fit, it removes the others, too, and returns the place of the last one that stays.
func (p *pass) settle(first int) (last ChangedKey, cut bool, err error) {
	added := p.page[first:]
	worn := map[vitals.Name][]Assignment{}
	var devices []vitals.Name
	for i := range added {
		if d := added[i].Device; i == 0 || d != added[i-1].Device {
			if _, known := worn[d]; !known {
				worn[d], devices = nil, append(devices, d)
			}
		}
	}
	err = p.r.VisitAssignments(p.ctx, devices, func(a *Assignment) { worn[a.Device] = append(worn[a.Device], *a) })
	if err != nil {
		return last, false, err
	}
	kept := added[:0]
	for i := range added {
		x := &added[i]
		if p.f.Signs != 0 {
			x.Record.Values = only(p.f.Signs, &x.Record.Values)
		}
		if x.Subject = SubjectAt(worn[x.Device], x.Record.TimeUnixMs); p.f.Subject != nil && !p.f.Subject(x.Subject) ||
			x.Record.Values.IsZero() {
			continue
		}
		if cut = first+len(kept) == p.most; cut {
			break
		}
		last = ChangedKey{x.Number, x.Device, x.Record.TimeUnixMs}
		kept = append(kept, *x)
		kept[len(kept)-1].Number = 0
	}
	p.page = p.page[:first+len(kept)]
	return last, cut, nil
}

// only returns the values of some signs.
func only(signs uint32, values *vitals.Values) (some vitals.Values) {
	for s, v := range values.All() {
		if signs&(1<<s) != 0 {
			some.Set(s, v)
		}
	}
	return some
}
