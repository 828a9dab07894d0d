package main

import (
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

const (
	wardMoves  = 512 // readings after which a wearer moves to the other one of two gateways
	restPhase  = 64  // readings between changes of a wearer's exertion
	perGateway = 40  // wearers
	minuteMs   = 60_000
	jitterMs   = 1000 // range of the jitter of a wearer's times
)

// A sample is a reading of a wearer.
type sample struct {
	device, gateway int32
	timeMs          int64
	values          vitals.Values
}

// set sets a sign to a number of tenths of its unit.
func (s *sample) set(sign vitals.Sign, tenths int32) {
	scale := int32(10)
	if sign == vitals.BodyWeight { // which has three decimals
		scale = 100
	}
	s.values.Set(sign, vitals.Value(tenths*scale))
}

// A wearer is the state of one device of the load.
//
// The signs follow the model of pulsegate sim, at a fraction of its cost: a heart rate
// that follows phases of exertion, with autocorrelated noise of 1.1 /min, and a
// saturation with noise of 0.6 %. All values have one decimal and two digits before it,
// pressures of the systole three.
type wearer struct {
	device, ward     int32 // ward: one of the two gateways
	phaseMs          int32 // when in each minute it measures, before jitter
	rest, aim, rate  int32
	noise            int32
	saturation, high int32
	n                int32 // readings made
}

// wearers generates the readings of some devices: one per minute of each device, in
// turn, with a jitter of a second to the millisecond.
type wearers struct {
	all      []wearer
	next     int
	minuteMs int64
	random   uint64
	signs    int
}

// newWearers returns the wearers of group of groups: the devices below devices that are
// group modulo groups, in no order. Equal arguments give equal readings.
func newWearers(devices, groups, group, signs int, start time.Time) *wearers {
	w := &wearers{minuteMs: start.Truncate(time.Minute).UnixMilli(), random: uint64(group + 1), signs: signs}
	for d := group; d < devices; d += groups {
		one := wearer{device: int32(d), ward: int32(d/groups/perGateway*groups + group),
			phaseMs: int32(w.below(minuteMs - jitterMs)), n: int32(w.below(wardMoves))}
		one.rest = 550 + w.below(200)
		one.aim, one.rate = one.rest, one.rest
		one.saturation = 960 + w.below(20)
		one.high = 1100 + w.below(300)
		w.all = append(w.all, one)
	}
	for i := range w.all { // a gateway sends its devices' readings in no order
		j := i + int(w.below(int32(len(w.all)-i)))
		w.all[i], w.all[j] = w.all[j], w.all[i]
	}
	return w
}

// below returns a random number from 0 to n-1.
func (w *wearers) below(n int32) int32 {
	w.random += 0x9e3779b97f4a7c15 // SplitMix64
	x := w.random
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int32((x ^ x>>31) >> 32 * uint64(n) >> 32)
}

// around returns a random number from -n to n, with a triangular distribution.
func (w *wearers) around(n int32) int32 {
	up, down := w.below(n+1), w.below(n+1)
	return up - down
}

// fill sets samples to the next readings.
func (w *wearers) fill(samples []sample) {
	for i := range samples {
		w.measure(&w.all[w.next], &samples[i])
		if w.next++; w.next == len(w.all) {
			w.next = 0
			w.minuteMs += minuteMs
		}
	}
}

func (w *wearers) measure(one *wearer, s *sample) {
	one.n++
	if one.n%restPhase == 0 {
		one.aim = one.rest
		if w.below(3) == 0 {
			one.aim += w.below(200)
		}
	}
	one.rate += (one.aim - one.rate) / 4
	one.noise = one.noise/2 + w.around(24)
	ward := one.ward
	if one.n/wardMoves%2 == 1 {
		ward ^= 1
	}
	*s = sample{device: one.device, gateway: ward, timeMs: w.minuteMs + int64(one.phaseMs+w.below(jitterMs))}
	rate := min(one.rate+one.noise, 999)
	s.set(vitals.HeartRate, rate)
	s.set(vitals.SpO2, min(one.saturation+w.around(14), 999))
	if w.signs > 2 {
		s.set(vitals.Systolic, one.high+one.noise/2+w.around(50))
		s.set(vitals.Diastolic, one.high*5/8-50+w.around(35))
		s.set(vitals.RestingHeartRate, one.rest+w.around(8))
	}
	if w.signs > len(tableSigns) {
		s.set(vitals.RespiratoryRate, (150+w.around(30))/10*10)
		s.set(vitals.BodyTemperature, 367+w.around(3))
		s.set(vitals.BodyWeight, one.rest+w.around(4))
		s.set(vitals.GlucoseMass, (1050+w.around(100))/10*10)
		s.set(vitals.PulseRate, min(rate+w.around(5), 999))
	}
}

// An encoder appends a batch to dst, in the language of a server. It is used by one sender.
type encoder func(dst []byte, samples []sample) []byte

// appendName appends a prefix and the last digits of n.
func appendName(dst []byte, prefix string, n int32, digits int) []byte {
	dst = append(dst, prefix...)
	for range digits {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

func appendDevice(dst []byte, n int32) []byte  { return appendName(dst, "wearable-", n, 6) }
func appendGateway(dst []byte, n int32) []byte { return appendName(dst, "ward-", n, 5) }

// jsonArray returns what writes Pulsegate's batches.
func jsonArray() encoder {
	signs := vitals.NewSigns()
	return func(dst []byte, samples []sample) []byte {
		between := byte('[')
		for i := range samples {
			s := &samples[i]
			dst = appendDevice(append(append(dst, between), `{"device":"`...), s.device)
			dst = vitals.AppendTime(append(dst, `","time":"`...), s.timeMs)
			dst = signs.AppendMembers(append(dst, '"'), &s.values)
			dst = append(appendGateway(append(dst, `,"gateway":"`...), s.gateway), `"}`...)
			between = ','
		}
		return append(dst, ']')
	}
}

// influxLines returns what writes InfluxDB's line protocol, a line for each reading.
func influxLines() encoder {
	signs := vitals.NewSigns()
	return func(dst []byte, samples []sample) []byte {
		for i := range samples {
			s := &samples[i]
			dst = appendDevice(append(dst, "vitals,device="...), s.device)
			dst = appendGateway(append(dst, ",gateway="...), s.gateway)
			between := byte(' ')
			for sign, v := range s.values.All() {
				d := signs.Of(sign)
				dst = d.Append(append(append(append(dst, between), d.Field...), '='), v)
				between = ','
			}
			dst = append(strconv.AppendInt(append(dst, ' '), s.timeMs, 10), '\n')
		}
		return dst
	}
}

// createReadings creates the table of csvRows.
const createReadings = `CREATE TABLE readings (
	device text NOT NULL, time bigint NOT NULL, received bigint NOT NULL,
	systolic smallint, diastolic smallint, spo2 smallint, heart_rate smallint, resting_heart_rate smallint,
	gateway text, PRIMARY KEY (device, time))`

// tableSigns are the signs that have a column in the tables of other databases.
var tableSigns = [...]vitals.Sign{vitals.Systolic, vitals.Diastolic, vitals.SpO2, vitals.HeartRate,
	vitals.RestingHeartRate}

// csvRows returns what writes the input of COPY: device, time, received, the first signs in
// hundredths, gateway, and rest.
func csvRows(rest string) encoder {
	return func(dst []byte, samples []sample) []byte {
		received := time.Now().UnixMilli()
		for i := range samples {
			s := &samples[i]
			dst = append(appendDevice(dst, s.device), ',')
			dst = append(strconv.AppendInt(dst, s.timeMs, 10), ',')
			dst = append(strconv.AppendInt(dst, received, 10), ',')
			for _, sign := range tableSigns {
				if v, ok := s.values.Get(sign); ok {
					dst = strconv.AppendInt(dst, int64(v), 10)
				}
				dst = append(dst, ',')
			}
			dst = append(append(appendGateway(dst, s.gateway), rest...), '\n')
		}
		return dst
	}
}
