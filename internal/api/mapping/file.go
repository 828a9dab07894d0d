package mapping

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

const maxSuffix = 16 // bytes of user_suffix

// Others adds the mappings of other sources than JSON, by the name of the source.
type Others map[string]func(*shape.Table) error

// Read reads files of mappings to the signs of a table. topic reports whether a pattern of topics is valid,
// and whether it has {device}. accepted has the ranges of the signs; nil means those of their definitions.
func Read(paths []string, table codes.Table, accepted *[vitals.MaxSigns]vitals.Range,
	topic func(pattern string) (device bool, err error), others Others) (*Set, error) {
	set := new(Set)
	err := shape.Read(paths, func(t *shape.Table) error {
		if add := others[t.Source]; add != nil {
			return add(t)
		}
		m, err := compile(t, table, accepted, topic)
		if err != nil {
			return err
		}
		return set.add(m)
	})
	if err != nil {
		return nil, err
	}
	return set, nil
}

// bad returns an error about a key of a mapping.
func bad(key, format string, args ...any) error {
	return &vitals.FieldOf{Part: key, Err: fmt.Errorf(format, args...)}
}

// compile checks a table and returns the mapping.
func compile(t *shape.Table, signs codes.Table, accepted *[vitals.MaxSigns]vitals.Range,
	topic func(string) (bool, error)) (m *mapping, err error) {
	m = &mapping{topic: t.Topic, userSuffix: t.UserSuffix}
	if t.Source != "" && t.Source != "json" {
		return nil, bad("source", "only json and lines are read here")
	}
	if t.Sources != "" || t.Member != "" {
		return nil, bad("source", "sources and member are of files, which import reads")
	}
	opt := shape.Options{Table: signs, Accepted: accepted, Place: shape.CheckPointer}
	if t.Topic != "" {
		if opt.DeviceKnown, err = topic(t.Topic); err != nil {
			return nil, bad("topic", "%w", err)
		}
	}
	if err := m.decoded(t); err != nil {
		return nil, err
	}
	if m.gatt != nil {
		opt.Stamped, opt.Units = m.gatt.stamped, m.gatt.unitsOf
	}
	m.Shape, err = t.Compile(opt)
	return m, err
}

// decoded sets how a characteristic is decoded.
func (m *mapping) decoded(t *shape.Table) error {
	switch t.Decode {
	case "":
		for key, given := range map[string]bool{"characteristic": t.Characteristic != "", "value": t.Value != nil,
			"encoding": t.Encoding != "", "user_suffix": t.UserSuffix != ""} {
			if given {
				return bad(key, `needs decode = "gatt"`)
			}
		}
		return nil
	case "gatt":
	default:
		return bad("decode", `only "gatt" is known`)
	}
	if m.gatt = characteristics[strings.ToUpper(t.Characteristic)]; m.gatt == nil {
		return bad("characteristic", "not one of %s", strings.Join(slices.Sorted(maps.Keys(characteristics)), ", "))
	}
	if t.Value == nil {
		return bad("value", "missing: the pointer to the characteristic")
	}
	if err := shape.CheckPointer(*t.Value); err != nil {
		return &vitals.FieldOf{Part: "value", Err: err}
	}
	if m.value = *t.Value; t.Encoding == "base64" {
		m.bytes = base64.StdEncoding.DecodeString
	} else if t.Encoding != "" && t.Encoding != "hex" {
		return bad("encoding", "neither hex nor base64")
	}
	if _, err := vitals.ParseName("a" + t.UserSuffix); err != nil || len(t.UserSuffix) > maxSuffix {
		return bad("user_suffix", "not up to %d bytes of A-Z a-z 0-9 . _ : and -", maxSuffix)
	}
	return nil
}

// unitsOf returns the units of a part.
func (c *gattCharacteristic) unitsOf(part string) ([]string, error) {
	units, known := c.parts[part]
	if !known {
		return nil, fmt.Errorf("at: the characteristic has no such part; it has %s",
			strings.Join(slices.Sorted(maps.Keys(c.parts)), ", "))
	}
	return units, nil
}
