package recording

import (
	_ "embed" // for the recording

	"github.com/pulsegate/pulsegate/vitals"
)

// MIMIC2 is a bedside monitor's recording of 1,936 minutes as CSV: record
// s00001-2896-10-10-00-31n of the MIMIC II Waveform Database numerics (Saeed et al.
// 2011, Goldberger et al. 2000). mimic2/README.md has the notice that must accompany
// every copy. The text must not be modified.
//
//go:embed mimic2/s00001.csv
var MIMIC2 string

// MIMIC2Mapping returns the mapping for the columns of [MIMIC2] that are signs of
// Pulsegate: the monitor's heart rate, its SpO2 and the pulse rate of the same sensor, and the
// blood pressure measured by cuff.
func MIMIC2Mapping() Mapping {
	m := DefaultMapping(vitals.NewSigns())
	clear(m[firstSign:])
	for s, column := range map[vitals.Sign]string{
		vitals.HeartRate: "HR", vitals.PulseRate: "PULSE", vitals.SpO2: "SpO2", vitals.Systolic: "NBPSys",
		vitals.Diastolic: "NBPDias",
	} {
		m[firstSign+s] = column
	}
	return m
}
