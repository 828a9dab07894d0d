package query_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestLimits(t *testing.T) {
	srv := serveOptions(t, fill(t, one("a")), query.Options{Limits: vitals.NewSigns().DefaultLimits()}, unchanged)
	_, got := get(t, srv, "/v1/limits")
	const want = `{"signs":{` +
		`"body_temperature_c":{"number":6,"label":"Body temperature","unit":"Cel","decimals":2,"loinc":["8310-5"],` +
		`"accepted":{"min":20,"max":46},"usual":{"min":35.01,"max":39.09}},` +
		`"body_weight_kg":{"number":7,"label":"Body weight","unit":"kg","decimals":3,"loinc":["29463-7"],` +
		`"accepted":{"min":0.2,"max":650},"usual":{}},` +
		`"diastolic_mmhg":{"number":1,"label":"Diastolic pressure","unit":"mm[Hg]","decimals":2,"loinc":["8462-4"],` +
		`"accepted":{"min":20,"max":250},"usual":{"min":50,"max":120}},` +
		`"glucose_mg_dl":{"number":8,"label":"Glucose","unit":"mg/dL","decimals":2,"loinc":["2339-0"],"accepted":{"min":10,` +
		`"max":1000},"usual":{"min":70,"max":250},"critical":{"max":53.99}},` +
		`"glucose_mmol_l":{"number":9,"label":"Glucose","unit":"mmol/L","decimals":2,"loinc":["15074-8"],` +
		`"accepted":{"min":0.5,"max":56},"usual":{"min":3.9,"max":13.9},"critical":{"max":2.99}},` +
		`"heart_rate_bpm":{"number":3,"label":"Heart rate","unit":"/min","decimals":2,"loinc":["8867-4"],` +
		`"accepted":{"min":20,"max":300},"usual":{"min":40.01,"max":130.99}},` +
		`"interstitial_glucose_mg_dl":{"number":11,"label":"Interstitial glucose","unit":"mg/dL","decimals":2,` +
		`"loinc":["99504-3"],"accepted":{"min":20,"max":600},"usual":{"min":70,"max":250},"critical":{"max":53.99}},` +
		`"interstitial_glucose_mmol_l":{"number":12,"label":"Interstitial glucose","unit":"mmol/L","decimals":2,` +
		`"loinc":["105272-9"],"accepted":{"min":1.1,"max":33.3},"usual":{"min":3.9,"max":13.9},"critical":{"max":2.99}},` +
		`"pulse_rate_bpm":{"number":10,"label":"Pulse rate","unit":"/min","decimals":2,"loinc":["8889-8","8867-4"],` +
		`"accepted":{"min":20,"max":300},"usual":{"min":40.01,"max":130.99}},` +
		`"respiratory_rate_bpm":{"number":5,"label":"Respiratory rate","unit":"/min","decimals":2,"loinc":["9279-1"],` +
		`"accepted":{"min":1,"max":150},"usual":{"min":8.01,"max":24.99}},` +
		`"resting_heart_rate_bpm":{"number":4,"label":"Resting heart rate","unit":"/min","decimals":2,"loinc":["40443-4",` +
		`"8867-4"],"accepted":{"min":20,"max":300},"usual":{"min":40,"max":100}},` +
		`"spo2_pct":{"number":2,"label":"SpO₂","unit":"%","decimals":2,"loinc":["59408-5","2708-6"],"accepted":{"min":2,` +
		`"max":100},"usual":{"min":91.01},"validated_min":70,"critical":{"max":69.99}},` +
		`"systolic_mmhg":{"number":0,"label":"Systolic pressure","unit":"mm[Hg]","decimals":2,"loinc":["8480-6"],` +
		`"accepted":{"min":40,"max":300},"usual":{"min":90.01,"max":219.99},"pair":{"low":"diastolic_mmhg","label":"Blood ` +
		`pressure","difference":"pulse_pressure_mmhg","difference_label":"Pulse pressure"}}},` +
		`"pulse_pressure_mmhg":{"usual":{"min":20,"max":120}},` +
		`"oldest":"2001-01-01T00:00:00Z","max_ahead_seconds":300,"stale_after_seconds":900,` +
		`"devices":{"default_limit":100,"max_limit":1000},"readings":{"default_limit":1000,"max_limit":1000000},` +
		`"aggregates":{"default_limit":1000,"max_limit":10000},"max_step":"366d","flags_notice":"` +
		vitals.FlagNotice + `"}` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if resp, _ := get(t, srv, "/v1/limits?x=1"); resp.StatusCode != 400 {
		t.Errorf("with a parameter: %d", resp.StatusCode)
	}
}
