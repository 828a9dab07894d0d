package ingest

import (
	"cmp"
	"errors"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// # What a writer can learn
//
// The answer to a reading whose device and time are already stored shows whether its values
// are the stored ones. A client with the read right can read them anyway. A client with only
// the write right could find out a value by sending every possible one. Two rules make that
// slow:
//
//   - A request may state only one value for each device, time and sign. Readings with
//     another value are rejected without being compared. See refuseContradictions.
//   - Readings that contradict another gateway's record are counted. Once the budget for
//     these is exhausted, readings that would have to be compared with such records are
//     rejected instead. See authorization.Take.
//
// A gateway may compare readings with its own records without limit. A client that relays names the gateways itself,
// so for it all records are those of another one: see storage.Entry.Relayed. Its answers do not say whether
// a reading was stored before, or which sign contradicts.

// errStated is the reason for rejecting a reading that states a second value. Its text is sent
// to the client.
var errStated = errors.New("a reading before it in the request states another value")

// refuseContradictions rejects the decoded readings that state another value for a device,
// time and sign than an earlier reading of the request.
func (b *batch) refuseContradictions(signs *vitals.Signs) {
	readings := b.Readings
	if !b.orderReadings() {
		return
	}
	var stated vitals.Values // of the previous readings with the same device and time
	for n, i := range b.order {
		r := &readings[i]
		if n == 0 || compareKeys(&readings[b.order[n-1]], r) != 0 {
			stated = vitals.Values{}
		}
		if sign, ok := stateOnce(&stated, &r.Values); !ok {
			b.Refused = append(b.Refused, vitals.FieldError{Index: int(b.Index[i]), Field: signs.Field(sign), Err: errStated})
			b.Index[i] = -1
		}
	}
	b.keep(func(i int) bool { return b.Index[i] >= 0 })
}

// orderReadings fills b.order with the indexes of the readings, sorted by time, device and
// index. It returns false, and fills nothing, if the readings are already strictly ascending by
// time and device, as in most batches.
func (b *batch) orderReadings() bool {
	readings := b.Readings
	ascending := true
	for i := 1; i < len(readings) && ascending; i++ {
		ascending = compareKeys(&readings[i-1], &readings[i]) < 0
	}
	if ascending {
		return false
	}
	b.order = slices.Grow(b.order[:0], len(readings))[:len(readings)]
	for i := range b.order {
		b.order[i] = int32(i)
	}
	slices.SortFunc(b.order, func(x, y int32) int {
		return cmp.Or(compareKeys(&readings[x], &readings[y]), cmp.Compare(x, y))
	})
	return true
}

// compareKeys compares the times and devices of two readings.
func compareKeys(a, b *vitals.Reading) int {
	if a.TimeUnixMs != b.TimeUnixMs {
		return cmp.Compare(a.TimeUnixMs, b.TimeUnixMs)
	}
	return a.Device.Compare(&b.Device)
}

// stateOnce adds values to stated, or returns a sign of which stated has another value.
func stateOnce(stated, values *vitals.Values) (other vitals.Sign, ok bool) {
	merged := *stated
	for s, v := range values.All() {
		if before, has := stated.Get(s); has && before != v {
			return s, false
		}
		merged.Set(s, v)
	}
	*stated = merged
	return 0, true
}
