package fhir

import (
	"cmp"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxOffsetMinutes is the largest offset of a dateTime in FHIR; RFC 3339 has larger ones.
const maxOffsetMinutes = 14 * 60

// A form has the texts that the Observations of one device, subject and sign group share. Its
// methods append to a buffer and do not allocate otherwise.
type form struct {
	components []component
	decimals   int    // of the values
	url        string // from the beginning of an entry to the time in fullUrl
	resource   string // from there to the beginning of the resource
	id         string // from the beginning of the resource to the time in its id
	updated    string // from there to lastUpdated
	measured   string // from there to effectiveDateTime
	values     [2]string
	end        string // from the last value to the end of the resource
}

const entryEnd = `,"search":{"mode":"match"}}`

// newForm returns the form of a group, of which signs must have the signs. base is the URL of the
// FHIR server. If subject is empty, resources have none.
func newForm(base string, signs *vitals.Signs, device *vitals.Name, subject storage.Subject, g group) *form {
	m := mappingOf(signs, g)
	sign := signs.Of(m.components[0].sign)
	deviceID := string(appendDeviceID(nil, device))
	f := &form{components: m.components, decimals: sign.Decimals}
	f.url = `{"fullUrl":` + quoted(base+"/Observation/"+m.key+"-")
	f.url = f.url[:len(f.url)-1] // the id goes on
	f.resource = "-" + deviceID + `","resource":`
	f.id = `{"resourceType":"Observation","id":"` + m.key + "-"
	f.updated = "-" + deviceID + `","meta":{"lastUpdated":"`
	f.measured = `"`
	if m.profile != "" {
		f.measured += `,"profile":["` + profiles + m.profile + `"]`
	}
	f.measured += `},"status":"` + status +
		`","category":[{"coding":[{"system":"` + categorySystem + `","code":"` + m.category + `","display":"` +
		categoryNames[m.category] + `"}]}],` +
		`"code":` + concept(m.text, m.codes...)
	if subject != "" {
		f.measured += `,"subject":{"reference":"Patient/` + string(subject) + `"}`
	}
	f.measured += `,"effectiveDateTime":"`
	f.values[0] = `","device":` + deviceReference(device, deviceID) + `,`
	before, after := `"valueQuantity":{"value":`, `,"unit":"`+m.unit+`","system":"`+ucum+`","code":"`+sign.Unit+`"}`
	if len(m.components) == 1 {
		f.values[0] += before
		f.end = after + "}"
		return f
	}
	f.values[0] += `"component":[`
	for i, c := range m.components {
		f.values[i] += `{"code":` + concept("", c.code) + "," + before
		if i+1 < len(m.components) {
			f.values[i+1] = after + "},"
		} else {
			f.end = after + "}]}"
		}
	}
	return f
}

// hideUpdated leaves meta out of the resources.
func (f *form) hideUpdated() {
	id, _, _ := strings.Cut(f.updated, `,"meta"`)
	_, rest, _ := strings.Cut(f.measured, `},"status"`)
	f.updated, f.measured = "", id+`,"status"`+rest
}

// concept returns a CodeableConcept. If text is empty, it has the name of the first code.
func concept(text string, codes ...coding) string {
	var b strings.Builder
	b.WriteString(`{"coding":[`)
	for i, c := range codes {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"system":"` + c.system + `","code":"` + c.code)
		if c.display != "" {
			b.WriteString(`","display":"` + c.display)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`],"text":"` + cmp.Or(text, codes[0].display) + `"}`)
	return b.String()
}

// deviceReference returns a Reference to a Device. It has the name if the id does not.
func deviceReference(device *vitals.Name, id string) string {
	text := `{"reference":"Device/` + id + `"`
	if strings.HasPrefix(id, hashMark) {
		text += `,"identifier":{"value":"` + device.String() + `"}`
	}
	return text + "}"
}

// quoted returns text as a string in JSON.
func quoted(text string) string { return string(reply.AppendJSONString(nil, text)) }

// appendEntry appends an entry of a searchset.
func (f *form) appendEntry(dst []byte, r *storage.Record, assignedUnixMs int64) []byte {
	dst = appendTimeID(append(dst, f.url...), r.TimeUnixMs)
	dst = append(dst, f.resource...)
	dst = f.appendResource(dst, r, assignedUnixMs)
	return append(dst, entryEnd...)
}

// lastUpdated returns when an Observation was last changed: its reading, or the assignment of its device.
func lastUpdated(r *storage.Record, assignedUnixMs int64) int64 {
	return max(r.ReceivedUnixMs, r.ChangedUnixMs, assignedUnixMs)
}

// appendResource appends an Observation. The record must have the signs of the group.
func (f *form) appendResource(dst []byte, r *storage.Record, assignedUnixMs int64) []byte {
	dst = appendTimeID(append(dst, f.id...), r.TimeUnixMs)
	if f.updated != "" {
		dst = vitals.AppendTime(append(dst, f.updated...), lastUpdated(r, assignedUnixMs))
	}
	offset := r.UTCOffset
	if minutes, _ := offset.Minutes(); minutes > maxOffsetMinutes || minutes < -maxOffsetMinutes {
		offset = 0
	}
	dst = vitals.AppendLocalTime(append(dst, f.measured...), r.TimeUnixMs, offset)
	for i, c := range f.components {
		v, _ := r.Values.Get(c.sign)
		dst = vitals.AppendDecimal(append(dst, f.values[i]...), v, f.decimals)
	}
	return append(dst, f.end...)
}
