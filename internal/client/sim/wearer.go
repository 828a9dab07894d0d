package sim

import "github.com/pulsegate/pulsegate/vitals"

// Times in milliseconds.
const (
	secondMs = 1000
	minuteMs = 60 * secondMs
	hourMs   = 60 * minuteMs
	dayMs    = 24 * hourMs
)

// A wearer's blood pressure is measured and the resting heart rate reported once in each slot of
// time.
const (
	pressureEveryMs = 15 * minuteMs
	restingEveryMs  = hourMs
)

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
// are in hundredths of their unit, times in ms. docs/sim.md has the distributions.
//
// Invariant: the readings of a wearer depend only on the seed, the number of the device
// and the model, and their times are strictly increasing. TestWearerReproducible and
// TestWearerIsAccepted check it.
type wearer struct {
	random random

	// Traits, drawn once.
	means         [vitals.NumSigns]int32
	clockOffMs    int64 // how far the device's clock is fast
	clockDriftPPM int32

	// State.
	timeMs               int64 // true time of the last reading
	stampMs              int64 // the same by the device's clock
	pressureAt, restedAt int64 // time slots of the last measurements
	exertion             int32 // deviation of the heart rate from its mean
}

// A model describes how wearers' time passes.
type model struct {
	startMs    int64
	endMs      int64 // if not 0, time stops here: further readings are 1 ms apart
	intervalMs int64 // between two readings of a device
	skewed     int64 // share of devices with a wrong clock, in parts per million
}

// newWearer returns the wearer of a device, with random traits.
func newWearer(seed uint64, device int, m *model) wearer {
	w := wearer{random: newRandom(seed, uint64(device))}
	r := &w.random
	resting := clamp(6550+r.normal(770), 4200, 10500)
	systolic := clamp(12200+r.normal(1400), 9200, 17500)
	w.means = [vitals.NumSigns]int32{
		vitals.Systolic:         int32(systolic),
		vitals.Diastolic:        int32(clamp(7100+r.normal(900), 5000, systolic-3000)),
		vitals.SpO2:             int32(clamp(9680+r.normal(80), 9400, 9900)),
		vitals.HeartRate:        int32(resting + r.between(500, 2500)),
		vitals.RestingHeartRate: int32(resting),
	}
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
	// The first blood pressure is due at once for one device in 15, on average.
	w.pressureAt = w.timeMs / pressureEveryMs
	w.restedAt = w.timeMs / restingEveryMs
	return w
}

// next returns the wearer's next reading.
func (w *wearer) next(m *model) (timeMs int64, values vitals.Values) {
	// Jitter of a quarter of the interval never reorders readings, because it is added to the step,
	// not to the time.
	stepMs := m.intervalMs
	if j := m.intervalMs / 8; j > 0 {
		stepMs += w.random.between(-j, j)
	}
	stepMs = max(stepMs, 1)
	// The device is taken off for charging or washing about once a day, which causes a gap.
	if w.random.chance(700 * min(stepMs, hourMs) / minuteMs) {
		stepMs += w.random.between(minuteMs, hourMs)
	}
	if m.endMs > 0 && w.timeMs+stepMs > m.endMs {
		stepMs = 1
	}
	w.timeMs += stepMs
	values = w.measure()
	stamp := w.timeMs + w.clockOffMs
	if w.clockDriftPPM != 0 {
		stamp += (w.timeMs - m.startMs) / 1_000_000 * int64(w.clockDriftPPM)
	}
	w.stampMs = max(stamp, w.stampMs+1)
	return w.stampMs, values
}

// measure returns the signs that are measured now.
func (w *wearer) measure() (values vitals.Values) {
	r := &w.random
	about := func(sign vitals.Sign, deviation, least, most int64) {
		values.Set(sign, oneDecimal(int64(w.means[sign])+deviation, least, most))
	}
	w.exertion = int32(int64(w.exertion)*7/8 + r.normal(400))
	about(vitals.HeartRate, int64(w.exertion), 3000, 22000)
	if !r.chance(190_000) { // as often as a bedside monitor has no signal, in the demo's recording
		about(vitals.SpO2, r.normal(60), 8500, 10000)
	}
	if slot := w.timeMs / pressureEveryMs; slot != w.pressureAt {
		w.pressureAt = slot
		about(vitals.Systolic, r.normal(500), 8000, 23000)
		high, _ := values.Get(vitals.Systolic)
		about(vitals.Diastolic, r.normal(350), 4000, int64(high)-2000)
	}
	if slot := w.timeMs / restingEveryMs; slot != w.restedAt {
		w.restedAt = slot
		about(vitals.RestingHeartRate, r.normal(80), 3500, 11000)
	}
	return values
}

// oneDecimal returns v, in hundredths, rounded to one decimal and limited to the
// bounds.
func oneDecimal(v, least, most int64) vitals.Hundredths {
	return vitals.Hundredths(clamp((v+5)/10*10, (least+9)/10*10, most/10*10))
}

func clamp(v, least, most int64) int64 { return min(max(v, least), most) }
