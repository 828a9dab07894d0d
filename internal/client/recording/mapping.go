package recording

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// Fields of a reading, as positions in a [Mapping].
const (
	timeField   = iota // RFC 3339 with zone, or integer Unix ms
	offsetField        // in minutes
	deviceField
	gatewayField
	firstSign // the signs follow, by their numbers

	numFields = firstSign + vitals.MaxSigns
)

// A Mapping has the name of the CSV column for each field of a reading. An empty name
// means that there is no such column.
type Mapping [numFields]string

// DefaultMapping returns the mapping for columns named like the JSON fields.
func DefaultMapping(signs *vitals.Signs) Mapping {
	m := Mapping{timeField: "time", offsetField: fieldOffset, deviceField: "device", gatewayField: "gateway"}
	for s, d := range signs.All() {
		m[firstSign+s] = d.Field
	}
	return m
}

// ParseMapping parses a list such as "heart_rate_bpm=HR,spo2_pct=SpO2". Signs that it
// does not name are not read; the other fields have their default columns unless it names
// others. An empty text means [DefaultMapping].
func ParseMapping(signs *vitals.Signs, text string) (Mapping, error) {
	m, fields := DefaultMapping(signs), DefaultMapping(signs)
	if text == "" {
		return m, nil
	}
	clear(m[firstSign:])
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		field, column, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || field == "" || column == "" {
			return m, fmt.Errorf("mapping %q is not of the form field=column", pair)
		}
		if seen[field] {
			return m, fmt.Errorf("mapping names field %q twice", field)
		}
		seen[field] = true
		i := slices.Index(fields[:], field)
		if i < 0 {
			return m, fmt.Errorf("mapping names %q, which is not a field of a reading; the fields are %s", field,
				strings.Join(slices.DeleteFunc(fields[:], func(f string) bool { return f == "" }), ", "))
		}
		m[i] = column
	}
	return m, nil
}
