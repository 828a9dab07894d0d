package query

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/vitals"
)

// Limits serves GET /v1/limits: the rules by which readings are accepted and flagged, and
// the bounds of queries. It has no parameters.
func (h *Handler) Limits(w http.ResponseWriter, r *http.Request) {
	r = WithoutCancel(r)
	_, leave, ok := h.opt.Admit(w, r)
	if !ok {
		return
	}
	defer leave()
	if err := ReadParams(r.URL.RawQuery, nil).Err; err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	WriteObject(w, r, h.limits)
}

// A shownRange is an inclusive range of values. An end that is missing means no limit.
type shownRange struct {
	Min jsontext.Value `json:"min,omitempty"`
	Max jsontext.Value `json:"max,omitempty"`
}

func showRange(d *vitals.Definition, r vitals.Range) (shown shownRange) {
	if r.Min != vitals.MinValue {
		shown.Min = d.Append(nil, r.Min)
	}
	if r.Max != vitals.MaxValue {
		shown.Max = d.Append(nil, r.Max)
	}
	return shown
}

type shownSign struct {
	Number   int        `json:"number"` // position among the signs
	Label    string     `json:"label"`
	Unit     string     `json:"unit"`
	Decimals int        `json:"decimals"`
	LOINC    []string   `json:"loinc"`
	Accepted shownRange `json:"accepted"`
	Usual    shownRange `json:"usual"` // values outside are flagged low or high

	ValidatedMin jsontext.Value `json:"validated_min,omitempty"` // lower values are flagged as outside the validated range
	Retired      bool           `json:"retired,omitzero"`        // the sign is stored, but not accepted any more

	// Critical has the flagged values that come before all others where the worst come first.
	Critical *shownRange `json:"critical,omitempty"`

	Pair shownPair `json:"pair,omitzero"`
}

// A shownPair is a pair of signs, of which this one is the higher.
type shownPair struct {
	Low             string `json:"low"`
	Label           string `json:"label"`
	Difference      string `json:"difference"` // its name in flags
	DifferenceLabel string `json:"difference_label"`
}

type shownPage struct {
	Default int `json:"default_limit"`
	Max     int `json:"max_limit"`
}

// limitsText returns the answer of Limits.
func limitsText(opt *Options) []byte {
	signs := map[string]shownSign{}
	for s, d := range opt.Flags.Signs.All() {
		shown := shownSign{
			Number: len(signs), Label: d.Label, Unit: d.Unit, Decimals: d.Decimals, LOINC: d.LOINC,
			Accepted: showRange(d, opt.Limits.Accepted[s]),
			Usual:    showRange(d, opt.Flags.Usual[s]), Retired: d.Retired,
		}
		if d.ValidatedMin != 0 {
			shown.ValidatedMin = d.Append(nil, d.ValidatedMin)
		}
		if r := opt.Flags.Critical[s]; r != nil {
			critical := showRange(d, *r)
			shown.Critical = &critical
		}
		signs[d.Field] = shown
	}
	pair := vitals.Pairs[0]
	high := opt.Flags.Signs.Field(pair.High)
	paired := signs[high]
	paired.Pair = shownPair{opt.Flags.Signs.Field(pair.Low), pair.Label, pair.Difference, pair.DifferenceLabel}
	signs[high] = paired
	text, err := json.Marshal(struct {
		Signs         map[string]shownSign  `json:"signs"`
		PulsePressure map[string]shownRange `json:"pulse_pressure_mmhg"`
		Oldest        time.Time             `json:"oldest"`
		MaxAhead      float64               `json:"max_ahead_seconds"`
		MaxAge        float64               `json:"max_age_seconds,omitzero"` // 0 means no limit
		StaleAfter    float64               `json:"stale_after_seconds"`
		Devices       shownPage             `json:"devices"`
		Readings      shownPage             `json:"readings"`
		Aggregates    shownPage             `json:"aggregates"`
		MaxStep       string                `json:"max_step"`
		Notice        string                `json:"flags_notice"`
	}{
		signs, map[string]shownRange{"usual": showRange(opt.Flags.Signs.Of(pair.High), pair.Usual)},
		time.UnixMilli(opt.Limits.OldestUnixMs).UTC(), opt.Limits.MaxAhead.Seconds(), opt.Limits.MaxAge.Seconds(),
		opt.StaleAfter.Seconds(),
		shownPage{DefaultDevices, MaxDevices}, shownPage{DefaultReadings, MaxReadings}, shownPage{DefaultBuckets, MaxBuckets},
		maxStep, vitals.FlagNotice,
	}, json.Deterministic(true))
	if err != nil {
		panic(err) // the types above can be marshaled
	}
	return append(text, '\n')
}
