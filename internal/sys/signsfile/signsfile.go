// Package signsfile reads files that define signs of a user's own.
//
// # Promise
//
// What [Read] returns is exactly what the file says: numbers are not rounded, and keys that are not
// known are errors. Errors name the file, the line, the key and the reason.
//
// # Not here
//
// What a definition may be: package vitals. What a store has already: its Open.
package signsfile

import (
	"errors"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxBytes bounds a file.
const maxBytes = 64 << 10

// A file is what TOML is decoded to.
type file struct {
	Sign []sign `toml:"sign"`
}

// A sign is a table of the file.
type sign struct {
	Field    string   `toml:"field"`
	Label    string   `toml:"label"`
	Unit     string   `toml:"unit"`
	Decimals int      `toml:"decimals"`
	Accepted bounds   `toml:"accepted"`
	Usual    bounds   `toml:"usual"`
	Critical *bounds  `toml:"critical"`
	LOINC    []string `toml:"loinc"`
}

// bounds are the ends of a range; nil means none.
type bounds struct {
	Min, Max *tomlfile.Text
}

// Table returns the built-in signs with those that a file defines, which it returns too; "" means no file.
func Table(path string) (signs *vitals.Signs, own []vitals.Definition, err error) {
	signs = vitals.NewSigns()
	if path == "" {
		return signs, nil, nil
	}
	if own, err = Read(path); err == nil {
		err = Locate(path, signs.Define(own))
	}
	return signs, own, err
}

// Read reads the definitions in a file.
func Read(path string) (own []vitals.Definition, err error) {
	var f file
	if _, err = tomlfile.Read(path, maxBytes, &f); err != nil {
		return nil, err
	}
	own = make([]vitals.Definition, len(f.Sign))
	for i := range f.Sign {
		if own[i], err = f.Sign[i].definition(); err == nil {
			err = own[i].Validate()
		}
		if err != nil {
			return nil, Locate(path, &vitals.DefinitionError{Index: i, Err: err})
		}
	}
	return own, nil
}

// definition returns the definition, which may be invalid.
func (s *sign) definition() (d vitals.Definition, err error) {
	d = vitals.Definition{Field: s.Field, Label: s.Label, Unit: s.Unit, Decimals: s.Decimals, LOINC: s.LOINC}
	if d.Decimals < 0 || d.Decimals > vitals.MaxDecimals {
		return d, nil // Validate says so
	}
	if s.Accepted.Min == nil || s.Accepted.Max == nil {
		return d, &vitals.FieldOf{Part: "accepted", Err: errors.New("needs min and max")}
	}
	if d.Accepted, err = s.Accepted.values(d.Decimals); err != nil {
		return d, &vitals.FieldOf{Part: "accepted", Err: err}
	}
	if d.Usual, err = s.Usual.values(d.Decimals); err != nil {
		return d, &vitals.FieldOf{Part: "usual", Err: err}
	}
	if s.Critical != nil {
		critical, err := s.Critical.values(d.Decimals)
		if err != nil {
			return d, &vitals.FieldOf{Part: "critical", Err: err}
		}
		d.Critical = &critical
	}
	return d, nil
}

// values returns the range. An end that is missing is the end of all values.
func (b *bounds) values(decimals int) (r vitals.Range, err error) {
	r = vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	for _, end := range []struct {
		name string
		text *tomlfile.Text
		to   *vitals.Value
	}{{"min", b.Min, &r.Min}, {"max", b.Max, &r.Max}} {
		if end.text == nil {
			continue
		}
		if *end.to, err = end.text.Value(end.name, decimals); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Locate returns an error about one of the definitions in a file, a [*vitals.DefinitionError], with the
// file and the line, and any other error as it is.
func Locate(path string, err error) error {
	var of *vitals.DefinitionError
	if !errors.As(err, &of) {
		return err
	}
	part := "field"
	var field *vitals.FieldOf
	if errors.As(of.Err, &field) {
		part = field.Part
	}
	text, readErr := tomlfile.Read(path, maxBytes, new(file))
	if readErr != nil {
		return err
	}
	return fmt.Errorf("%s:%d: %w", path, tomlfile.LineOf(text, "sign", of.Index, part), of.Err)
}
