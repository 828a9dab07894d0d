package sim

import "github.com/pulsegate/pulsegate/vitals"

// Times in milliseconds.
const (
	secondMs = 1000
	minuteMs = 60 * secondMs
	hourMs   = 60 * minuteMs
	dayMs    = 24 * hourMs
)

// pressureEveryMs is how often a wearer's blood pressure is measured. Cuffs of
// ambulatory monitors inflate every 15 to 30 min by day (O'Brien et al.,
// European Society of Hypertension position paper on ambulatory blood pressure
// monitoring, J Hypertens 31:1731-1768, 2013).
const pressureEveryMs = 15 * minuteMs

// restingEveryMs is how often a wearer's device reports the resting heart rate.
const restingEveryMs = hourMs

// A sample is one reading of a device of the fleet.
type sample struct {
	device int32 // number of the device
	timeMs int64
	values vitals.Values
	offset vitals.UTCOffset // with which the time is sent
}

// zones are the offsets from UTC, in minutes, of every eighth device, in turn. The others
// send their times with Z.
var zones = [...]int{120, -210, 345, 0}

// offsetOf returns the offset from UTC with which a device sends its times.
func offsetOf(device int32) vitals.UTCOffset {
	if device%8 != 1 {
		return 0
	}
	return vitals.MakeUTCOffset(zones[int(device/8)%len(zones)])
}

// A wearer is one device and the person who wears it. All numbers are integers: signs
// are in hundredths of their unit, times in ms. docs/sim.md has the distributions and
// their sources.
//
// Invariant: the readings of a wearer depend only on the seed, the number of the device
// and the model, and their times are strictly increasing. TestWearerReproducible and
// TestWearerIsAccepted check it.
type wearer struct {
	random random

	// Traits, drawn once.
	restRate, reserve    int32 // heart rate at rest, and how far it can rise
	systolic, diastolic  int32
	saturation           int32
	bodyClockMs          int64 // lag of the body clock behind the time of day
	clockOffMs           int64 // how far the device's clock is fast
	clockDriftPPM        int32
	pressureAt, restedAt int64 // time slots of the last measurements

	// State.
	timeMs        int64 // true time of the last reading
	stampMs       int64 // the same by the device's clock
	phaseEndMs    int64 // end of the current phase of rest or activity
	exertion      int32 // in permille of the reserve; 0 at rest
	rate, rateAt  int32 // heart rate without noise, and the noise
	noSpO2UntilMs int64 // no SpO2 signal before this time
}

// A model describes how wearers' time passes.
type model struct {
	startMs    int64
	endMs      int64 // if not 0, time stops here: further readings are 1 ms apart
	intervalMs int64 // between two readings of a device
	skewed     int64 // share of devices with a wrong clock, in parts per million
}

// circadian has, for each hour of the body clock, the deviation of heart rate and blood
// pressure at rest from their mean, in permille. The nightly drop in blood pressure, 10
// to 20 %, is that of "dippers" (O'Brien, Sheridan, O'Malley: Dippers and non-dippers,
// Lancet 332:397, 1988).
var circadian = [24]struct{ rate, pressure int64 }{
	{-75, -85}, {-90, -100}, {-100, -110}, {-105, -110}, {-100, -105}, {-80, -85},
	{-45, -40}, {0, 10}, {30, 40}, {45, 50}, {50, 55}, {50, 50},
	{50, 45}, {45, 40}, {45, 40}, {50, 45}, {50, 50}, {55, 55},
	{50, 55}, {40, 45}, {25, 25}, {5, 5}, {-25, -25}, {-50, -60},
}

// drift returns the effect of the time of day on heart rate and blood pressure, in
// permille.
func (w *wearer) drift() (rate, pressure int64, asleep bool) {
	ofDay := (w.timeMs - w.bodyClockMs) % dayMs
	if ofDay < 0 {
		ofDay += dayMs
	}
	hour, part := ofDay/hourMs, ofDay%hourMs
	a, b := circadian[hour], circadian[(hour+1)%24]
	rate = a.rate + (b.rate-a.rate)*part/hourMs
	pressure = a.pressure + (b.pressure-a.pressure)*part/hourMs
	return rate, pressure, hour < 6 || hour >= 23
}

// newWearer returns the wearer of a device, with random traits.
func newWearer(seed uint64, device int, m *model) wearer {
	w := wearer{random: newRandom(seed, uint64(device))}
	r := &w.random
	age := r.between(20, 85)
	// Resting heart rate of 92,457 adults: 65.5 ± 7.7 /min, individuals 40 to 109
	// (Quer et al., PLoS ONE 15:e0227709, 2020).
	w.restRate = int32(clamp(6550+r.normal(770), 4200, 10500))
	// Maximum heart rate 208 - 0.7 × age (Tanaka, Monahan, Seals, J Am Coll Cardiol
	// 37:153-156, 2001).
	w.reserve = int32(20800-70*age) - w.restRate
	// Means of adults in the United States, 2001-2008: 122/71 mm[Hg] (Wright et al.,
	// National Health Statistics Reports 35, 2011). The spread is our own estimate.
	w.systolic = int32(clamp(12200+r.normal(1400), 9200, 17500))
	w.diastolic = int32(clamp(7100+r.normal(900), 5000, int64(w.systolic)-3000))
	// For healthy people, within the target range of the BTS guideline, 94 to 98 %
	// (O'Driscoll et al., Thorax 72:ii1-ii90, 2017).
	w.saturation = int32(clamp(9680+r.normal(80), 9400, 9900))
	w.bodyClockMs = clamp(r.normal(hourMs), -3*hourMs, 3*hourMs)

	skewed, offMs, drift, wrongHour := r.chance(m.skewed), r.normal(minuteMs), r.normal(20), r.chance(100_000)
	if skewed {
		w.clockOffMs, w.clockDriftPPM = offMs, int32(drift)
		if wrongHour {
			w.clockOffMs += hourMs // set to summer time but sent as standard time
		}
	}
	// Devices do not measure simultaneously.
	w.timeMs = m.startMs + r.below(max(m.intervalMs, 1)) - m.intervalMs
	w.stampMs = w.timeMs + w.clockOffMs - 1
	w.rate = w.restRate
	w.phaseEndMs = w.timeMs
	// The first blood pressure is due at once for one device in 15, on average.
	w.pressureAt = w.timeMs / pressureEveryMs
	w.restedAt = w.timeMs / restingEveryMs
	return w
}

// next returns the wearer's next reading.
func (w *wearer) next(m *model) (timeMs int64, values vitals.Values) {
	stepMs := m.intervalMs
	// Jitter of a quarter of the interval never reorders readings, because it is added to the step,
	// not to the time.
	if j := m.intervalMs / 8; j > 0 {
		stepMs += w.random.between(-j, j)
	}
	stepMs = max(stepMs, 1)
	// The device is taken off for charging or washing about once a day, which causes a gap.
	if w.random.chance(700 * min(stepMs, hourMs) / minuteMs) {
		stepMs += w.random.exponential(30 * minuteMs)
	}
	stepMs = m.until(w.timeMs, stepMs)
	w.timeMs += stepMs
	values = w.measure(stepMs)
	stamp := w.timeMs + w.clockOffMs
	if w.clockDriftPPM != 0 {
		stamp += (w.timeMs - m.startMs) / 1_000_000 * int64(w.clockDriftPPM)
	}
	w.stampMs = max(stamp, w.stampMs+1)
	return w.stampMs, values
}

// until limits a step from timeMs so that it does not pass the end.
func (m *model) until(timeMs, stepMs int64) int64 {
	if m.endMs > 0 && timeMs+stepMs > m.endMs {
		return 1
	}
	return stepMs
}

// measure returns the signs measured stepMs after the previous reading.
func (w *wearer) measure(stepMs int64) (values vitals.Values) {
	r := &w.random
	circadianRate, circadianPressure, asleep := w.drift()
	if w.timeMs >= w.phaseEndMs {
		w.enterPhase(asleep)
	}

	// The heart rate follows exertion with a time constant of one minute.
	rest := int64(w.restRate) * (1000 + circadianRate) / 1000
	aim := rest + int64(w.reserve)*int64(w.exertion)/1000
	w.rate += int32((aim - int64(w.rate)) * stepMs / (stepMs + minuteMs))
	// Autocorrelated noise: half of it persists until the next reading.
	w.rateAt = int32(int64(w.rateAt)/2 + r.normal(130))
	values.Set(vitals.HeartRate, oneDecimal(int64(w.rate)+int64(w.rateAt), 3000, 22000))

	if w.saturated(stepMs) {
		dip := int64(0)
		if asleep {
			dip = 60
		}
		values.Set(vitals.SpO2, oneDecimal(int64(w.saturation)-dip+r.normal(60), 8500, 10000))
	}
	if slot := w.timeMs / pressureEveryMs; slot != w.pressureAt {
		w.pressureAt = slot
		systolic := int64(w.systolic)*(1000+circadianPressure)/1000 + int64(w.exertion)*7 + r.normal(500)
		diastolic := int64(w.diastolic)*(1000+circadianPressure)/1000 + int64(w.exertion) + r.normal(350)
		high := oneDecimal(systolic, 8000, 23000)
		values.Set(vitals.Systolic, high)
		values.Set(vitals.Diastolic, oneDecimal(diastolic, 4000, int64(high)-2000))
	}
	if slot := w.timeMs / restingEveryMs; slot != w.restedAt {
		w.restedAt = slot
		values.Set(vitals.RestingHeartRate, oneDecimal(int64(w.restRate)+r.normal(80), 3500, 11000))
	}
	return values
}

// enterPhase starts a phase of rest or activity.
func (w *wearer) enterPhase(asleep bool) {
	r := &w.random
	if active := !asleep && w.exertion == 0 && r.chance(700_000); active {
		// Light to moderate exertion, at most 59 % of the heart rate reserve (Garber
		// et al., ACSM position stand, Med Sci Sports Exerc 43:1334-1359, 2011).
		w.exertion = int32(r.between(80, 590))
		w.phaseEndMs = w.timeMs + minuteMs + r.exponential(14*minuteMs)
		return
	}
	w.exertion = 0
	w.phaseEndMs = w.timeMs + 5*minuteMs + r.exponential(40*minuteMs)
}

// saturated reports whether the oximeter has a signal. Signal loss is four times as
// frequent during motion as at rest. In the recording shipped with Pulsegate, a bedside
// monitor lacks SpO2 in 19 % of the minutes.
func (w *wearer) saturated(stepMs int64) bool {
	if w.timeMs < w.noSpO2UntilMs {
		return false
	}
	perMinute := int64(15_000)
	if w.exertion > 0 {
		perMinute *= 4
	}
	if w.random.chance(perMinute * min(stepMs, 10*minuteMs) / minuteMs) {
		w.noSpO2UntilMs = w.timeMs + w.random.exponential(8*minuteMs)
		return false
	}
	return true
}

// oneDecimal returns v, in hundredths, rounded to one decimal and limited to the
// bounds.
func oneDecimal(v, least, most int64) vitals.Hundredths {
	return vitals.Hundredths(clamp((v+5)/10*10, (least+9)/10*10, most/10*10))
}

func clamp(v, least, most int64) int64 { return min(max(v, least), most) }
