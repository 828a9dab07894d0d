package mapping

import (
	"errors"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/api/strictjson"
	"github.com/pulsegate/pulsegate/vitals"
)

// A mapping says how a payload is read. It is never modified once its set is complete.
type mapping struct {
	*shape.Shape
	topic string
	slots []int // of the tree, by place

	gatt       *gattCharacteristic // nil means JSON
	value      string              // pointer to the characteristic
	bytes      func(string) ([]byte, error)
	userSuffix string // "" means that the user index is not kept
}

// A Set has the mappings of files. It is never modified.
type Set struct{ names, topics []*group }

// A group has the mappings of a name or of a topic, of which the first that fits is used. It is an [ingest.Input].
type group struct {
	key      string
	mappings []*mapping
	tree     *shape.Tree
}

// add adds a mapping to the groups of its name and of its topic.
func (s *Set) add(m *mapping) error {
	if err := addTo(&s.names, m.Name, *m); err != nil || m.topic == "" {
		return err
	}
	return addTo(&s.topics, m.topic, *m)
}

// addTo adds a mapping to the group of a key, with whose other mappings it must agree.
func addTo(groups *[]*group, key string, m mapping) error {
	i := slices.IndexFunc(*groups, func(g *group) bool { return g.key == key })
	if i < 0 {
		i = len(*groups)
		*groups = append(*groups, &group{key: key, tree: shape.NewTree()})
	}
	g := (*groups)[i]
	if m.Ignore && !m.Conditional() && len(g.mappings) == 0 {
		return shape.ErrIgnoreAll
	}
	if slices.ContainsFunc(g.mappings, func(m *mapping) bool { return !m.Conditional() }) {
		return bad("where",
			"not reached: an earlier mapping of this name or topic takes every payload, because it has no where")
	}
	places := m.Places
	if m.gatt != nil {
		places = append(slices.Clip(places), shape.Place{Key: "value", At: m.value})
	}
	var err error
	if m.slots, err = g.tree.AddPlaces(places); err != nil {
		return err
	}
	g.mappings = append(g.mappings, &m)
	return nil
}

func keys(groups []*group) (all []string) {
	for _, g := range groups {
		all = append(all, g.key)
	}
	return all
}

// find returns the group of a key as an Input, or nil.
func find(groups []*group, key string) ingest.Input {
	for _, g := range groups {
		if g.key == key {
			return g
		}
	}
	return nil
}

// Names returns the names of the mappings, in the order of the files.
func (s *Set) Names() []string { return keys(s.names) }

// Topics returns the patterns of topics, in the order of the files.
func (s *Set) Topics() []string { return keys(s.topics) }

// Named returns the input of payloads for the mappings of a name, or nil if there are none. It may be used by many
// goroutines.
func (s *Set) Named(name string) ingest.Input { return find(s.names, name) }

// OfTopic is Named for a pattern of topics.
func (s *Set) OfTopic(pattern string) ingest.Input { return find(s.topics, pattern) }

// Reasons for which a payload is rejected. Their texts are sent to clients.
var (
	errNoFit   = errors.New("no mapping fits: none has a where that holds")
	errNoArray = errors.New("the array of readings is missing")
	errNotText = errors.New("neither a string nor a number")
	errMissing = vitals.ErrMissing
)

// A decoding is the decoding of one message.
type decoding struct {
	group   *group
	in      *ingest.Intake
	payload payload
	index   int // position of the next reading
	tooMany bool
}

// Decode implements [ingest.Input].
func (g *group) Decode(message []byte, in *ingest.Intake) error {
	if err := strictjson.CheckSize(message); err != nil {
		return err
	}
	r, payloads := strictjson.NewReader(message), 0
	d := decoding{group: g, in: in, payload: payload{Tree: g.tree, values: make([]shape.Cell, g.tree.Slots())}}
	for payloads == 0 || r.Kind() != 0 {
		raw := r.Raw()
		if raw == nil {
			break // a syntax error
		}
		payloads++
		before := d.index
		d.payload.read(raw, d.next)
		if !d.payload.found && (d.index > before || !d.ignored()) {
			d.refuse("", errNoArray)
		}
		if d.tooMany {
			return vitals.ErrTooManyReadings
		}
	}
	if payloads == 1 && len(g.tree.Arrays) == 0 {
		in.Batch.Shape = vitals.Single
	}
	return r.End()
}

// next decodes the reading whose values the payload has now.
func (d *decoding) next() {
	if d.index >= d.in.MaxReadings {
		d.tooMany = true
		return
	}
	i := slices.IndexFunc(d.group.mappings, func(m *mapping) bool { return m.Fits(m.cells(&d.payload)) })
	if i < 0 {
		d.refuse("", errNoFit)
		return
	}
	m := d.group.mappings[i]
	if m.Ignore {
		d.ignore()
		return
	}
	taken := Record{Shape: m.Shape, Cells: m.cells(&d.payload), Index: d.index}
	if m.gatt != nil {
		taken.values = func(r *vitals.Reading) (field string, err error) {
			got, field, err := d.readGATT(m, r)
			taken.Stamp = got.when
			return field, err
		}
	}
	taken.Take(d.in)
	d.index++
}

// ignore leaves out what a mapping ignores.
func (d *decoding) ignore() {
	(&Record{Index: d.index}).Ignore(d.in)
	d.index++
}

// ignored ignores a payload without the array of readings if the first mapping that fits it says so.
func (d *decoding) ignored() bool {
	i := slices.IndexFunc(d.group.mappings, func(m *mapping) bool { return m.Fits(m.cells(&d.payload)) })
	if i < 0 || !d.group.mappings[i].Ignore {
		return false
	}
	if d.tooMany = d.tooMany || d.index >= d.in.MaxReadings; !d.tooMany {
		d.ignore()
	}
	return true
}

// refuse rejects the next reading.
func (d *decoding) refuse(field string, err error) {
	if d.tooMany = d.tooMany || d.index >= d.in.MaxReadings; d.tooMany {
		return
	}
	d.in.Batch.Refused = append(d.in.Batch.Refused, vitals.FieldError{Index: d.index, Field: field, Err: err})
	d.index++
}

// cells returns the values of a payload at the places of a mapping.
func (m *mapping) cells(p *payload) shape.Cells { return shape.Cells{Values: p.values, At: m.slots} }
