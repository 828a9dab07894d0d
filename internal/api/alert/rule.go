package alert

import (
	"maps"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Rule says when a device has an alert. Its condition is either about the values of a sign, or about
// silence.
type Rule struct {
	Name      string
	Devices   string // the rule is for devices whose names begin with this
	Labels    map[string]string
	Field     string // JSON name of Sign; "" with Silent
	Condition string // in words

	// Silent makes the condition one about silence: it holds if the newest reading of a device is at
	// least this old, by its time and the server's clock. 0 means that the condition is about Sign.
	Silent time.Duration

	// Sign is the sign, and Met the range of the values that meet the condition.
	Sign vitals.Sign
	Met  vitals.Range

	// For is how long the condition must be met, from 0 to MaxFor, and Values in how many young values,
	// from 1 to MaxValues.
	For    time.Duration
	Values int

	// MaxAge is the age of a value, from its time to its arrival, up to which it is young. In a rule
	// about silence it is the age of the newest reading from which on a device counts as gone and has no
	// alert; 0 means never.
	MaxAge time.Duration
}

// Bounds of a [Rule].
const (
	MaxFor    = 24 * time.Hour
	MaxValues = 1000
)

// Lasts is how long the values of a sign say something about the ones that follow: daily measurements
// are less than this apart. An alert about values ends if there is no newer value for so long, and a
// value that is later than the one before by this much begins a new run.
const Lasts = 36 * time.Hour

// sameLabels reports whether two rules give the same labels to the alerts of a device.
func (r *Rule) sameLabels(o *Rule) bool {
	return r.Name == o.Name && (r.Silent != 0) == (o.Silent != 0) && r.Sign == o.Sign && maps.Equal(r.Labels, o.Labels)
}

// appliesTo reports whether the rule is for a device.
func (r *Rule) appliesTo(device string) bool { return strings.HasPrefix(device, r.Devices) }

// A run is the newest values of a device's sign that meet a rule's condition, back to the last value
// that does not or to a pause of Lasts. A rule about silence uses applies, sinceUnixMs, known and reported only.
//
// Values count if they are young. The condition of the rule is met, and its alert is active, if at least
// Rule.Values of them are in the run, and the time from the first to the last one is at least Rule.For.
// So whether an alert is active depends on what is stored, and not on the order in which it arrived:
// TestModel compares it with that definition.
type run struct {
	newestUnixMs int64  // of the sign's newest value; with known
	firstUnixMs  int64  // of the first young value of the run; with young > 0
	sinceUnixMs  int64  // of the value with which the alert became active, or of the silence
	young        uint16 // young values in the run, at most Rule.Values
	applies      bool   // the rule is for the device
	known        bool   // the device has a value; of a rule about silence: the store was asked since the device is silent
	met          bool   // the newest value meets the condition
	active       bool
	reported     bool // as active
	cut          bool // it was read, but not all of its values
}

// take adds a value that is newer than all that the run has seen, and reports whether that ends an active run; it may
// begin another one. met says whether the value meets the condition.
func (u *run) take(r *Rule, met bool, unixMs, receivedUnixMs int64) (ended bool) {
	if !met || unixMs-u.newestUnixMs >= Lasts.Milliseconds() {
		ended = u.active
		u.young, u.active = 0, false
	}
	u.known, u.met, u.newestUnixMs = true, met, unixMs
	if !met || receivedUnixMs-unixMs > r.MaxAge.Milliseconds() {
		return ended
	}
	if u.young == 0 {
		u.firstUnixMs = unixMs
	}
	u.young = uint16(min(int(u.young)+1, r.Values))
	if !u.active && int(u.young) >= r.Values && unixMs-u.firstUnixMs >= r.For.Milliseconds() {
		u.active, u.sinceUnixMs = true, unixMs
	}
	return ended
}

// ignores reports whether a value that is not newer than all others has no effect on the run.
func (u *run) ignores(r *Rule, met bool, unixMs, receivedUnixMs int64) bool {
	switch inside := u.young > 0 && unixMs >= u.firstUnixMs; {
	case !u.met:
		return true // a value after it does not meet the condition
	case met: // one before the run may end a pause
		return u.active && unixMs > u.sinceUnixMs || inside && receivedUnixMs-unixMs > r.MaxAge.Milliseconds()
	default:
		return !inside && !u.cut // the alert may have begun before what was read
	}
}

// isOver reports whether the newest value is so old that it says nothing any more.
func (u *run) isOver(nowUnixMs int64) bool { return nowUnixMs-u.newestUnixMs >= Lasts.Milliseconds() }
