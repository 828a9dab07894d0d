package fhir

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
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
	base  string // URL of the FHIR server
	signs *vitals.Signs

	patients  []storage.Subject // nil means not given; sorted, each once
	devices   []deviceID        // nil means not given; likewise
	groups    groups            // with the codes
	measured  span
	updated   span // of the last change
	count     int  // Observations in a page
	countOnly bool // no page, but the number of all
	newest    bool // newest first

	used    url.Values // the parameters that the search uses
	ignored []string   // names of those that it does not
}

// A searchParam is a parameter of a search for Observations.
type searchParam struct {
	name  string
	about string

	// typ and definition are in a CapabilityStatement; "": it is about the result. The definition is
	// an address below that of FHIR's search parameters.
	typ, definition string

	// parse narrows a search to one value of the parameter, or returns why the value is not valid.
	parse func(s *search, value string) (reason string)
}

// searchParams has all parameters, except those about the form of an answer, such as _format. It is
// never modified.
var searchParams = []searchParam{
	{"patient", "Id of a Patient, with or without Patient/; a list means any of them.", "reference", "clinical-patient",
		(*search).parsePatient},
	{"subject", "The same as patient.", "reference", "Observation-subject", (*search).parsePatient},
	{"device", "Id of a Device, with or without Device/; a list means any of them.", "reference", "Observation-device",
		(*search).parseDevice},
	{"code", "LOINC code, with or without http://loinc.org|, or the field of a sign of the user's own, with or without " +
		"urn:pulsegate:sign|; a list means any of them.", "token", "clinical-code",
		tokens(func(s *search, system, code string) groups { return withCode(s.signs, system, code) })},
	{"category", "vital-signs, or laboratory for glucose; a list means any of them.", "token", "Observation-category",
		tokens(fixed(categorySystem, withCategory))},
	{"date", "Measured time, with eq, gt, ge, lt, le, sa, eb or no prefix. May be repeated. Times without a zone " +
		"are in UTC.", "date", "clinical-date", dates(func(s *search) *span { return &s.measured })},
	{"status", "final, which all Observations are.", "token", "Observation-status",
		tokens(fixed(statusSystem, withStatus))},
	{"_lastUpdated", "Time of the last change, with prefixes like date. May be repeated.", "date", "Resource-lastUpdated",
		dates(func(s *search) *span { return &s.updated })},
	{"_count", "", "", "", (*search).parseCount},
	{"_sort", "", "", "", (*search).parseSort},
	{"_summary", "", "", "", (*search).parseSummary},
}

// parseSearch parses the parameters of a search. Unknown ones are ignored, or rejected if
// strict is set (https://hl7.org/fhir/R4/search.html#errors). Parameters about the form of the
// answer are left out.
func parseSearch(values url.Values, strict bool, base string, signs *vitals.Signs) (*search, error) {
	s, err := parseSelection(values, strict, base, signs)
	if err == nil && s.patients == nil && s.devices == nil {
		err = &query.ParamError{Reason: "a search needs patient, subject or device"}
	}
	if err == nil && len(s.used.Encode()) > maxSearch {
		err = &query.ParamError{Reason: fmt.Sprintf("the parameters are longer than %d bytes", maxSearch)}
	}
	return s, err
}

// parseSelection is parseSearch for a search that may be without a patient or a device.
func parseSelection(values url.Values, strict bool, base string, signs *vitals.Signs) (*search, error) {
	s := &search{base: base, signs: signs, groups: allGroups, measured: always, updated: always, count: DefaultCount,
		used: url.Values{}}
	for name, given := range values {
		if name == formatParam || name == "_pretty" {
			continue
		}
		base := name[:cmp.Or(strings.IndexAny(name, ":.")+1, len(name)+1)-1]
		i := slices.IndexFunc(searchParams, func(p searchParam) bool { return p.name == base })
		switch {
		case i < 0 && strict:
			return nil, &query.ParamError{Reason: "a parameter is not known; the CapabilityStatement lists the known ones"}
		case i < 0:
			s.ignored = append(s.ignored, name)
			continue
		case name != base && name != "subject:Patient" && name != "patient:Patient" && name != "device:Device":
			return nil, &query.ParamError{Name: base, Reason: "modifiers and chains are not supported"}
		}
		for _, value := range given {
			if reason := searchParams[i].parse(s, value); reason != "" {
				return nil, &query.ParamError{Name: base, Reason: reason}
			}
		}
		s.used[name] = given
	}
	slices.Sort(s.ignored)
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

func (s *search) parsePatient(value string) (reason string) {
	parse := func(id string) (storage.Subject, bool) {
		subject, err := storage.ParseSubject(id)
		return subject, err == nil
	}
	s.patients, reason = references(s, s.patients, value, "Patient", maxPatients, parse,
		func(p storage.Subject) string { return string(p) })
	return reason
}

func (s *search) parseDevice(value string) (reason string) {
	s.devices, reason = references(s, s.devices, value, "Device", maxDevices, parseDeviceID,
		func(d deviceID) string { return d.text })
	return reason
}

// references parses a list of references to resources of a type, each once. It returns those that
// are in before too; all if before is nil, which means that the parameter was not given before.
func references[T any](s *search, before []T, list, typ string, most int, parse func(id string) (T, bool),
	id func(T) string) (all []T, reason string) {
	for reference := range strings.SplitSeq(list, ",") {
		one, ok := parse(s.localID(reference, typ))
		switch {
		case !ok:
			return nil, "not an id of a " + typ + ", or a reference to one on this server"
		case len(all) == most:
			return nil, fmt.Sprintf("more than %d", most)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	same := func(a, b T) bool { return id(a) == id(b) }
	all = slices.CompactFunc(all, same)
	if before == nil {
		return all, ""
	}
	return slices.DeleteFunc(all, func(b T) bool {
		return !slices.ContainsFunc(before, func(a T) bool { return same(a, b) })
	}), ""
}

// tokens returns the parse of a parameter whose values are lists of tokens. match returns the groups
// whose Observations have a system and a code; if one of these is empty, any.
func tokens(match func(s *search, system, code string) groups) func(*search, string) string {
	return func(s *search, list string) string {
		matching := groups(0)
		for text := range strings.SplitSeq(list, ",") {
			system, code, hasSystem := strings.Cut(text, "|")
			switch {
			case !hasSystem:
				system, code = "", text
			case system == "" && code != "": // a code without a system, which no Observation has
				continue
			}
			if system == "" && code == "" {
				return "a value is empty"
			}
			matching |= match(s, system, code)
		}
		s.groups &= matching
		return ""
	}
}

// fixed is a match of an element whose codes are all of one system. with returns the groups that
// have a code; "" means any.
func fixed(ownSystem string, with func(code string) groups) func(_ *search, system, code string) groups {
	return func(_ *search, system, code string) groups {
		if system != "" && system != ownSystem {
			return 0
		}
		return with(code)
	}
}

// withStatus returns the groups whose Observations have a status.
func withStatus(code string) groups {
	if code != "" && code != status {
		return 0
	}
	return allGroups
}

// dates returns the parse of a parameter of type date that narrows a span of a search.
func dates(of func(*search) *span) func(*search, string) string {
	return func(s *search, value string) string {
		p, ok := parseDates(value)
		if !ok {
			return reasonDate
		}
		*of(s) = of(s).and(p)
		return ""
	}
}

func (s *search) parseCount(value string) string {
	n, err := strconv.Atoi(value) // math.MaxInt if there are too many digits
	if err != nil && !errors.Is(err, strconv.ErrRange) || n < 0 {
		return "not a whole number from 0"
	}
	s.count = min(n, MaxCount)
	s.countOnly = s.countOnly || n == 0
	return ""
}

func (s *search) parseSort(value string) string {
	if value != "date" && value != "-date" {
		return "not date or -date"
	}
	s.newest = value == "-date"
	return ""
}

func (s *search) parseSummary(value string) string {
	if value != "count" && value != "false" {
		return "not count or false"
	}
	s.countOnly = s.countOnly || value == "count"
	return ""
}
