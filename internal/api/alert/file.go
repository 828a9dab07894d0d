package alert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of a file of rules.
const (
	maxFileBytes  = 256 << 10
	MaxRules      = 64
	maxLabels     = 16
	maxNameBytes  = 64
	maxLabelBytes = 256 // of a label's name, and of its value
	maxSilent     = 366 * 24 * time.Hour
)

// DefaultMaxAge is the default of Rule.MaxAge for rules about values.
const DefaultMaxAge = 10 * time.Minute

// A file is what TOML is decoded to.
type file struct {
	Alert []table `toml:"alert"`
}

// A table is a rule in a file; nil means that a key is missing.
type table struct {
	Name    string         `toml:"name"`
	Sign    any            `toml:"sign"` // a string, or an array of strings
	Flag    *string        `toml:"flag"`
	Above   *tomlfile.Text `toml:"above"`
	Below   *tomlfile.Text `toml:"below"`
	For     *tomlfile.Text `toml:"for"`
	Values  *int           `toml:"values"`
	Silent  *tomlfile.Text `toml:"silent"`
	Devices string         `toml:"devices"`
	MaxAge  *tomlfile.Text `toml:"max_age"`

	Labels map[string]string `toml:"labels"`
}

// An invalid is an error about a key.
type invalid struct{ key, reason string }

func (e *invalid) Error() string { return e.key + ": " + e.reason }

// because returns an invalid, unless the condition holds.
func because(holds bool, key, reason string, args ...any) error {
	if holds {
		return nil
	}
	return &invalid{key, fmt.Sprintf(reason, args...)}
}

// ReadRules reads the rules in a file. Flags are those of values outside of the usual ranges in limits,
// which has the signs, too. Errors name the file, the line, the key and the reason.
func ReadRules(path string, limits *vitals.FlagLimits) ([]Rule, error) {
	var f file
	text, err := tomlfile.Read(path, maxFileBytes, &f)
	if err != nil {
		return nil, err
	}
	if len(f.Alert) == 0 { // an editor that saves the file may have emptied it for a moment
		return nil, fmt.Errorf("%s: no [[alert]]", path)
	}
	var rules []Rule
	var tables []int // of the rules
	for i := range f.Alert {
		its, err := f.Alert[i].rules(limits)
		for k := 0; k < len(its) && err == nil; k++ {
			b := &its[k]
			err = because(len(rules) < MaxRules, "name", "more than %d alerts; one with several signs counts for each", MaxRules)
			for j := 0; j < len(rules) && err == nil; j++ {
				a := &rules[j]
				overlap := strings.HasPrefix(a.Devices, b.Devices) || strings.HasPrefix(b.Devices, a.Devices)
				err = because(!overlap || !a.sameLabels(b), "name",
					"for some devices, the labels are those of the alert in line %d",
					tomlfile.LineOf(text, "alert", tables[j], "name"))
			}
			rules, tables = append(rules, *b), append(tables, i)
		}
		if e, ok := err.(*invalid); ok {
			return nil, fmt.Errorf("%s:%d: %w", path, tomlfile.LineOf(text, "alert", i, e.key), e)
		}
	}
	return rules, nil
}

// rules returns the rules that a table describes, one for each sign, or an *invalid.
func (t *table) rules(limits *vitals.FlagLimits) (rules []Rule, err error) {
	r := Rule{Name: t.Name, Devices: t.Devices, Labels: t.Labels}
	if err := t.names(); err != nil {
		return nil, err
	}
	if t.Silent == nil {
		fields, ok := t.Sign.([]any)
		if !ok && t.Sign != nil {
			fields = []any{t.Sign}
		}
		if len(fields) == 0 {
			return nil, &invalid{"sign", "missing; a rule has a sign, or silent"}
		}
		for _, field := range fields {
			name, r := fmt.Sprint(field), r
			if err := t.ofValues(&r, name, limits); err != nil {
				return nil, err
			}
			if slices.ContainsFunc(rules, func(o Rule) bool { return o.Sign == r.Sign }) {
				return nil, &invalid{"sign", name + " is given twice"}
			}
			rules = append(rules, r)
		}
		return rules, nil
	}
	for key, given := range map[string]bool{
		"sign": t.Sign != nil, "flag": t.Flag != nil, "above": t.Above != nil, "below": t.Below != nil, "for": t.For != nil,
		"values": t.Values != nil,
	} {
		if given {
			return nil, &invalid{key, "cannot be combined with silent"}
		}
	}
	if r.Silent, err = duration("silent", t.Silent, 0, time.Second, maxSilent); err == nil && t.MaxAge != nil {
		r.MaxAge, err = duration("max_age", t.MaxAge, 0, r.Silent+time.Second, 2*maxSilent)
	}
	r.Condition = "no reading for " + settings.FormatDuration(r.Silent)
	return []Rule{r}, err
}

// names checks the name, the devices and the labels.
func (t *table) names() error {
	if t.Name == "" {
		return &invalid{"name", "missing"}
	}
	if err := because(len(t.Name) <= maxNameBytes && isText(t.Name), "name",
		"not a text of 1 to %d bytes without control characters", maxNameBytes); err != nil {
		return err
	}
	if t.Devices != "" {
		if _, err := vitals.ParseName(t.Devices); err != nil {
			return &invalid{"devices", "no name of a device begins with this"}
		}
	}
	if len(t.Labels) > maxLabels {
		return &invalid{"labels", fmt.Sprintf("more than %d", maxLabels)}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		value := t.Labels[name]
		switch {
		case !labelName.MatchString(name) || len(name) > maxLabelBytes:
			return &invalid{"labels", fmt.Sprintf("%q is not the name of a label, such as severity", name)}
		case strings.HasPrefix(name, "__"):
			return &invalid{"labels", fmt.Sprintf("%q is reserved: it begins with __", name)}
		case slices.Contains(ownLabels, name):
			return &invalid{"labels", fmt.Sprintf("%q is set by the server", name)}
		case value == "" || len(value) > maxLabelBytes || !isText(value):
			return &invalid{"labels", fmt.Sprintf("the value of %q is not a text of 1 to %d bytes without control characters",
				name, maxLabelBytes)}
		}
	}
	return nil
}

// Labels that the server sets, and how Prometheus spells names of labels.
var (
	ownLabels = []string{"alertname", "device", "sign"}
	labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// ofValues sets the fields of a rule about the values of a sign.
func (t *table) ofValues(r *Rule, field string, limits *vitals.FlagLimits) (err error) {
	var known bool
	if r.Sign, known = limits.Signs.Named(field); !known {
		var fields []string
		for _, d := range limits.Signs.All() {
			fields = append(fields, d.Field)
		}
		return &invalid{"sign", fmt.Sprintf("%q is not a sign; the signs are %s", field, strings.Join(fields, ", "))}
	}
	sign := limits.Signs.Of(r.Sign)
	if r.Met, err = t.met(sign, limits.Usual[r.Sign]); err != nil {
		return err
	}
	if r.For, err = duration("for", t.For, 0, 0, MaxFor); err != nil {
		return err
	}
	if r.MaxAge, err = duration("max_age", t.MaxAge, DefaultMaxAge, time.Second, maxSilent); err != nil {
		return err
	}
	r.Values = 1
	if t.Values != nil {
		r.Values = *t.Values
	}
	r.Field, r.Condition = field, field
	switch {
	case t.Flag != nil:
		r.Condition += " flagged as " + *t.Flag
	case t.Above != nil:
		r.Condition += " above " + string(sign.Append(nil, r.Met.Min-1))
	default:
		r.Condition += " below " + string(sign.Append(nil, r.Met.Max+1))
	}
	if r.For > 0 {
		r.Condition += " for " + settings.FormatDuration(r.For)
	}
	if r.Values > 1 {
		r.Condition += fmt.Sprintf(" in at least %d values", r.Values)
	}
	return because(r.Values >= 1 && r.Values <= MaxValues, "values", "not from 1 to %d", MaxValues)
}

// met returns the range of the values that meet the condition.
func (t *table) met(sign *vitals.Definition, usual vitals.Range) (met vitals.Range, err error) {
	var given []string
	for _, c := range []struct {
		key string
		is  bool
	}{{"flag", t.Flag != nil}, {"above", t.Above != nil}, {"below", t.Below != nil}} {
		if c.is {
			given = append(given, c.key)
		}
	}
	if len(given) != 1 {
		return met, &invalid{append(given, "sign", "sign")[1], "a rule about a sign has one of flag, above and below"}
	}
	met = vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	switch {
	case t.Above != nil:
		met.Min, err = t.Above.Value("the limit", sign.Decimals)
		met.Min++
	case t.Below != nil:
		met.Max, err = t.Below.Value("the limit", sign.Decimals)
		met.Max--
	case *t.Flag == "low":
		err = because(usual.Min != vitals.MinValue, given[0], "no value of %s is flagged as low: its usual range is %s",
			sign.Field, sign.FormatRange(usual))
		met.Max = usual.Min - 1
	case *t.Flag == "high":
		err = because(usual.Max != vitals.MaxValue, given[0], "no value of %s is flagged as high: its usual range is %s",
			sign.Field, sign.FormatRange(usual))
		met.Min = usual.Max + 1
	default:
		err = &invalid{given[0], "not low or high"}
	}
	if _, is := err.(*invalid); err != nil && !is {
		err = &invalid{given[0], err.Error()}
	}
	return met, err
}

// duration returns the duration that a key has, or byDefault if it is missing.
func duration(key string, text *tomlfile.Text, byDefault, least, most time.Duration) (time.Duration, error) {
	if text == nil {
		return byDefault, nil
	}
	d, err := time.ParseDuration(string(*text))
	if err != nil {
		return 0, &invalid{key, "not a duration such as 30s, 2m or 1h"}
	}
	return d, because(d >= least && d <= most && d%time.Millisecond == 0, key, "not from %s to %s, in milliseconds",
		least, most)
}
