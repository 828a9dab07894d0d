package recording

import (
	"fmt"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Mapping has the name of the CSV column for each field of a reading. An empty name
// means that there is no such column.
type Mapping struct {
	Time      string // RFC 3339 with zone, or integer Unix ms
	UTCOffset string // in minutes
	Device    string
	Gateway   string
	Signs     [vitals.NumSigns]string
}

// DefaultMapping returns the mapping for columns named like the JSON fields.
func DefaultMapping() Mapping {
	m := Mapping{Time: "time", UTCOffset: fieldOffset, Device: "device", Gateway: "gateway"}
	for s := range vitals.Sign(vitals.NumSigns) {
		m.Signs[s] = s.Field()
	}
	return m
}

// ParseMapping parses a list such as "heart_rate_bpm=HR,spo2_pct=SpO2". Signs that it
// does not name are not read; the other fields have their default columns unless it names
// others. An empty text means [DefaultMapping].
func ParseMapping(text string) (Mapping, error) {
	m := DefaultMapping()
	if text == "" {
		return m, nil
	}
	m.Signs = [vitals.NumSigns]string{}
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		field, column, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || field == "" || column == "" {
			return m, fmt.Errorf("recording: mapping %q is not of the form field=column", pair)
		}
		if seen[field] {
			return m, fmt.Errorf("recording: mapping names field %q twice", field)
		}
		seen[field] = true
		name := m.column(field)
		if name == nil {
			return m, fmt.Errorf("recording: mapping names %q, which is not a field of a reading; the fields are %s", field, strings.Join(fields(), ", "))
		}
		*name = column
	}
	return m, nil
}

// fields returns the fields that a Mapping has columns for.
func fields() []string {
	all := []string{"time", fieldOffset, "device", "gateway"}
	for s := range vitals.Sign(vitals.NumSigns) {
		all = append(all, s.Field())
	}
	return all
}

// column returns a pointer to the column name of a field, or nil for an unknown field.
func (m *Mapping) column(field string) *string {
	switch field {
	case "time":
		return &m.Time
	case fieldOffset:
		return &m.UTCOffset
	case "device":
		return &m.Device
	case "gateway":
		return &m.Gateway
	}
	for s := range vitals.Sign(vitals.NumSigns) {
		if s.Field() == field {
			return &m.Signs[s]
		}
	}
	return nil
}
