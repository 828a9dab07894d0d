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
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
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
	if text, err = sharedfile.Read(path, maxBytes); err != nil {
		return nil, err
	}
	return text, Decode(path, text, into)
}

// Decode decodes the text of a file to into.
func Decode(path string, text []byte, into any) error {
	return syntaxError(path, into, toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(into))
}

// syntaxError returns an error of the TOML decoder with the line.
func syntaxError(path string, into any, err error) error {
	var strict *toml.StrictMissingError
	var at *toml.DecodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		unknown := &strict.Errors[0]
		line, _ := unknown.Position()
		key := unknown.Key()
		last := key[len(key)-1]
		return fmt.Errorf("%s:%d: %s: unknown key%s", path, line, last, Nearest(last, keysOf(reflect.TypeOf(into))))
	case errors.As(err, &at):
		line, _ := at.Position()
		// the rest names types of Go
		if reason, _, wrongType := strings.Cut(err.Error(), " into "); wrongType && len(at.Key()) > 0 {
			return fmt.Errorf("%s:%d: %s: %s", path, line, at.Key()[len(at.Key())-1], reason)
		}
		return fmt.Errorf("%s:%d: %w", path, line, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// LineOf returns the line of a key in the index-th table of an array, or the line of the table if it
// has no such key.
func LineOf(text []byte, array string, index int, key string) int {
	lines, table := Lines(text), fmt.Sprintf("%s.%d", array, index)
	return cmp.Or(lines[table+"."+key], lines[table], lines[array], 1) // array may have inline tables
}

// Lines returns the line of each key of a valid TOML text, by the full key, such as serve.max-ahead. The tables of an
// array have numbers: rule.0.value.
func Lines(text []byte) map[string]int {
	l := liner{lines: map[string]int{}, tables: map[string]int{}}
	l.Reset(text)
	var table []string
	for l.NextExpression() {
		switch e := l.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = l.key(e, nil)
		case unstable.KeyValue:
			l.pair(e, table)
		}
	}
	return l.lines
}

// A liner finds the lines of keys.
type liner struct {
	unstable.Parser
	lines  map[string]int
	tables map[string]int // of each array, so far
}

// pair notes the line of a pair and of the pairs in its value.
func (l *liner) pair(pair *unstable.Node, table []string) {
	key := l.key(pair, table)
	if value := pair.Value(); value.Kind == unstable.InlineTable {
		for children := value.Children(); children.Next(); {
			if child := children.Node(); child.Kind == unstable.KeyValue {
				l.pair(child, key)
			}
		}
	}
}

// key returns the full key of a table or a pair. It notes the line of the key and of the tables that the key implies.
func (l *liner) key(e *unstable.Node, table []string) []string {
	key := slices.Clone(table)
	note := func(part string, line int) string {
		key = append(key, part)
		whole := strings.Join(key, ".")
		if l.lines[whole] == 0 {
			l.lines[whole] = line
		}
		return whole
	}
	for parts := e.Key(); parts.Next(); {
		part := parts.Node()
		line := l.Shape(part.Raw).Start.Line
		whole := note(string(part.Data), line)
		if e.Kind == unstable.ArrayTable && parts.IsLast() {
			l.tables[whole]++
		}
		if n := l.tables[whole]; n > 0 {
			note(strconv.Itoa(n-1), line)
		}
	}
	return key
}
