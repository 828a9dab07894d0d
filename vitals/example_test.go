package vitals_test

import (
	"fmt"

	"github.com/pulsegate/pulsegate/vitals"
)

// A batch with one rejected reading.
func ExampleDecoder() {
	rules, err := vitals.NewValidator(vitals.NewSigns().DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	decoder := vitals.NewDecoder(rules, vitals.DecoderOptions{})

	body := []byte(`[
		{"device":"ppg-000123","time":"2026-11-21T10:00:00.123Z","spo2_pct":97.5,"heart_rate_bpm":72},
		{"device":"ppg-000123","time":"2026-11-21T10:01:00.123Z","spo2_pct":197.5}
	]`)
	const nowUnixMs = 1_795_255_265_000
	var batch vitals.Batch
	if err := decoder.Decode(body, nowUnixMs, &batch); err != nil {
		fmt.Println(err)
		return
	}
	for i := range batch.Readings {
		fmt.Printf("%d: %s\n", batch.Index[i], vitals.NewSigns().AppendJSON(nil, &batch.Readings[i]))
	}
	for i := range batch.Refused {
		fmt.Println(&batch.Refused[i])
	}
	// Output:
	// 0: {"device":"ppg-000123","time":"2026-11-21T10:00:00.123Z","spo2_pct":97.5,"heart_rate_bpm":72}
	// reading 1: spo2_pct: outside the accepted range 2 to 100 %
}

// The flags of a reading, computed when it is shown.
func ExampleFlagLimits_Flags() {
	signs := vitals.NewSigns()
	limits := signs.DefaultFlagLimits()
	var values vitals.Values
	values.Set(vitals.SpO2, 69_50)
	values.Set(vitals.HeartRate, 131_00)
	for _, flag := range signs.Flags(limits.Flags(&values)) {
		fmt.Println(flag)
	}
	fmt.Println(vitals.FlagNotice)
	// Output:
	// spo2_pct outside validated range
	// spo2_pct low
	// heart_rate_bpm high
	// Flags mark unusual values. Pulsegate is not an alarm system.
}
