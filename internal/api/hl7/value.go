package hl7

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/vitals"
)

// Rules of an OBX.
var (
	errPatient  = &rule{valueNotFound, "not 1 to 64 of A-Z, a-z, 0-9, hyphen and dot"}
	errPatients = &rule{valueNotFound, "the message has several patients"}

	errAuthority   = &rule{valueNotFound, "no identifier of the assigning authority that --mllp-authority names"}
	errIdentifiers = &rule{valueNotFound, "several identifiers of the authority; --mllp-authority may name a type, too"}

	errType    = &rule{wrongType, "not NM; only numbers are stored"}
	errCode    = &rule{valueNotFound, "not a code of a sign in MDC or LN"}
	errCodes   = &rule{valueNotFound, "the codes are of different signs"}
	errSeveral = &rule{wrongType, "several values"}
	errNumber  = &rule{wrongType, "not a number"}
	errStatus  = &rule{valueNotFound, "neither R nor F; other results are not stored"}
	errTime    = &rule{wrongType, "not a time such as 20060102150405.000+0100"}
	errCoarse  = &rule{wrongType, "coarser than a second; times are not guessed"}
	errBytes   = &rule{wrongType, "not UTF-8, and MSH-18 is not one of 8859/1 to 8859/15"}

	errSeparators = &rule{wrongType, "not four different separators"}
)

// sign returns the sign of OBX-3 and the rank of its source, or the field and the rule that OBX-3
// breaks. at is zero if OBX-3 is not the code of a measurement.
func (d *decoder) sign(field []byte) (sign vitals.Sign, rank int, at uint8, err error) {
	table := codes.Table{Signs: d.opt.Signs, PulseAsHeartRate: d.opt.PulseAsHeartRate}
	meaning, known, described := codes.Anything, false, false
	for _, first := range []int{1, 4} { // the code, and an alternate one
		code, system := d.part(field, first), d.part(field, first+2)
		var its codes.Meaning
		switch string(system) {
		case "MDC":
			if n, err := strconv.ParseUint(string(code), 10, 32); err == nil && (n>>16 == 1 || n>>16 == 8) {
				described = true
			}
			its = table.MDC(string(code))
		case "LN":
			its = table.LOINC(string(code))
		default:
			continue
		}
		_, _, alone := table.Sign(its)
		meaning, known = meaning&its, known || alone
	}
	sign, rank, ok := table.Sign(meaning)
	switch {
	case ok:
		return sign, rank, 3, nil
	case known:
		return 0, 0, 3, errCodes
	case described:
		return 0, 0, 0, nil
	}
	return 0, 0, 3, errCode
}

// doubt returns the doubt of OBX-8.
func (d *decoder) doubt(flags []byte) (doubt codes.Doubt) {
	for flag := range bytes.SplitSeq(flags, []byte{d.repetition}) {
		doubt = max(doubt, codes.FlagDoubt(d.part(flag, 1)))
	}
	return doubt
}

// read sets the value of an OBX. It returns the field and the rule that it breaks.
func (d *decoder) read(f *fields, sign vitals.Sign, r *vitals.Reading) (at uint8, err error) {
	definition := d.opt.Signs.Of(sign)
	number, ok := appendNumber(nil, f[5])
	switch {
	case len(f[11]) == 0:
		return 11, vitals.ErrMissing
	case string(f[11]) != "R" && string(f[11]) != "F":
		return 11, errStatus
	case string(f[2]) != "NM":
		return 2, errType
	case bytes.IndexByte(f[5], d.repetition) >= 0:
		return 5, errSeveral
	case !ok:
		return 5, errNumber
	case len(f[6]) == 0:
		return 6, &rule{requiredMissing, "missing: " + wantedUnit(sign, definition.Unit)}
	case !d.hasUnit(f[6], definition.Unit):
		return 6, &rule{valueNotFound, "not the unit of " + d.opt.Signs.Field(sign) + ": " +
			wantedUnit(sign, definition.Unit)}
	}
	value, err := definition.Parse(number)
	if err == nil {
		r.Values.Set(sign, value)
	}
	return 5, err
}

// isChange reports whether OBX-11 says that an OBX changes what was sent before: a correction, a deletion, another
// status or a mistake.
func isChange(status []byte) bool { return len(status) == 1 && bytes.Contains([]byte("CDUW"), status) }

// appendNumber appends a number with the spelling of JSON, which has a digit on both sides of a point, no plus sign and
// no zeros in front. It returns false if text is not a number of HL7.
func appendNumber(dst, text []byte) ([]byte, bool) {
	if len(text) > maxPart {
		return dst, false
	}
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		if text[0] == '-' {
			dst = append(dst, '-')
		}
		text = text[1:]
	}
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	if len(whole)+len(fraction) == 0 || !isDigits(whole) || !isDigits(fraction) {
		return dst, false
	}
	if whole = bytes.TrimLeft(whole, "0"); len(whole) == 0 {
		whole = []byte("0")
	}
	dst = append(dst, whole...)
	if len(fraction) > 0 {
		dst = append(append(dst, '.'), fraction...)
	}
	return dst, true
}

func isDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// hasUnit reports whether OBX-6 is a unit. If it has an alternate code, both must be of the unit.
func (d *decoder) hasUnit(field []byte, unit string) bool {
	found := false
	for _, first := range []int{1, 4} {
		code, system := d.part(field, first), d.part(field, first+2)
		var its string
		switch string(system) {
		case "MDC":
			its, _ = codes.MDCUnit(code)
		case "UCUM", "ISO+", "":
			if its = string(code); its == "" {
				continue
			}
			before, rest, _ := strings.Cut(its, "{")
			if _, after, closed := strings.Cut(rest, "}"); closed && !strings.Contains(unit, "{") {
				its = before + after // an annotation does not change a unit
			}
			if its != unit {
				its = codes.Spelled(its)
			}
		default:
			continue
		}
		if its != unit {
			return false
		}
		found = true
	}
	return found
}

// wantedUnit returns a text that names the expected unit.
func wantedUnit(sign vitals.Sign, unit string) string {
	if code := codes.UnitMDC(sign, unit); code != "" {
		return unit + " or MDC " + code + " would do"
	}
	return unit + " would do"
}

// cutOffset cuts the offset off the end of a time.
func cutOffset(text []byte) (local, offset []byte) {
	if i := len(text) - len("+0100"); i >= 0 && (text[i] == '+' || text[i] == '-') && isDigits(text[i+1:]) {
		return text[:i], text[i:]
	}
	return text, nil
}

// instant returns the instant of a time. Digits finer than a millisecond are cut: HL7 has four.
func (m *Message) instant(text []byte) (unixMs int64, offset vitals.UTCOffset, err error) {
	const second = len("20060102150405")
	local, zone := cutOffset(text)
	if len(zone) == 0 {
		zone = m.zone
	}
	whole, fraction, point := bytes.Cut(local, []byte("."))
	switch {
	case len(text) == 0:
		return 0, 0, vitals.ErrMissing
	case !point && len(whole) < second && len(whole) >= len("2006") && isDigits(whole):
		return 0, 0, errCoarse
	case len(text) > vitals.MaxTimeBytes, len(whole) != second, !isDigits(whole), !isDigits(fraction),
		point != (len(fraction) > 0):
		return 0, 0, errTime
	}
	w, hasZone := string(local), len(zone) > 0
	rfc := w[:4] + "-" + w[4:6] + "-" + w[6:8] + "T" + w[8:10] + ":" + w[10:12] + ":" + w[12:]
	if hasZone {
		rfc += string(zone[:3]) + ":" + string(zone[3:])
	} else {
		rfc += "Z"
	}
	unixMs, offset, err = vitals.ParseRFC3339(rfc)
	switch {
	case err != nil:
		return 0, 0, errTime
	case hasZone:
		return unixMs, offset, nil
	case m.opt.Zone == nil:
		return 0, 0, vitals.ErrTimeZone
	}
	return localtime.Instant(time.UnixMilli(unixMs).UTC(), m.opt.Zone)
}
