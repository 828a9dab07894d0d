package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Behaviour is a behaviour of real gateways.
type Behaviour uint8

// The behaviours. Batching, Buffering and Gzip are properties of a gateway, Skew is one
// of a device, the others apply to single requests.
const (
	Batching  Behaviour = iota // sends several readings in one request
	Buffering                  // is offline at times and then sends hours of readings at once
	Gzip                       // compresses its requests
	Skew                       // the device's clock is wrong and drifts
	Drop                       // the answer is lost and the request is retried
	Forward                    // a second gateway sends the same readings
	Reorder                    // readings are sent out of order
	Malformed                  // the body is not a valid reading

	numBehaviours
)

var behaviourNames = [numBehaviours]string{
	Batching: "batch", Buffering: "buffer", Gzip: "gzip", Skew: "skew",
	Drop: "drop", Forward: "forward", Reorder: "reorder", Malformed: "malformed",
}

// String returns the name of the behaviour in a mix.
func (b Behaviour) String() string { return behaviourNames[b] }

// A Mix has the share of each behaviour, in parts per million of the gateways, the
// devices or the requests.
type Mix [numBehaviours]int64

// whole is a share of 100 %.
const whole = 1_000_000

// ParseMix returns a predefined mix with some of its shares replaced. "clean" has only
// valid requests, each sent once. shares maps names of behaviours to numbers from 0 to
// 1.
func ParseMix(name string, shares map[string]string) (Mix, error) {
	var m Mix
	switch name {
	case "clean":
	case "real":
		// Our own estimate: enough of each behaviour to matter in a run of one minute.
		m = Mix{Batching: 200_000, Buffering: 100_000, Gzip: 200_000, Skew: 100_000,
			Drop: 10_000, Forward: 50_000, Reorder: 30_000, Malformed: 5_000}
	default:
		return m, fmt.Errorf("mix %q is not one of clean, real", name)
	}
	for name, text := range shares {
		b := slices.Index(behaviourNames[:], name)
		if b < 0 {
			return m, fmt.Errorf("%q is not one of %s", name, strings.Join(behaviourNames[:], ", "))
		}
		share, err := strconv.ParseFloat(text, 64)
		if err != nil || !(share >= 0 && share <= 1) {
			return m, fmt.Errorf("share of %s is not a number from 0 to 1", name)
		}
		m[b] = int64(share*whole + 0.5)
	}
	return m, nil
}

// String returns the shares that are not 0, such as "drop=0.01,gzip=0.2".
func (m Mix) String() string {
	var parts []string
	for b, share := range m {
		if share > 0 {
			parts = append(parts, Behaviour(b).String()+"="+strconv.FormatFloat(float64(share)/whole, 'g', -1, 64))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
