package hl7_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/vitals"
)

// What a device disowns is left out with AA: it is neither stored nor an error, whatever else is in its OBX. The rest
// is stored.
func TestLeftOut(t *testing.T) {
	const (
		rate     = "OBX|1|NM|8867-4^^LN||72|/min|||||R|||20261122093000+0000||||d"
		systolic = "OBX|1|NM|8480-6^^LN|1.0.1.1|120|mm[Hg]|||||R|||20261122093000+0000||||d"
		low      = "OBX|2|NM|8462-4^^LN|1.0.1.2|80|mm[Hg]|||||R|||20261122093000+0000||||d"
	)
	for _, tt := range []struct {
		name, obx string
		store     bool   // --questionable store
		want      string // what is left out; "" means nothing
		code      string
	}{
		{"questionable", with(rate, 8, "QUES"), false, "heart_rate_bpm questionable", "AA"},
		{"questionable, stored", with(rate, 8, "QUES"), true, "", "AA"},
		{"questionable and invalid", with(rate, 8, "QUES~INV"), true, "heart_rate_bpm invalid", "AA"},
		{"invalid", with(rate, 8, "N~INV"), false, "heart_rate_bpm invalid", "AA"},
		{"not available", with(rate, 8, "NAV"), false, "heart_rate_bpm not_available", "AA"},
		{"not available and no value", with(with(rate, 8, "NAV"), 5, ""), false, "heart_rate_bpm not_available", "AA"},
		{"calibrating", with(rate, 8, "CALIB"), false, "heart_rate_bpm calibrating", "AA"},
		{"test", with(rate, 8, "TEST"), false, "heart_rate_bpm test", "AA"},
		{"demo", with(rate, 8, "DEMO"), false, "heart_rate_bpm demo", "AA"},
		{"early", with(rate, 8, "EARLY"), false, "heart_rate_bpm early", "AA"},
		{"busy", with(rate, 8, "BUSY"), false, "heart_rate_bpm busy", "AA"},
		{"in alarm", with(rate, 8, "H~ALACT"), false, "", "AA"},
		{"no number", with(with(rate, 8, "INV"), 5, "--"), false, "heart_rate_bpm invalid", "AA"},
		{"no unit, no result", with(with(with(rate, 8, "INV"), 6, ""), 11, "X"), false, "heart_rate_bpm invalid", "AA"},
		{"one pressure", systolic + "\n" + with(low, 8, "INV"), false, "systolic_mmhg invalid,diastolic_mmhg invalid", "AA"},
		{"the other pressure", with(systolic, 8, "BUSY") + "\n" + low, false, "systolic_mmhg busy,diastolic_mmhg busy", "AA"},
		{"a correction", with(with(rate, 8, "INV"), 11, "C"), false, "", "AE"},
		{"another code", with(with(rate, 8, "INV"), 3, "8302-2^^LN"), false, "", "AE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var left []string
			s := serve(t, ingest.Config{StoreQuestionable: tt.store, OnLeftOut: func(l *ingest.LeftOut, _ vitals.Name, _ bool) {
				if left = append(left, l.Field+" "+l.Why.String()); l.Device.String() != "d" || l.Source != ingest.HL7 {
					t.Errorf("left out %+v", l)
				}
			}}, hl7.Options{})
			other := "OBX|9|NM|8867-4^^LN||72|/min|||||R|||20261122093000+0000||||other"
			if got, want := s.send(header+tt.obx+"\n"+other),
				fmt.Sprintf("MSA|%s|MSGID1234\n", tt.code); !strings.Contains(got, want) {
				t.Errorf("answer\n%swant %s", got, want)
			}
			if got := strings.Join(left, ","); got != tt.want {
				t.Errorf("left out %s, want %s", got, tt.want)
			}
			if got, want := len(s.all(t, "d")), 0; (got > want) != (tt.want == "" && tt.code == "AA") {
				t.Errorf("stored %d readings", got)
			}
			if len(s.all(t, "other")) != 1 {
				t.Error("the other OBX is not stored")
			}
			left = nil // alone in its message
			if got := s.send(header + tt.obx); !strings.Contains(got, "MSA|"+tt.code) || strings.Join(left, ",") != tt.want {
				t.Errorf("alone: %s, left out %v", got, left)
			}
		})
	}
	for d := codes.Questionable; d < codes.NumDoubts; d++ {
		if !strings.HasPrefix(d.Reason(), "left out: ") {
			t.Errorf("%s: %s", d, d.Reason())
		}
	}
}
