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
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

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
	LOINC    []string `toml:"loinc"`
}

// bounds are the ends of a range; nil means none.
type bounds struct {
	Min, Max *number
}

// A number is the text of a number.
type number string

// UnmarshalText keeps the text, without the underscores that TOML permits between digits.
func (n *number) UnmarshalText(text []byte) error {
	*n = number(bytes.ReplaceAll(text, []byte("_"), nil))
	return nil
}

// Read reads the definitions in a file.
func Read(path string) ([]vitals.Definition, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var f file
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return nil, syntaxError(path, err)
	}
	own := make([]vitals.Definition, len(f.Sign))
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

// readFile returns the content of a regular file of at most maxBytes.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", path)
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxBytes)
	}
	return os.ReadFile(path)
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
	return d, nil
}

// values returns the range. An end that is missing is the end of all values.
func (b *bounds) values(decimals int) (r vitals.Range, err error) {
	r = vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	for _, end := range []struct {
		name string
		text *number
		to   *vitals.Value
	}{{"min", b.Min, &r.Min}, {"max", b.Max, &r.Max}} {
		if end.text == nil {
			continue
		}
		if *end.to, err = vitals.ParseValue(*end.text, decimals); err != nil {
			switch {
			case errors.Is(err, vitals.ErrPrecision):
				return r, fmt.Errorf("%s has more decimals than the sign, which has %d", end.name, decimals)
			case errors.Is(err, vitals.ErrRange):
				return r, fmt.Errorf("%s is not within ±2147483646 units of the last decimal", end.name)
			}
			return r, fmt.Errorf("%s is not a decimal number", end.name)
		}
	}
	return r, nil
}

// syntaxError returns an error of the TOML decoder with the line.
func syntaxError(path string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		unknown := &strict.Errors[0]
		line, _ := unknown.Position()
		key := unknown.Key()
		return fmt.Errorf("%s:%d: %s: unknown key", path, line, key[len(key)-1])
	}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		line, _ := at.Position()
		return fmt.Errorf("%s:%d: %w", path, line, err)
	}
	return fmt.Errorf("%s: %w", path, err)
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
	text, readErr := readFile(path)
	if readErr != nil {
		return err
	}
	return fmt.Errorf("%s:%d: %w", path, lineOf(text, of.Index, part), of.Err)
}

// lineOf returns the line of a key in a table of the file, or that of the table if it has no such key.
func lineOf(text []byte, table int, key string) int {
	p := unstable.Parser{}
	p.Reset(text)
	line, at := 1, -1
	for p.NextExpression() {
		e := p.Expression()
		var keys []string
		first := 0
		for it := e.Key(); it.Next(); {
			if first == 0 {
				first = p.Shape(it.Node().Raw).Start.Line
			}
			keys = append(keys, string(it.Node().Data))
		}
		switch {
		case e.Kind == unstable.ArrayTable && slices.Equal(keys, []string{"sign"}):
			if at++; at == table {
				line = first
			}
		case e.Kind == unstable.KeyValue && at < 0 && keys[0] == "sign": // an array
			return first
		case e.Kind == unstable.Table && at == table && slices.Equal(keys, []string{"sign", key}),
			e.Kind == unstable.KeyValue && at == table && keys[0] == key:
			return first
		}
	}
	return line
}
