package shape

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of mappings.
const (
	maxFileBytes = 64 << 10
	maxMappings  = 64 // in all files
)

// A file is what TOML is decoded to.
type file struct {
	Mapping []*Table `toml:"mapping"`
}

// A Table is a mapping as a file has it. Pointers are nil if they are not given, because "" is a place, too.
type Table struct {
	Name       string                   `toml:"name"`
	About      string                   `toml:"about"` // for people
	Source     string                   `toml:"source"`
	Element    string                   `toml:"element"` // of XML, whose attributes are a record
	Sources    string                   `toml:"sources"` // place that names who or what measured, and is no device
	Member     string                   `toml:"member"`  // file in a zip
	Topic      string                   `toml:"topic"`
	Where      map[string]tomlfile.Text `toml:"where"` // text that the source must have, by place
	Ignore     bool                     `toml:"ignore"`
	Device     any                      `toml:"device"` // a place or several, as a string or an array of strings
	Devices    map[string]string        `toml:"devices"`
	Gateway    any                      `toml:"gateway"`
	Time       any                      `toml:"time"`
	TimeFormat any                      `toml:"time_format"`
	Zone       string                   `toml:"zone"`
	Ambiguous  string                   `toml:"ambiguous"`
	Months     []string                 `toml:"months"`
	Missing    any                      `toml:"missing"`
	Decimal    string                   `toml:"decimal"` // "," if values have a decimal comma
	Signs      map[string]SignTable     `toml:"signs"`   // by field

	// Of characteristics.
	Decode         string  `toml:"decode"`
	Characteristic string  `toml:"characteristic"`
	Value          *string `toml:"value"`
	Encoding       string  `toml:"encoding"`
	UserSuffix     string  `toml:"user_suffix"`
}

// A SignTable is where the value of a sign is, and how it is written.
type SignTable struct {
	At      *string        `toml:"at"` // a place, or the name of a part of a characteristic
	Factor  *tomlfile.Text `toml:"factor"`
	Unit    string         `toml:"unit"`
	UnitAt  *string        `toml:"unit_at"`
	UnitIs  *tomlfile.Text `toml:"unit_is"`
	Suffix  string         `toml:"suffix"`
	Round   bool           `toml:"round"`
	Missing any            `toml:"missing"`
}

// Read reads files of mappings, and calls use with each table, in their order. Its errors, and those of use, have the
// file and the line.
func Read(paths []string, use func(*Table) error) error {
	n := 0
	for _, path := range paths {
		text, err := sharedfile.Read(path, maxFileBytes)
		if err != nil {
			return err
		}
		if err := read(path, text, &n, use); err != nil {
			return err
		}
	}
	return nil
}

// read is Read for the text of one file; n counts the mappings.
func read(path string, text []byte, n *int, use func(*Table) error) error {
	var f file
	if err := tomlfile.Decode(path, text, &f); err != nil {
		return err
	}
	for i, t := range f.Mapping {
		var err error
		if *n++; *n > maxMappings {
			err = bad("name", "more than %d mappings", maxMappings)
		} else {
			err = use(t)
		}
		if err != nil {
			return t.locate(path, text, i, err)
		}
	}
	if len(f.Mapping) == 0 {
		return fmt.Errorf("%s: no [[mapping]]", path)
	}
	return nil
}

// bad returns an error about a key of a mapping.
func bad(key, format string, args ...any) error {
	return &vitals.FieldOf{Part: key, Err: fmt.Errorf(format, args...)}
}

// locate returns an error with the file and the line.
func (t *Table) locate(path string, text []byte, index int, err error) error {
	key := "name"
	var at *vitals.FieldOf
	if errors.As(err, &at) {
		key = at.Part
	}
	if _, isSign := t.Signs[key]; isSign {
		key = "signs." + key
	}
	return fmt.Errorf("%s:%d: %w", path, tomlfile.LineOf(text, "mapping", index, key), err)
}

// texts returns the texts of a key, which has a string, an integer or an array of these.
func texts(key string, v any) (all []string, err error) {
	switch v := v.(type) {
	case nil:
	case string:
		all = []string{v}
	case int64:
		all = []string{strconv.FormatInt(v, 10)}
	case []any:
		if len(v) == 0 {
			return nil, bad(key, "an empty array")
		}
		for _, one := range v {
			if _, nested := one.([]any); nested {
				return nil, bad(key, "not a text or an array of texts")
			}
			more, err := texts(key, one)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	default:
		return nil, bad(key, "not a text or an array of texts")
	}
	return all, nil
}

// fieldsOf returns the fields of the signs of a table.
func fieldsOf(signs *vitals.Signs) (all []string) {
	for _, d := range signs.All() {
		if !d.Retired {
			all = append(all, d.Field)
		}
	}
	return all
}
