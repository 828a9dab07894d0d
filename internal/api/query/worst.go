package query

import (
	"context"
	"encoding/json"
	"math"
	"math/bits"
	"sort"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An ActiveAlert is the first active alert of a device.
type ActiveAlert struct {
	Name        string // of the rule; "" means no alert
	Rule        int    // place of the rule in its file, from 0, below 64
	Sign        vitals.Sign
	Silence     bool // the alert is not about a sign
	SinceUnixMs int64
}

// A class is the main reason for a device's place in the order, worst first.
type class uint8

const (
	alertClass   class = iota + 1 // an active alert about a sign: by the place of the rule, then the newest first
	flagClass                     // a flagged value that is fresh: see reasonOf
	oldFlagClass                  // older flagged values: the newest first
	silenceClass                  // active alerts about silence only: as alertClass
	staleClass                    // no fresh reading: the one silent for the longest time first
	otherClass
)

// classNames has the names in answers. It is never modified.
var classNames = [...]string{alertClass: "alert", flagClass: "flag", oldFlagClass: "old_flag",
	silenceClass: "silence_alert", staleClass: "stale"}

// Bits of a rank: the class, and below it what orders the devices of the class.
const (
	classBits = 58
	timeBits  = 52 // more than a time has that is accepted
	shareBits = 50
	flagBits  = 7
)

// A reason is the rank of a device and its cause.
type reason struct {
	rank  int64
	class class
	sign  vitals.Sign // with alertClass, flagClass and oldFlagClass
	alert string      // with alertClass and silenceClass
}

// reasonOf returns the reason for a device's place. Among devices with flagged values that are fresh, those in a
// critical range come first. Then they are ordered by how far the farthest value is beyond its usual range, as a
// share of the way to the accepted bound, and by the number of flags. The share has no clinical weight. Values from
// before the present assignment do not count.
func (f *fleet) reasonOf(d *storage.Device, a *ActiveAlert, present *storage.Assignment) (r reason) {
	defer func() { r.rank |= int64(r.class) << classBits }()
	byRule := int64(a.Rule)<<timeBits | newestFirst(a.SinceUnixMs)
	if a.Name != "" && !a.Silence {
		return reason{rank: byRule, class: alertClass, sign: a.Sign, alert: a.Name}
	}
	var own vitals.FlagLimits
	limits := f.flags.of(&d.Name, present.Subject, &own)
	var all latestFlags
	all.add(&d.Latest, knownSigns(&d.Latest), limits)
	var worst uint64 // of the fresh flagged values
	n, oldUnixMs := 0, int64(-1)
	for s, flags := range all {
		sign, latest := vitals.Sign(s), &d.Latest[s]
		if flags.IsZero() || latest.TimeUnixMs < present.FromUnixMs {
			continue
		}
		if latest.TimeUnixMs < f.staleUnixMs {
			if r.class != flagClass && latest.TimeUnixMs > oldUnixMs {
				oldUnixMs = latest.TimeUnixMs
				r = reason{rank: newestFirst(oldUnixMs), class: oldFlagClass, sign: sign}
			}
			continue
		}
		n += flags.Len()
		if weight := weightOf(d, sign, limits, &f.h.opt.Limits.Accepted); r.class != flagClass || weight > worst {
			worst, r = weight, reason{class: flagClass, sign: sign}
		}
	}
	switch {
	case r.class == flagClass:
		r.rank = 1<<classBits - 1 - int64(worst<<flagBits) - int64(n)
	case r.class != 0:
	case a.Name != "":
		r = reason{rank: byRule, class: silenceClass, alert: a.Name}
	case f.isStale(d):
		r = reason{rank: max(d.NewestUnixMs, 0), class: staleClass}
	default:
		r.class = otherClass
	}
	return r
}

// newestFirst returns the part of a rank that puts later times first.
func newestFirst(unixMs int64) int64 { return 1<<timeBits - 1 - max(unixMs, 0) }

// weightOf returns how far a latest value is beyond its usual range, or the difference of its pair, which has flags
// too. The weight has shareBits bits, and one above them that is set if the value is critical.
func weightOf(
	d *storage.Device, s vitals.Sign, limits *vitals.FlagLimits, accepted *[vitals.MaxSigns]vitals.Range,
) (w uint64) {
	v := d.Latest[s].Value
	w = shareBeyond(v, limits.Usual[s], accepted[s])
	for _, p := range vitals.Pairs {
		if low := &d.Latest[p.Low]; p.High == s && low.Known && low.TimeUnixMs == d.Latest[s].TimeUnixMs {
			w = max(w, shareBeyond(v-min(v, low.Value), p.Usual, vitals.Range{Max: accepted[p.High].Max - accepted[p.Low].Min}))
		}
	}
	if critical := limits.Critical[s]; critical != nil && critical.Contains(v) {
		w |= 1 << shareBits
	}
	return w
}

// shareBeyond returns how far v is beyond a usual range, as a share of the way to the accepted bound: at most
// 1<<shareBits - 1, which is precise enough to tell apart the shares of any values with three decimals.
func shareBeyond(v vitals.Value, usual, accepted vitals.Range) uint64 {
	beyond, way := int64(usual.Min)-int64(v), int64(usual.Min)-int64(accepted.Min)
	if v > usual.Max {
		beyond, way = int64(v)-int64(usual.Max), int64(accepted.Max)-int64(usual.Max)
	}
	switch {
	case beyond <= 0:
		return 0
	case beyond >= way:
		return 1<<shareBits - 1
	}
	hi, lo := bits.Mul64(uint64(beyond), 1<<shareBits-1)
	share, _ := bits.Div64(hi, lo, uint64(way))
	return share
}

// appendTo appends the reason to a device in JSON.
func (r reason) appendTo(dst []byte, signs *vitals.Signs) []byte {
	if r.class == otherClass {
		return dst
	}
	text, err := json.Marshal(struct {
		Class string `json:"class"`
		Sign  string `json:"sign,omitempty"`
		Alert string `json:"alert,omitempty"`
	}{classNames[r.class], r.field(signs), r.alert})
	if err != nil {
		panic(err) // no value of the type has this error
	}
	return append(append(append(dst[:len(dst)-1], `,"worst":`...), text...), '}')
}

// field returns the name of the sign, if the reason has one.
func (r reason) field(signs *vitals.Signs) string {
	if r.class == silenceClass || r.class == staleClass {
		return ""
	}
	return signs.Field(r.sign)
}

// reasonsOf sets f.reasons to the reason of each device, if the order needs it. Values and parts of alerts from before
// the present assignments of the devices do not count.
func (f *fleet) reasonsOf(ctx context.Context, some []storage.Device) error {
	if f.q.sort != byWorst {
		return nil
	}
	alertsOf := f.h.opt.Alerts
	if alertsOf == nil {
		alertsOf = func([]storage.Device, int64, []ActiveAlert) {}
	}
	alerts := make([]ActiveAlert, len(some))
	alertsOf(some, 0, alerts)
	if err := f.findRanged(ctx); err != nil { // a page of an order was not walked
		return err
	}
	f.reasons = f.reasons[:0]
	var at []int // the devices whose assignments may matter
	var names []vitals.Name
	for i := range some {
		now := storage.Assignment{Subject: storage.SubjectAt(f.ranged[some[i].Name], f.nowUnixMs)}
		r := f.reasonOf(&some[i], &alerts[i], &now)
		if f.reasons = append(f.reasons, r); r.class < staleClass {
			at, names = append(at, i), append(names, some[i].Name)
		}
	}
	spans, err := f.h.opt.SpansAt(ctx, names, func(int) int64 { return f.nowUnixMs })
	for n, i := range at {
		if span := &spans[n]; err == nil && span.FromUnixMs > 0 {
			alerts[i] = ActiveAlert{}
			alertsOf(some[i:i+1], span.FromUnixMs, alerts[i:i+1])
			f.reasons[i] = f.reasonOf(&some[i], &alerts[i], span)
		}
	}
	return err
}

const (
	orderFor  = time.Second // how long an order is used
	maxPlaces = 1 << 16     // of an order: at most 10 MiB, and as much while the next one is computed
)

// An order has the devices, the worst first, for all requests within orderFor. It has names and no values, so what is
// erased is not shown. If there are more than maxPlaces devices, it has only the first ones.
type order struct {
	began, ended time.Time
	places       []place
	counts       stateCounts                          // of all devices
	ranged       map[vitals.Name][]storage.Assignment // as of a fleet
	err          error                                // why there is no order; those who have waited share it
}

// everything selects the worst of all devices; of these, each client sees those that its token covers.
func everything(named *roster.Roster) *deviceSelection {
	return &deviceSelection{access: &gate.Access{Principal: token.Unlimited(token.Read)}, sort: byWorst, roster: named,
		after: deviceKey{rank: math.MinInt64}, limit: maxPlaces - 1}
}

// currentOrder returns the order, computed at most orderFor ago or while the caller waited. Concurrent callers wait
// for the one that computes it.
func (h *Handler) currentOrder(ctx context.Context) (*order, error) {
	asked := h.opt.Now()
	select {
	case h.ordering <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-h.ordering }()
	if o := h.order; o != nil && (o.err == nil && asked.Sub(o.began) < orderFor || o.ended.After(asked)) {
		return o, o.err
	}
	began := h.opt.Now()
	f := h.fleetOf(everything(h.opt.Roster.Current()), began.UnixMilli())
	err := f.walk(ctx)
	h.order = &order{began, h.opt.Now(), f.found, f.counts, f.ranged, err}
	return h.order, err
}

// addOrder adds the selected devices of the current order. It reports false if the order may lack some of them.
func (f *fleet) addOrder(ctx context.Context) (done bool, err error) {
	o, err := f.h.currentOrder(ctx)
	if err != nil {
		return false, err
	}
	f.ranged = o.ranged
	isWhole, all := len(o.places) == o.counts.all, f.q.isWhole()
	if !isWhole && !all {
		return false, nil
	}
	places, counts := o.places, f.q.counts && !all // of all that the client may see
	if !counts {
		places = places[sort.Search(len(places), func(i int) bool { return places[i].compare(&f.q.after) > 0 }):]
	}
	for i := 0; i < len(places) && (counts || len(f.found) <= f.q.limit); i++ {
		p := &places[i]
		if !f.q.selects(&p.name) {
			continue
		}
		f.counts.add(p.state)
		if len(f.found) <= f.q.limit && (f.q.state == 0 || p.state&f.q.state != 0) && p.compare(&f.q.after) > 0 {
			f.found = append(f.found, *p)
		}
	}
	if all {
		f.counts = o.counts
	}
	if !isWhole && len(f.found) <= f.q.limit {
		f.found, f.counts = nil, stateCounts{}
		return false, nil
	}
	return true, nil
}
