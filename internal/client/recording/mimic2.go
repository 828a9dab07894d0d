package recording

import _ "embed"

// MIMIC2 is a bedside monitor's recording of 1,936 minutes as CSV: record
// s00001-2896-10-10-00-31n of the MIMIC II Waveform Database numerics (Saeed et
// al. 2011, Goldberger et al. 2000). mimic2/README.md holds the notice that goes
// with every copy. The text must not be modified.
//
//go:embed mimic2/s00001.csv
var MIMIC2 string

// MIMIC2Mapping names the columns of [MIMIC2] that Pulsegate has signs for: the
// monitor's heart rate and SpO2, and the pressure measured by cuff.
const MIMIC2Mapping = "heart_rate_bpm=HR,spo2_pct=SpO2,systolic_mmhg=NBPSys,diastolic_mmhg=NBPDias"
