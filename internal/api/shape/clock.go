package shape

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of times. Their texts are sent to clients.
var (
	// ErrInstant means that a text is not in the format instant.
	ErrInstant = errors.New("not a time such as 2026-11-21T10:00:00+01:00")
	errPattern = errors.New("not a time of the pattern")
	errFormats = errors.New("in none of the time formats of the mapping")
)

// A Clock parses the times of a source.
type Clock struct {
	formats []format
	zone    *time.Location // of times without one; nil means none
	choose  string         // earlier, later, or "" of times that the zone has twice
	utc     bool           // an offset of 0 says nothing about the place: times are written in UTC everywhere
}

// A format is one spelling of times.
type format struct {
	parse func(c *Clock, text []byte) (unixMs int64, offset vitals.UTCOffset, err error)
	names string // as the mapping has it
	order string // of year, month and day, such as Ymd; y is a year of two digits, b a month by name

	// The number of digits of the texts of a pattern that has nothing else; 0 for any other.
	leastDigits, mostDigits int

	// The digits of numbers side by side, of which the first could begin with a zero; 0 if there are none.
	runDigits int
}

// NewInstants returns the Clock of the format instant. zone is that of times without an offset from UTC; without it
// they are [vitals.ErrTimeZone].
func NewInstants(zone string) (*Clock, error) { return newClock(nil, zone, "", nil) }

// maxTimeBytes bounds a text that is parsed as a time.
const maxTimeBytes = 128

// Parse parses a time and returns it in Unix ms, cut towards the past.
func (c *Clock) Parse(text []byte) (unixMs int64, offset vitals.UTCOffset, err error) {
	if len(text) > maxTimeBytes {
		return 0, 0, ErrInstant
	}
	for i := range c.formats {
		unixMs, offset, err = c.formats[i].parse(c, text)
		if err == nil || errors.Is(err, localtime.ErrSkipped) || errors.Is(err, localtime.ErrTwice) {
			return unixMs, offset, err
		}
	}
	if len(c.formats) > 1 {
		err = errFormats
	}
	return 0, 0, err
}

// blank reports the length of the blank at the start of a text: a space, a tab or a no-break space.
func blank[T ~string | ~[]byte](text T) int {
	for _, b := range [...]string{" ", "\t", "\u00a0", "\u202f"} {
		if len(text) >= len(b) && string(text[:len(b)]) == b {
			return len(b)
		}
	}
	return 0
}

// A wall is what a time text says.
type wall struct {
	year, month, day, hour, minute, second, ms int
	half                                       int // 1 is am, 2 is pm
	weekday                                    int // 1 is Sunday; 0 means none
	zoned, unknownOffset                       bool
	offsetMinutes                              int
}

// instant returns the instant of a wall, or false if there is no such date or time of day.
func (c *Clock) instant(w *wall) (unixMs int64, offset vitals.UTCOffset, ok bool, err error) {
	if w.half > 0 {
		if w.hour < 1 || w.hour > 12 {
			return 0, 0, false, nil
		}
		w.hour = w.hour%12 + 12*(w.half-1)
	}
	at := time.Date(w.year, time.Month(w.month), w.day, w.hour, w.minute, w.second, 0, time.UTC)
	if w.month < 1 || w.month > 12 || at.Day() != w.day || w.hour > 23 || w.minute > 59 || w.second > 59 ||
		w.weekday > 0 && int(at.Weekday()) != w.weekday-1 {
		return 0, 0, false, nil
	}
	switch {
	case w.zoned:
		if unixMs = at.UnixMilli() - int64(w.offsetMinutes)*60_000; !w.unknownOffset {
			offset = vitals.MakeUTCOffset(w.offsetMinutes)
		}
	case c.zone == nil:
		return 0, 0, false, vitals.ErrTimeZone
	default:
		unixMs, offset, err = localtime.Instant(at, c.zone)
		if errors.Is(err, localtime.ErrTwice) && c.choose != "" {
			unixMs, offset, err = localtime.Choose(at, c.zone, c.choose == later)
		}
	}
	return unixMs + int64(w.ms), c.known(offset), err == nil, err
}

// known returns an offset, or 0 if the sources of the Clock have it wherever they are.
func (c *Clock) known(offset vitals.UTCOffset) vitals.UTCOffset {
	if c.utc && offset == vitals.MakeUTCOffset(0) {
		return 0
	}
	return offset
}

// Local returns the instant of a local time in the Clock's zone, or false if there is no such date or time of day.
func (c *Clock) Local(year, month, day, hour, minute, second int) (unixMs int64, offset vitals.UTCOffset,
	ok bool, err error) {
	return c.instant(&wall{year: year, month: month, day: day, hour: hour, minute: minute, second: second})
}

// A scanner takes parts from the start of a text. fail is set if a part is not there.
type scanner struct {
	rest []byte
	fail bool
}

func (s *scanner) skipBlanks() {
	for n := blank(s.rest); n > 0; n = blank(s.rest) {
		s.rest = s.rest[n:]
	}
}

// number takes a number of least to most digits.
func (s *scanner) number(least, most int) (n int) {
	i := 0
	for ; i < most && i < len(s.rest) && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		n = n*10 + int(s.rest[i]-'0')
	}
	s.fail = s.fail || i < least
	s.rest = s.rest[i:]
	return n
}

// fraction takes the digits of a fraction of a second, and cuts it to ms.
func (s *scanner) fraction() (ms int) {
	i := 0
	for place := 100; i < len(s.rest) && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		ms += place * int(s.rest[i]-'0')
		place /= 10
	}
	s.fail = s.fail || i == 0
	s.rest = s.rest[i:]
	return ms
}

// one takes one of several texts, whatever their case, and returns its index.
func (s *scanner) one(texts []string) (found int) {
	found = -1
	for i, t := range texts {
		if len(s.rest) >= len(t) && strings.EqualFold(string(s.rest[:len(t)]), t) &&
			(found < 0 || len(t) > len(texts[found])) {
			found = i
		}
	}
	if found < 0 {
		s.fail = true
		return 0
	}
	s.rest = s.rest[len(texts[found]):]
	return found
}

// zone takes an offset from UTC: Z, or one such as +01:00, +0100 and +01.
func (s *scanner) zone(w *wall) {
	w.zoned = true
	if len(s.rest) > 0 && s.rest[0]|0x20 == 'z' {
		w.unknownOffset = true
		s.rest = s.rest[1:]
		return
	}
	sign := 2*s.one([]string{"-", "+"}) - 1
	hours, minutes := s.number(2, 2), 0
	if colon := len(s.rest) > 0 && s.rest[0] == ':'; colon || len(s.rest) > 0 && '0' <= s.rest[0] && s.rest[0] <= '9' {
		if colon {
			s.rest = s.rest[1:]
		}
		minutes = s.number(2, 2)
	}
	s.fail = s.fail || hours > 23 || minutes > 59
	w.offsetMinutes = sign * (hours*60 + minutes)
	w.unknownOffset = sign < 0 && w.offsetMinutes == 0 // as RFC 3339 has it
}

// literal takes a byte.
func (s *scanner) literal(c byte) {
	if len(s.rest) == 0 || s.rest[0] != c {
		s.fail = true
		return
	}
	s.rest = s.rest[1:]
}

// parseInstant parses a date, a T or blanks, a time of day with or without seconds and their fraction, and an offset
// from UTC, which may be missing if the Clock has a zone.
func parseInstant(c *Clock, text []byte) (unixMs int64, offset vitals.UTCOffset, err error) {
	if unixMs, offset, err = vitals.ParseRFC3339(text); err == nil { // the usual one
		return unixMs, c.known(offset), nil
	}
	var w wall
	s := scanner{rest: text}
	w.year = s.number(4, 4)
	s.literal('-')
	w.month = s.number(2, 2)
	s.literal('-')
	w.day = s.number(2, 2)
	if before := len(s.rest); before > 0 && s.rest[0]|0x20 == 't' {
		s.rest = s.rest[1:]
	} else if s.skipBlanks(); len(s.rest) == before {
		s.fail = true
	}
	w.hour = s.number(2, 2)
	s.literal(':')
	w.minute = s.number(2, 2)
	if len(s.rest) > 0 && s.rest[0] == ':' {
		s.rest = s.rest[1:]
		w.second = s.number(2, 2)
		if len(s.rest) > 0 && (s.rest[0] == '.' || s.rest[0] == ',') {
			s.rest = s.rest[1:]
			w.ms = s.fraction()
		}
	}
	if len(s.rest) > 0 && !s.fail {
		s.skipBlanks()
		if string(s.rest) == "UTC" {
			w.zoned, w.unknownOffset, s.rest = true, true, nil
		} else {
			s.zone(&w)
		}
	}
	return c.settle(&s, &w, ErrInstant)
}

// settle returns the instant of what a scanner has taken, or an error.
func (c *Clock) settle(s *scanner, w *wall, otherwise error) (unixMs int64, offset vitals.UTCOffset, err error) {
	if s.fail || len(s.rest) > 0 {
		return 0, 0, otherwise
	}
	unixMs, offset, ok, err := c.instant(w)
	switch {
	case err != nil:
		return 0, 0, err
	case !ok:
		return 0, 0, otherwise
	}
	return unixMs, offset, nil
}

// Words of the formats and of ambiguous.
const (
	earlier = "earlier"
	later   = "later"
)

var (
	weekdays = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	months   = []string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
		"November", "December"}
)

func short(names []string) (cut []string) {
	for _, n := range names {
		cut = append(cut, n[:3])
	}
	return cut
}

// A directive is a % and a letter of a pattern.
type directive struct {
	sets  string                    // what it sets, of Y m d H M S f p a z
	width int                       // of a number in digits; 0 means that it is none
	take  func(s *scanner, w *wall) // nil if width is not 0
	to    func(w *wall) *int        // where the number goes
}

// directives returns the directives by letter, as strftime has them. Those that stand for others are in expanded.
func directives(monthNames []string) map[byte]directive {
	long, abbreviated := months, short(months)
	if monthNames != nil {
		long, abbreviated = monthNames, monthNames
	}
	month := func(names []string) directive {
		return directive{sets: "m", take: func(s *scanner, w *wall) { w.month = s.one(names) + 1 }}
	}
	weekday := func(names []string) directive {
		return directive{sets: "a", take: func(s *scanner, w *wall) { w.weekday = s.one(names) + 1 }}
	}
	two := func(sets string, to func(w *wall) *int) directive { return directive{sets: sets, width: 2, to: to} }
	day, hour := func(w *wall) *int { return &w.day }, func(w *wall) *int { return &w.hour }
	return map[byte]directive{
		'Y': {sets: "Y", width: 4, to: func(w *wall) *int { return &w.year }},
		'y': {sets: "Y", take: func(s *scanner, w *wall) {
			if w.year = 2000 + s.number(2, 2); w.year > 2068 { // as POSIX has it
				w.year -= 100
			}
		}},
		'm': two("m", func(w *wall) *int { return &w.month }), 'd': two("d", day), 'e': two("d", day),
		'B': month(long), 'b': month(abbreviated), 'h': month(abbreviated), 'A': weekday(weekdays),
		'a': weekday(short(weekdays)),
		'H': two("H", hour), 'k': two("H", hour), 'I': two("I", hour), 'l': two("I", hour),
		'M': two("M", func(w *wall) *int { return &w.minute }), 'S': two("S", func(w *wall) *int { return &w.second }),
		'f': {sets: "f", take: func(s *scanner, w *wall) { w.ms = s.fraction() }},
		'p': {sets: "p", take: func(s *scanner, w *wall) { w.half = s.one([]string{"AM", "PM", "a.m.", "p.m."})%2 + 1 }},
		'z': {sets: "z", take: (*scanner).zone},
	}
}

var expanded = strings.NewReplacer("%F", "%Y-%m-%d", "%T", "%H:%M:%S", "%R", "%H:%M", "%D", "%m/%d/%y", "%%", "%%")

// parsePattern returns the format of a pattern in the letters of strftime. zoned means that times have a zone without
// it.
func parsePattern(pattern string, monthNames []string, zoned bool) (f format, err error) {
	known, f := directives(monthNames), format{names: pattern}
	digitsOnly, afterNumber := f.literals() == "", false
	isNumber := func(text string) bool {
		return len(text) > 1 && text[0] == '%' && (known[text[1]].width > 0 || text[1] == 'f' || text[1] == 'y')
	}
	var steps []func(*scanner, *wall)
	set := map[string]bool{}
	for text := expanded.Replace(pattern); text != ""; {
		d, isDirective := directive{}, false
		if text[0] == '%' && len(text) > 1 {
			d, isDirective = known[text[1]]
		}
		follows, beside := afterNumber && isNumber(text), isNumber(text) && isNumber(text[2:])
		afterNumber = isNumber(text)
		switch n := blank(text); {
		case n > 0:
			for ; n > 0; n = blank(text) {
				text = text[n:]
			}
			steps = append(steps, func(s *scanner, _ *wall) {
				s.fail = s.fail || blank(s.rest) == 0
				s.skipBlanks()
			})
		case isDirective:
			if text[1] == 'f' && (follows || beside) { // which would take the digits of a number that has lost a zero
				return f, errors.New("has %f beside another number: write something between them, such as a point")
			}
			if width := max(d.width, 2); follows && f.runDigits > 0 {
				f.runDigits += width
			} else if !follows && beside && text[1] != 'Y' {
				f.runDigits = width
			}
			if set[d.sets] {
				return f, fmt.Errorf("%%%c sets what is set already", text[1])
			}
			set[d.sets] = true
			if strings.Contains("Ymd", d.sets) {
				switch {
				case text[1] == 'y':
					f.order += "y"
				case d.sets == "m" && d.width == 0: // by name
					f.order += "b"
				default:
					f.order += d.sets
				}
			}
			letter := text[1]
			text = text[2:]
			if d.take != nil {
				steps = append(steps, d.take)
				switch letter {
				case 'y':
					f.leastDigits, f.mostDigits = f.leastDigits+2, f.mostDigits+2
				case 'f':
					f.leastDigits, f.mostDigits = f.leastDigits+1, f.mostDigits+maxTimeBytes
				default: // a word, or an offset with its sign
					digitsOnly = false
				}
				break
			}
			least := 1
			if d.width == 4 || follows || beside {
				least = d.width // a number beside another one, of which a zero could be missing
			}
			f.leastDigits, f.mostDigits = f.leastDigits+least, f.mostDigits+d.width
			steps = append(steps, func(s *scanner, w *wall) { *d.to(w) = s.number(least, d.width) })
		case text[0] != '%' || strings.HasPrefix(text, "%%"):
			c := text[0]
			steps = append(steps, func(s *scanner, _ *wall) { s.literal(c) })
			if text = text[1:]; c == '%' {
				text = text[1:]
			}
		case len(text) == 1:
			return f, errors.New("ends with %")
		default:
			return f, fmt.Errorf("%q is not supported; the letters are Y y m d e B b h A a H k I l M S f p z F T R D", text[:2])
		}
	}
	if !digitsOnly {
		f.leastDigits, f.mostDigits = 0, 0
	}
	f.parse = func(c *Clock, text []byte) (int64, vitals.UTCOffset, error) {
		s, w := scanner{rest: text}, wall{}
		for _, step := range steps {
			if step(&s, &w); s.fail {
				return 0, 0, errPattern
			}
		}
		return c.settle(&s, &w, errPattern)
	}
	return f, checkPattern(set, zoned)
}

// ErrNoZone means that a pattern of local times has no zone.
var ErrNoZone = errors.New("has no %z: give a zone such as Europe/Berlin")

// checkPattern returns an error unless a pattern that sets these says which instant a text is.
func checkPattern(set map[string]bool, zoned bool) error {
	for _, part := range []struct{ sets, name string }{{"Y", "year, such as %Y"}, {"m", "month, such as %m"},
		{"d", "day, such as %d"}, {"M", "minute, such as %M"}} {
		if !set[part.sets] {
			return errors.New("has no " + part.name)
		}
	}
	switch {
	case set["H"] == set["I"]:
		return errors.New("needs either %H, or %I with %p")
	case set["I"] != set["p"]:
		return errors.New("%I and %p go together")
	case !set["z"] && !zoned:
		return ErrNoZone
	}
	return nil
}

// anywhere is the zone of sources that write UTC wherever they are, as Z does in RFC 3339.
const anywhere = "Z"

// timeFormats has the names of formats; the number is the power of ten by which a number is ms. It is never modified.
var timeFormats = map[string]int{"instant": 0, "rfc3339": 0, "unix_s": 3, "unix_ms": 0}

// newClock returns the Clock of formats, which are names or patterns.
func newClock(formats []string, zone, ambiguous string, monthNames []string) (c *Clock, err error) {
	c = &Clock{choose: ambiguous}
	if zone == anywhere {
		c.zone, c.utc = time.UTC, true
	} else if zone != "" {
		if c.zone, err = localtime.Zone(zone); err != nil {
			return nil, bad("zone", "neither the name of a zone, such as Europe/Berlin, nor an offset, such as +01:00")
		}
	}
	if ambiguous != "" && ambiguous != earlier && ambiguous != later {
		return nil, bad("ambiguous", "neither earlier nor later")
	}
	if ambiguous != "" && zone == "" {
		return nil, bad("ambiguous", "only times in a zone have it")
	}
	if err := checkMonths(monthNames); err != nil {
		return nil, bad("months", "%w", err)
	}
	if len(formats) == 0 {
		formats = []string{"instant"}
	}
	for _, text := range formats {
		f := format{names: text, parse: parseInstant, order: "Ymd"}
		exponent, named := timeFormats[text]
		switch {
		case strings.Contains(text, "%"):
			if f, err = parsePattern(text, monthNames, c.zone != nil); err != nil {
				return nil, bad("time_format", "%q %w", text, err)
			}
		case !named:
			return nil, bad("time_format", "not one of instant, unix_s, unix_ms, nor a pattern such as %%Y-%%m-%%d %%H:%%M")
		case strings.HasPrefix(text, "unix"):
			f.order = ""
			f.parse = func(_ *Clock, text []byte) (unixMs int64, offset vitals.UTCOffset, err error) {
				unixMs, err = parseUnix(text, exponent)
				return unixMs, 0, err
			}
		}
		for _, other := range c.formats {
			if contradict(other, f) {
				return nil, bad("time_format", "%q and %q read one text as two times", other.names, text)
			}
		}
		c.formats = append(c.formats, f)
	}
	return c, nil
}

// contradict reports whether a text may have two meanings in two formats.
func contradict(a, b format) bool {
	isUnix := func(f format) bool { return strings.HasPrefix(f.names, "unix") }
	switch {
	case isUnix(a) || isUnix(b):
		return (isUnix(a) || a.fitsNumbers()) && (isUnix(b) || b.fitsNumbers())
	case a.runDigits > 0 && b.runDigits > 0 && a.runDigits != b.runDigits && a.literals() == b.literals():
		return true // a number that has lost a zero is one of the shorter run
	case a.mostDigits > 0 && b.mostDigits > 0:
		return a.leastDigits <= b.mostDigits && b.leastDigits <= a.mostDigits
	case strings.Contains(a.order, "b") != strings.Contains(b.order, "b"), strings.EqualFold(a.order, b.order):
		return false
	}
	sameYear := strings.IndexByte(a.order, 'Y') == strings.IndexByte(b.order, 'Y')
	return sameYear || strings.Contains(a.order+b.order, "y") && strings.Contains(a.names, "%") &&
		strings.Contains(b.names, "%")
}

// literals returns the text of a pattern without its directives.
func (f format) literals() string {
	rest, text := expanded.Replace(f.names), ""
	for rest != "" {
		if rest[0] == '%' && len(rest) > 1 && rest[1] != '%' {
			rest = rest[2:]
			continue
		}
		text, rest = text+rest[:1], rest[1:]
	}
	return text
}

// fitsNumbers reports whether a number may fit a pattern: it has nothing between its directives, or a decimal point.
func (f format) fitsNumbers() bool {
	text := f.literals()
	return strings.Contains(f.names, "%") && (text == "" || text == ".")
}

// checkMonths returns an error unless there are no names of months, or twelve that differ.
func checkMonths(names []string) error {
	if len(names) != 0 && len(names) != 12 {
		return errors.New("not 12 names")
	}
	for i, n := range names {
		if n == "" || len(n) > 32 || strings.ContainsAny(n, "0123456789% ") {
			return errors.New("a name is empty, or has a digit, a blank or %")
		}
		if slices.ContainsFunc(names[:i], func(other string) bool { return strings.EqualFold(n, other) }) {
			return errors.New("a name is given twice")
		}
	}
	return nil
}
