// Package tomlfile reads TOML files strictly, and locates errors in them.
//
// # Promise
//
// Keys that are not known are errors. Errors name the file, the line, the key and the reason. A [Text]
// is what the file says, so that numbers are not rounded.
//
// # Not here
//
// What a file means: its reader. The settings of commands: package settings.
package tomlfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Text is a value as text: a string, or the digits of a number.
type Text string

// UnmarshalText keeps the text.
func (t *Text) UnmarshalText(text []byte) error {
	*t = Text(text)
	return nil
}

// Value returns the value of a sign. Its errors name end, such as "min".
func (t Text) Value(end string, decimals int) (v vitals.Value, err error) {
	digits := bytes.ReplaceAll([]byte(t), []byte("_"), nil) // TOML permits underscores between digits
	switch v, err = vitals.ParseValue(digits, decimals); {
	case errors.Is(err, vitals.ErrPrecision):
		return v, fmt.Errorf("%s has more decimals than the sign, which has %d", end, decimals)
	case errors.Is(err, vitals.ErrRange):
		return v, fmt.Errorf("%s is not within ±2147483646 units of the last decimal", end)
	case err != nil:
		return v, fmt.Errorf("%s is not a decimal number", end)
	}
	return v, nil
}

// Read decodes a regular file of at most maxBytes to into, and returns its text.
func Read(path string, maxBytes int64, into any) (text []byte, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", path)
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxBytes)
	}
	if text, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	err = toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(into)
	return text, syntaxError(path, err)
}

// syntaxError returns an error of the TOML decoder with the line.
func syntaxError(path string, err error) error {
	var strict *toml.StrictMissingError
	var at *toml.DecodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		unknown := &strict.Errors[0]
		line, _ := unknown.Position()
		key := unknown.Key()
		return fmt.Errorf("%s:%d: %s: unknown key", path, line, key[len(key)-1])
	case errors.As(err, &at):
		line, _ := at.Position()
		if reason, _, wrongType := strings.Cut(err.Error(), " into "); wrongType && len(at.Key()) > 0 { // the rest names types of Go
			return fmt.Errorf("%s:%d: %s: %s", path, line, at.Key()[len(at.Key())-1], reason)
		}
		return fmt.Errorf("%s:%d: %w", path, line, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// LineOf returns the line of a key in the index-th table of an array, or the line of the table if it
// has no such key.
func LineOf(text []byte, array string, index int, key string) int {
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
		case e.Kind == unstable.ArrayTable && slices.Equal(keys, []string{array}):
			if at++; at == index {
				line = first
			}
		case e.Kind == unstable.KeyValue && at < 0 && keys[0] == array: // an array of inline tables
			return first
		case e.Kind == unstable.Table && at == index && slices.Equal(keys, []string{array, key}),
			e.Kind == unstable.KeyValue && at == index && keys[0] == key:
			return first
		}
	}
	return line
}
