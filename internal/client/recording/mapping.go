package recording

import (
	"fmt"
	"strings"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Mapping names the CSV column of each field of a reading. An empty name means
// that the file has no such column.
type Mapping struct {
	Time    string // RFC 3339 with zone, or integer Unix ms
	Device  string
	Gateway string
	Signs   [vitals.NumSigns]string
}

// DefaultMapping expects columns that are named as the JSON fields are.
func DefaultMapping() Mapping {
	m := Mapping{Time: "time", Device: "device", Gateway: "gateway"}
	for s := range vitals.Sign(vitals.NumSigns) {
		m.Signs[s] = s.Field()
	}
	return m
}

// ParseMapping reads a list such as "heart_rate_bpm=HR,spo2_pct=SpO2". Signs
// that it does not name are taken from no column; time, device and gateway keep
// their default columns unless it names others. An empty text is
// [DefaultMapping].
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
		place := m.column(field)
		if place == nil {
			return m, fmt.Errorf("recording: mapping names %q, which is no field of a reading", field)
		}
		*place = column
	}
	return m, nil
}

// column returns the place for the column of a field, nil for an unknown field.
func (m *Mapping) column(field string) *string {
	switch field {
	case "time":
		return &m.Time
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
