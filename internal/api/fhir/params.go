package fhir

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// Limits of a search.
const (
	DefaultCount = 100    // default number of Observations in a page
	MaxCount     = 10_000 // maximum number of Observations in a page
	maxPatients  = 16     // patients in a search
	maxDevices   = 100    // devices in a search
	maxSearch    = 4096   // bytes of the parameters of a search, in a query
)

// A search has the parameters of a search for Observations.
type search struct {
	base string // URL of the FHIR server

	patients  []storage.Subject // nil: not given; sorted, each once
	devices   []deviceID        // nil: not given; likewise
	groups    groups            // with the codes
	measured  span
	received  span
	count     int  // Observations in a page
	countOnly bool // no page, but the number of all
	newest    bool // newest first

	used    url.Values // the parameters that the search uses
	ignored []string   // names of those that it does not
}

// A paramError reports which parameter is invalid and why. Its text does not contain the
// value sent by the client.
type paramError struct {
	name   string // "" for the search as a whole
	reason string
}

func (e *paramError) Error() string {
	if e.name == "" {
		return e.reason
	}
	return e.name + ": " + e.reason
}

// A searchParam is a parameter of a search for Observations.
type searchParam struct {
	name  string
	typ   string // in a CapabilityStatement; "": it is about the result
	about string

	// parse narrows a search to one value of the parameter.
	parse func(s *search, value string) error
}

// searchParams returns all parameters. Those about the form of an answer, such as _format, are
// not among them.
func searchParams() []searchParam {
	return []searchParam{
		{"patient", "reference", "Id of a Patient, with or without Patient/; a list means any of them.", (*search).parsePatient},
		{"subject", "reference", "The same as patient.", (*search).parsePatient},
		{"device", "reference", "Id of a Device, with or without Device/; a list means any of them.", (*search).parseDevice},
		{"code", "token", "LOINC code, with or without http://loinc.org|; a list means any of them.", (*search).parseCode},
		{"category", "token", "vital-signs, which all Observations have.", (*search).parseCategory},
		{"date", "date", "Measured time, with eq, gt, ge, lt, le, sa, eb or no prefix. May be repeated. Times without a zone are in UTC.", (*search).parseDate},
		{"status", "token", "final, which all Observations are.", (*search).parseStatus},
		{"_lastUpdated", "date", "Time at which the first values of a reading arrived, with prefixes like date. May be repeated.", (*search).parseLastUpdated},
		{"_count", "", "", (*search).parseCount},
		{"_sort", "", "", (*search).parseSort},
		{"_summary", "", "", (*search).parseSummary},
	}
}

// parseSearch parses the parameters of a search. Unknown ones are ignored, or rejected if
// strict is set (https://hl7.org/fhir/R4/search.html#errors). Parameters about the form of the
// answer are left out.
func parseSearch(values url.Values, strict bool, base string) (*search, error) {
	s := &search{base: base, groups: allGroups, measured: always, received: always, count: DefaultCount, used: url.Values{}}
	params := searchParams()
	for name, given := range values {
		if name == formatParam || name == "_pretty" {
			continue
		}
		base := name[:cmp.Or(strings.IndexAny(name, ":.")+1, len(name)+1)-1]
		i := slices.IndexFunc(params, func(p searchParam) bool { return p.name == base })
		switch {
		case i < 0 && strict:
			return nil, &paramError{"", "a parameter is not known; the CapabilityStatement lists the known ones"}
		case i < 0:
			s.ignored = append(s.ignored, name)
			continue
		case name != base && name != "subject:Patient" && name != "patient:Patient" && name != "device:Device":
			return nil, &paramError{base, "modifiers and chains are not supported"}
		}
		for _, value := range given {
			if err := params[i].parse(s, value); err != nil {
				return nil, err
			}
		}
		s.used[name] = given
	}
	slices.Sort(s.ignored)
	if s.patients == nil && s.devices == nil {
		return nil, &paramError{"", "a search needs patient, subject or device"}
	}
	if len(s.used.Encode()) > maxSearch {
		return nil, &paramError{"", fmt.Sprintf("the parameters are longer than %d bytes", maxSearch)}
	}
	return s, nil
}

// localID returns the id in a reference to a resource of a type on this server: the id alone, or
// a reference as in [relative]. It returns "" for any other.
func (s *search) localID(reference, typ string) string {
	if id, ok := strings.CutPrefix(relative(reference, s.base), typ+"/"); ok {
		return id
	}
	if strings.Contains(reference, "/") {
		return ""
	}
	return reference
}

func (s *search) parsePatient(value string) error {
	var patients []storage.Subject
	for reference := range strings.SplitSeq(value, ",") {
		subject, err := storage.ParseSubject(s.localID(reference, "Patient"))
		if err != nil {
			return &paramError{"patient", "not an id of a Patient, or a reference to one on this server"}
		}
		if len(patients) == maxPatients {
			return &paramError{"patient", fmt.Sprintf("more than %d", maxPatients)}
		}
		patients = append(patients, subject)
	}
	slices.Sort(patients)
	patients = slices.Compact(patients)
	s.patients = intersect(s.patients, patients, func(a, b storage.Subject) bool { return a == b })
	return nil
}

func (s *search) parseDevice(value string) error {
	devices := []deviceID{}
	for reference := range strings.SplitSeq(value, ",") {
		id, ok := parseDeviceID(s.localID(reference, "Device"))
		if !ok {
			return &paramError{"device", "not an id of a Device, or a reference to one on this server"}
		}
		if len(devices) == maxDevices {
			return &paramError{"device", fmt.Sprintf("more than %d", maxDevices)}
		}
		devices = append(devices, id)
	}
	slices.SortFunc(devices, func(a, b deviceID) int { return strings.Compare(a.text, b.text) })
	same := func(a, b deviceID) bool { return a.text == b.text }
	devices = slices.CompactFunc(devices, same)
	s.devices = intersect(s.devices, devices, same)
	return nil
}

// intersect returns the elements of b that are in a too; all if a is nil, which means that a
// parameter was not given before.
func intersect[T any](a, b []T, same func(a, b T) bool) []T {
	if a == nil {
		return b
	}
	return slices.DeleteFunc(b, func(y T) bool {
		return !slices.ContainsFunc(a, func(x T) bool { return same(x, y) })
	})
}

// parseTokens reports for each token in value whether match accepts its system and code. An
// empty system or code stands for any.
func parseTokens(value string, match func(system, code string) groups) (matching groups, ok bool) {
	for text := range strings.SplitSeq(value, ",") {
		system, code, hasSystem := strings.Cut(text, "|")
		switch {
		case !hasSystem:
			system, code = "", text
		case system == "" && code != "": // a code without a system, which no Observation has
			continue
		}
		if system == "" && code == "" {
			return 0, false
		}
		matching |= match(system, code)
	}
	return matching, true
}

// fixed returns a match for parseTokens of an element that is the same in all Observations.
func fixed(ownSystem, ownCode string) func(system, code string) groups {
	return func(system, code string) groups {
		if (system == "" || system == ownSystem) && (code == "" || code == ownCode) {
			return allGroups
		}
		return 0
	}
}

func (s *search) parseToken(name, value string, match func(system, code string) groups) error {
	matching, ok := parseTokens(value, match)
	if !ok {
		return &paramError{name, "a value is empty"}
	}
	s.groups &= matching
	return nil
}

func (s *search) parseCode(value string) error {
	return s.parseToken("code", value, func(system, code string) groups {
		switch {
		case system != "" && system != loinc:
			return 0
		case code == "":
			return allGroups
		}
		return withCode(code)
	})
}

func (s *search) parseCategory(value string) error {
	return s.parseToken("category", value, fixed(categorySystem, category))
}

func (s *search) parseStatus(value string) error {
	return s.parseToken("status", value, fixed(statusSystem, status))
}

func (s *search) parseDate(value string) error {
	p, ok := parseDates(value)
	if !ok {
		return &paramError{"date", reasonDate}
	}
	s.measured = s.measured.and(p)
	return nil
}

func (s *search) parseLastUpdated(value string) error {
	p, ok := parseDates(value)
	if !ok {
		return &paramError{"_lastUpdated", reasonDate}
	}
	s.received = s.received.and(p)
	return nil
}

func (s *search) parseCount(value string) error {
	n, ok := parseCount(value)
	if !ok {
		return &paramError{"_count", "not a whole number from 0"}
	}
	s.count = min(n, MaxCount)
	s.countOnly = s.countOnly || n == 0
	return nil
}

func (s *search) parseSort(value string) error {
	if value != "date" && value != "-date" {
		return &paramError{"_sort", "not date or -date"}
	}
	s.newest = value == "-date"
	return nil
}

func (s *search) parseSummary(value string) error {
	if value != "count" && value != "false" {
		return &paramError{"_summary", "not count or false"}
	}
	s.countOnly = s.countOnly || value == "count"
	return nil
}
