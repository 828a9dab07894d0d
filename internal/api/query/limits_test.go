package query_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestLimits(t *testing.T) {
	srv := serve(t, fill(t, one("a")))
	_, got := get(t, srv, "/v1/limits")
	const want = `{"signs":{` +
		`"diastolic_mmhg":{"unit":"mm[Hg]","loinc":["8462-4"],"accepted":{"min":20,"max":250},"usual":{"min":50,"max":120}},` +
		`"heart_rate_bpm":{"unit":"/min","loinc":["8867-4"],"accepted":{"min":20,"max":300},"usual":{"min":40.01,"max":130.99}},` +
		`"resting_heart_rate_bpm":{"unit":"/min","loinc":["40443-4","8867-4"],"accepted":{"min":20,"max":300},"usual":{"min":40,"max":100}},` +
		`"spo2_pct":{"unit":"%","loinc":["59408-5","2708-6"],"accepted":{"min":1,"max":100},"usual":{"min":91.01},"validated_min":70},` +
		`"systolic_mmhg":{"unit":"mm[Hg]","loinc":["8480-6"],"accepted":{"min":40,"max":300},"usual":{"min":90.01,"max":219.99}}},` +
		`"pulse_pressure_mmhg":{"usual":{"min":20,"max":120}},` +
		`"oldest":"2001-01-01T00:00:00Z","max_ahead_seconds":300,"stale_after_seconds":900,` +
		`"devices":{"default_limit":100,"max_limit":1000},"readings":{"default_limit":1000,"max_limit":1000000},` +
		`"aggregates":{"default_limit":1000,"max_limit":10000},"max_step":"366d","flags_notice":"` + vitals.FlagNotice + `"}` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if resp, _ := get(t, srv, "/v1/limits?x=1"); resp.StatusCode != 400 {
		t.Errorf("with a parameter: %d", resp.StatusCode)
	}
}
