package query

import (
	"math"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/vitals"
)

// Limits serves GET /v1/limits: the rules by which readings are accepted and flagged, and
// the bounds of queries. It has no parameters.
func (h *Handler) Limits(w http.ResponseWriter, r *http.Request) {
	r = WithoutCancel(r)
	_, leave, ok := h.authorize(w, r)
	if !ok {
		return
	}
	defer leave()
	if err := ReadParams(r.URL.RawQuery, nil).Err; err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	h.writeObject(w, r, h.limits)
}

// A shownRange is an inclusive range of values.
type shownRange struct {
	Min float64 `json:"min"`
	Max float64 `json:"max,omitzero"` // 0 means no limit
}

func showRange(r vitals.Range) shownRange {
	if r.Max == math.MaxUint16 {
		return shownRange{Min: float64(r.Min) / 100}
	}
	return shownRange{float64(r.Min) / 100, float64(r.Max) / 100}
}

type shownSign struct {
	Unit     string     `json:"unit"`
	LOINC    []string   `json:"loinc"`
	Accepted shownRange `json:"accepted"`
	Usual    shownRange `json:"usual"` // values outside are flagged low or high

	ValidatedMin float64 `json:"validated_min,omitzero"` // lower values are flagged as outside the validated range
}

type shownPage struct {
	Default int `json:"default_limit"`
	Max     int `json:"max_limit"`
}

// limitsText returns the answer of Limits.
func limitsText(opt *Options) []byte {
	signs := map[string]shownSign{}
	for s := range vitals.Sign(vitals.NumSigns) {
		shown := shownSign{Unit: s.Unit(), LOINC: s.LOINC(), Accepted: showRange(opt.Limits.Accepted[s]), Usual: showRange(opt.Flags.Usual[s])}
		if s == vitals.SpO2 {
			shown.ValidatedMin = float64(opt.Flags.SpO2Validated) / 100
		}
		signs[s.Field()] = shown
	}
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
		signs, map[string]shownRange{"usual": showRange(opt.Flags.PulsePressure)},
		time.UnixMilli(opt.Limits.OldestUnixMs).UTC(), opt.Limits.MaxAhead.Seconds(), opt.Limits.MaxAge.Seconds(), opt.StaleAfter.Seconds(),
		shownPage{DefaultDevices, MaxDevices}, shownPage{DefaultReadings, MaxReadings}, shownPage{DefaultBuckets, MaxBuckets},
		maxStep, vitals.FlagNotice,
	}, json.Deterministic(true))
	if err != nil {
		panic(err) // the types above can be marshaled
	}
	return append(text, '\n')
}
