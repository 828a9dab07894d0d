package sim

import (
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

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

// A habit says how a sign is measured that is not in traits. Numbers are in units of the
// sign's last decimal.
type habit struct {
	sign        vitals.Sign
	hourly      bool  // with the resting heart rate, otherwise with the blood pressure
	mean, sd    int64 // of the wearers' means
	around      int64 // standard deviation around a wearer's mean
	least, most int64 // values are not beyond these
	step        int64 // values are multiples of it
}

// moreStreams is the first of the random streams of these signs. Gateways use those from 1<<40.
const moreStreams = 1 << 41

// A wearer measures the first usualHabits of builtInHabits always, the others on demand.
const usualHabits = 2

// builtInHabits has the habits of built-in signs. It is never modified.
var builtInHabits = [...]habit{
	{vitals.RespiratoryRate, false, 15_50, 2_20, 1_20, 6_00, 40_00, 1_00},
	{vitals.BodyTemperature, true, 36_70, 25, 15, 34_00, 42_00, 10},
	{vitals.BodyWeight, true, 75_000, 14_000, 400, 3_000, 250_000, 100},
	{vitals.GlucoseMass, true, 105_00, 14_00, 12_00, 40_00, 400_00, 1_00},
	{vitals.GlucoseMolar, true, 5_80, 80, 65, 2_20, 22_00, 10},
	{vitals.PulseRate, false, 80_00, 9_00, 6_00, 30_00, 220_00, 10},
	{vitals.InterstitialGlucoseMass, true, 115_00, 18_00, 15_00, 40_00, 400_00, 1_00},
	{vitals.InterstitialGlucoseMolar, true, 6_40, 1_00, 80, 2_20, 22_00, 10},
}

// Each built-in sign is in traits or has a habit.
var _ [vitals.NumBuiltIn - len(traits{})]habit = builtInHabits

// habitsOf returns the habits for the signs of a run: the usual ones, those of built-in signs that also
// names, and those of a user's own signs. Values of the latter are drawn from the middle of the range in
// which they are usual.
func habitsOf(signs *vitals.Signs, also []string) ([]habit, error) {
	habits := builtInHabits[:usualHabits:usualHabits]
	for _, field := range also {
		s, _ := signs.Named(field)
		i := slices.IndexFunc(builtInHabits[:], func(h habit) bool { return h.sign == s })
		if i < 0 {
			return nil, fmt.Errorf("%w: --also: %q is not a sign that a wearer may measure also", ErrOptions, field)
		}
		if !slices.Contains(habits, builtInHabits[i]) {
			habits = append(habits, builtInHabits[i])
		}
	}
	for s, d := range signs.All() {
		if d.Own() {
			least, most := int64(max(d.Accepted.Min, d.Usual.Min)), int64(min(d.Accepted.Max, d.Usual.Max))
			if least > most { // nothing that is accepted is usual
				least, most = int64(d.Accepted.Min), int64(d.Accepted.Max)
			}
			habits = append(habits, habit{s, false, (least + most) / 2, (most - least) / 12, (most - least) / 24,
				least, most, 1})
		}
	}
	return habits, nil
}

// traits has the means of the signs that every wearer has without a habit.
type traits [vitals.RestingHeartRate + 1]int32

// A wearer is one device and the person who wears it. All numbers are integers: signs
// are in hundredths of their unit, times in ms. docs/sim.md has the distributions.
//
// Invariant: the readings of a wearer depend only on the seed, the number of the device
// and the model, and their times are strictly increasing. TestWearerReproducible and
// TestWearerIsAccepted check it.
type wearer struct {
	random random

	// more is the seed of the signs of model.habits. It never advances, so these depend only on the
	// time, and do not change the other signs.
	more random

	// Traits, drawn once.
	means         traits
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
	habits     []habit
}

// newWearer returns the wearer of a device, with random traits.
func newWearer(seed uint64, device int, m *model) wearer {
	w := wearer{random: newRandom(seed, uint64(device)), more: newRandom(seed, moreStreams+uint64(device))}
	r := &w.random
	resting := clamp(6550+r.normal(770), 4200, 10500)
	systolic := clamp(12200+r.normal(1400), 9200, 17500)
	w.means = traits{
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
	values = w.measure(m.habits)
	stamp := w.timeMs + w.clockOffMs
	if w.clockDriftPPM != 0 {
		stamp += (w.timeMs - m.startMs) / 1_000_000 * int64(w.clockDriftPPM)
	}
	w.stampMs = max(stamp, w.stampMs+1)
	return w.stampMs, values
}

// measure returns the signs that are measured now.
func (w *wearer) measure(habits []habit) (values vitals.Values) {
	r := &w.random
	about := func(sign vitals.Sign, deviation, least, most int64) {
		values.Set(sign, multiple(int64(w.means[sign])+deviation, 10, least, most))
	}
	w.exertion = int32(int64(w.exertion)*7/8 + r.normal(400))
	about(vitals.HeartRate, int64(w.exertion), 3000, 22000)
	if !r.chance(190_000) { // as often as a bedside monitor has no signal, in the demo's recording
		about(vitals.SpO2, r.normal(60), 8500, 10000)
	}
	quarter, hour := w.timeMs/pressureEveryMs, w.timeMs/restingEveryMs
	newQuarter, newHour := quarter != w.pressureAt, hour != w.restedAt
	w.pressureAt, w.restedAt = quarter, hour
	if newQuarter {
		about(vitals.Systolic, r.normal(500), 8000, 23000)
		high, _ := values.Get(vitals.Systolic)
		about(vitals.Diastolic, r.normal(350), 4000, int64(high)-2000)
	}
	if newHour {
		about(vitals.RestingHeartRate, r.normal(80), 3500, 11000)
	}
	for i := range habits {
		if h := &habits[i]; h.hourly && newHour || !h.hourly && newQuarter {
			values.Set(h.sign, w.habitual(h, quarter))
		}
	}
	return values
}

// habitual returns the value of a sign in a quarter of an hour.
func (w *wearer) habitual(h *habit, quarter int64) vitals.Value {
	trait := newRandom(uint64(w.more), uint64(h.sign))
	now := newRandom(uint64(trait), uint64(quarter))
	return multiple(h.mean+trait.normal(h.sd)+now.normal(h.around), h.step, h.least, h.most)
}

// multiple returns v rounded to a multiple of step and limited to the bounds.
func multiple(v, step, least, most int64) vitals.Value {
	return vitals.Value(clamp(floorDiv(v+step/2, step)*step, -floorDiv(-least, step)*step, floorDiv(most, step)*step))
}

// floorDiv returns a/b rounded down. b must be positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func clamp(v, least, most int64) int64 { return min(max(v, least), most) }
