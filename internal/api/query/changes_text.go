package query

import (
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A changeText appends changes as JSON objects.
type changeText struct {
	signs                       *vitals.Signs
	measured, received, changed clock // append a member's name and a time
}

func newChangeText(signs *vitals.Signs) *changeText {
	t := &changeText{signs: signs}
	t.measured.setText([]byte(`","time":"`))
	t.received.setText([]byte(`","received":"`))
	t.changed.setText([]byte(`","changed":"`))
	return t
}

// changeNames are the kinds of changes as text. It is never modified.
var changeNames = [...]string{
	storage.ChangedReading: "reading", storage.ChangeAssigned: "assigned", storage.ChangeUnassigned: "unassigned",
	storage.ChangeErased: "erased", storage.ChangeExpired: "expired", storage.ChangeSign: "sign",
	storage.ChangeBegin: "begin", storage.ChangeComplete: "complete",
}

// append appends a change.
func (t *changeText) append(dst []byte, c *storage.Change) []byte {
	dst = append(append(append(dst, `{"kind":"`...), changeNames[c.Kind]...), '"')
	switch c.Kind {
	case storage.ChangedReading:
		return t.appendReading(dst, c)
	case storage.ChangeAssigned, storage.ChangeUnassigned:
		dst = c.Device.AppendTo(append(dst, `,"device":"`...))
		dst = appendSubject(append(dst, '"'), "subject", c.Subject)
		dst = appendInstant(dst, "from", c.FromUnixMs)
		if c.ToUnixMs != storage.OpenEnd {
			dst = appendInstant(dst, "to", c.ToUnixMs)
		}
	case storage.ChangeErased:
		dst = t.appendErased(dst, c)
	case storage.ChangeExpired:
		dst = appendInstant(dst, "before", c.ToUnixMs)
	case storage.ChangeSign:
		for s := range vitals.InOrder(c.Signs) { // one
			dst = t.appendDefinition(dst, t.signs.Of(s))
		}
	case storage.ChangeBegin, storage.ChangeComplete:
		dst = append(strconv.AppendUint(append(dst, `,"copy":"`...), c.Copy, 16), '"')
	}
	return append(dst, '}')
}

func (t *changeText) appendReading(dst []byte, c *storage.Change) []byte {
	r := &c.Record
	dst = c.Device.AppendTo(append(dst, `,"device":"`...))
	dst = t.measured.append(dst, r.TimeUnixMs)
	dst = t.received.append(dst, r.ReceivedUnixMs)
	dst = append(t.changed.append(dst, max(r.ChangedUnixMs, r.ReceivedUnixMs)), '"')
	if minutes, ok := r.UTCOffset.Minutes(); ok {
		dst = strconv.AppendInt(append(dst, `,"utc_offset_minutes":`...), int64(minutes), 10)
	}
	if r.Gateway != nil {
		dst = append(r.Gateway.AppendTo(append(dst, `,"gateway":"`...)), '"')
	}
	dst = append(appendSubject(dst, "subject", c.Subject), `,"signs":{`...)
	begin := len(dst)
	dst = t.signs.AppendMembers(dst, &r.Values)
	copy(dst[begin:], dst[begin+1:]) // without the first comma
	return append(dst[:len(dst)-1], "}}"...)
}

func (t *changeText) appendErased(dst []byte, c *storage.Change) []byte {
	dst = append(c.Device.AppendTo(append(dst, `,"device":"`...)), `","subjects":[`...)
	for i, s := range c.Subjects {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), s...), '"')
	}
	dst = append(dst, ']')
	if c.FromUnixMs > 0 {
		dst = appendInstant(dst, "from", c.FromUnixMs)
	}
	if c.ToUnixMs != storage.OpenEnd {
		dst = appendInstant(dst, "to", c.ToUnixMs)
	}
	if c.Signs == 0 {
		return dst
	}
	dst = append(dst, `,"signs":[`...)
	before := `"`
	for s := range vitals.InOrder(c.Signs) {
		dst, before = append(append(append(dst, before...), t.signs.Field(s)...), '"'), `,"`
	}
	return append(dst, ']')
}

// appendDefinition appends the members of a sign as in GET /v1/limits.
func (t *changeText) appendDefinition(dst []byte, d *vitals.Definition) []byte {
	shown := struct {
		Field    string     `json:"field"`
		Label    string     `json:"label"`
		Unit     string     `json:"unit"`
		Decimals int        `json:"decimals"`
		LOINC    []string   `json:"loinc,omitempty"`
		Accepted shownRange `json:"accepted"`
		Usual    shownRange `json:"usual"`
		Retired  bool       `json:"retired,omitzero"`
	}{d.Field, d.Label, d.Unit, d.Decimals, d.LOINC, showRange(d, d.Accepted), showRange(d, d.Usual), d.Retired}
	text, err := json.Marshal(shown)
	if err != nil {
		panic(err) // the type above can be marshaled
	}
	return append(append(dst, ','), text[1:len(text)-1]...)
}

// appendInstant appends a member with a time.
func appendInstant(dst []byte, member string, unixMs int64) []byte {
	dst = append(append(append(dst, `,"`...), member...), `":"`...)
	return append(vitals.AppendTime(dst, unixMs), '"')
}
