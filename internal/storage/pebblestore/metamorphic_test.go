package pebblestore_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

var (
	metamorphicRounds = flag.Int("metamorphic.rounds", 1, "rounds of TestMetamorphic")
	metamorphicSeed   = flag.Uint64("metamorphic.seed", 0, "seed of the first round of TestMetamorphic; 0: a new one")
)

// TestMetamorphic runs Append, Erase, Expire, Backup and reads concurrently, while the store
// is closed or loses power, and is opened again with other options. It compares all results
// with a model. The invariants are:
//
//   - A group takes effect atomically: a reader sees all of it or nothing. What one reader
//     has seen, every later call sees. The outcomes are those at the time of the effect.
//   - An erasure removes all readings of its device atomically, and returns their number. A
//     reading that is acknowledged later stays.
//   - Expire removes expired readings atomically too, since there are only a few devices, and
//     returns the numbers of readings and devices. No expired readings are appended
//     during the call, because the contract does not define what happens to them. The numbers are
//     not compared if an erasure ran concurrently, which may have removed some first.
//   - A backup holds what was stored at one time during the call of Backup. The restored
//     store holds exactly that.
//   - Close, and an Open with other options, change nothing. A call that returned ErrClosed
//     changed nothing, except an erasure that returned ErrUnfinished: the next Open finishes
//     and reports it.
//   - A loss of power loses nothing acknowledged. A call that had not returned has taken
//     effect completely or not at all.
//   - From the return of an erasure on, no file contains what it removed: not after a
//     restart, not in a backup, not after a loss of power.
//   - An erasure that could not be recorded is reported when it is finished.
//   - Check finds no problem whenever the store is closed.
//
// A round has a fixed number of operations, a third of them with -short.
// -metamorphic.rounds runs more rounds, with consecutive seeds; -metamorphic.seed repeats the
// operations of a round, except those that depend on the concurrent ones.
//
// Seen to fail with the mutants show-partial-group and expire-new-readings.
func TestMetamorphic(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*metamorphicSeed, uint64(rand.Uint32())+1)
	for round := range *metamorphicRounds {
		playMetamorphic(t, seed+uint64(round))
		if t.Failed() {
			t.Fatalf("again: -metamorphic.seed=%d", seed+uint64(round))
		}
	}
}

// The number of operations of a round, by lane; those of the last lane are openings.
const openLane = lanes

var metamorphicGoals = [lanes + 1]int{
	writerLane: 600, eraserLane: 24, expirerLane: 40, backupLane: 10,
	firstReader: 500, firstReader + 1: 500, firstReader + 2: 500, openLane: 12,
}

// A metamorphosis is one round.
type metamorphosis struct {
	t     *testing.T
	seed  uint64
	life  *rand.Rand // of the lane that reopens
	goals [lanes + 1]int

	// worlds is locked to access all fields below.
	*worlds
	changed sync.Cond
	done    [lanes + 1]int // operations, by lane
	failed  error          // the error that ends the round
	counts  map[string]int
	disk    *vfs.MemFS
	store   *pebblestore.Store
	halted  bool // the store is being closed: no call may begin

	// After a loss of power: the possible histories of the remaining data, and the erasure that
	// was running. The results of calls that were running are compared with the other
	// histories.
	lost        map[world]struct{}
	lostErasure *call

	// held is an erasure that Close has interrupted. The next Open finishes it.
	held bool
	// unrecorded is an erasure that could not be recorded. reported has those that were finished by
	// another call.
	unrecorded *storage.Erasure
	reported   []storage.Erasure

	clock    int64
	recent   []*vitals.Reading
	received int64                                    // when the last group arrived
	gateways [len(metamorphicDevices)]vitals.Name     // of the next readings of a device
	used     [len(metamorphicDevices)]map[string]bool // of readings that may be in files, by device
	gone     []string                                 // gateways that must be in no file
}

// Names that are prefixes of others, but not parts of a gateway's name.
var metamorphicDevices = [...]string{"Xq7Zr1Wk9Vb3", "Xq7Zr1Wk9Vb3-", "Xq7Zr1Wk9Vb3-1", "Xq7Zr1Wk9Vb3-10", "b"}

func playMetamorphic(t *testing.T, seed uint64) {
	m := &metamorphosis{
		t: t, seed: seed, life: rand.New(rand.NewPCG(seed, openLane)), goals: metamorphicGoals, worlds: newWorlds(),
		disk: vfs.NewCrashableMem(), counts: map[string]int{}, clock: 1_000_000,
	}
	m.changed.L = m.worlds
	if testing.Short() {
		for lane := range m.goals {
			m.goals[lane] /= 3
		}
	}
	for i := range m.used {
		m.used[i] = map[string]bool{}
		m.gateways[i] = randomGateway(m.life)
	}
	m.open()
	var running sync.WaitGroup
	for lane, run := range map[int]func(*rand.Rand){
		writerLane: m.write, eraserLane: m.erase, expirerLane: m.expire, backupLane: m.backUp,
		firstReader: m.reader(firstReader), firstReader + 1: m.reader(firstReader + 1),
		firstReader + 2: m.reader(firstReader + 2),
		openLane:        m.reopen,
	} {
		running.Go(func() { run(rand.New(rand.NewPCG(seed, uint64(lane)))) })
	}
	running.Wait()
	if m.failed == nil {
		m.Lock()
		m.turn(false)
		m.Unlock()
	}
	_ = m.store.Close()
	if m.failed != nil {
		t.Errorf("seed %d: %v", seed, m.failed)
	}
	t.Logf("seed %d: %v; at most %d histories were possible", seed, m.counts, m.most)
}

// fail ends the round.
func (m *metamorphosis) fail(err error) {
	if m.failed == nil && err != nil {
		m.failed = err
	}
	m.changed.Broadcast()
}

// maxWorlds is the number of histories above which no call begins.
const maxWorlds = 500

// begin waits until a lane may continue, and begins the call returned by next. It returns nil
// if the round has ended.
func (m *metamorphosis) begin(lane int, next func() *call) (*call, *pebblestore.Store) {
	m.Lock()
	defer m.Unlock()
	for m.failed == nil && m.done[lane] < m.goals[lane] && (m.halted || m.calls[lane] != nil || m.ahead(lane) ||
		m.crowded(lane)) {
		m.changed.Wait()
	}
	if m.failed != nil || m.done[lane] == m.goals[lane] {
		return nil, nil
	}
	c := next()
	m.worlds.begin(lane, c)
	return c, m.store
}

// crowded reports whether a lane must wait for another one: if too many histories are
// possible, and an erasure for a bounded Expire, which counts readings that the erasure
// would remove.
func (m *metamorphosis) crowded(lane int) bool {
	x := m.calls[expirerLane]
	return lane < backupLane && len(m.possible) > maxWorlds || lane == eraserLane && x != nil && x.bounded
}

// ahead reports whether a lane is ahead of another one by more than a tenth of its operations.
// So all lanes run concurrently with all others.
func (m *metamorphosis) ahead(lane int) bool {
	part := func(lane int) float64 { return float64(m.done[lane]) / float64(m.goals[lane]) }
	for other := range m.done {
		if m.done[other] < m.goals[other] && part(lane) > part(other)+0.1 {
			return true
		}
	}
	return false
}

// end records the result of a call. It calls then if the result is possible.
func (m *metamorphosis) end(lane int, outcome string, ok func(answer string) bool, then func()) {
	m.Lock()
	defer m.Unlock()
	m.counts[outcome]++
	m.done[lane]++
	err := m.worlds.end(lane, ok)
	if err == nil && m.lost == nil && then != nil {
		then()
	}
	m.fail(err)
}

// ended records that a call has returned an error. It fails the round unless the error is one
// of allowed.
func (m *metamorphosis) ended(lane int, name string, err error, notDone func(string) bool, allowed ...error) {
	if slices.ContainsFunc(allowed, func(a error) bool { return errors.Is(err, a) }) {
		m.end(lane, strings.Fields(name)[0]+" refused", notDone, nil)
		return
	}
	m.Lock()
	defer m.Unlock()
	m.fail(fmt.Errorf("%s returns %w", name, err))
}

// write appends groups.
func (m *metamorphosis) write(rng *rand.Rand) {
	for {
		var group []*storage.Entry
		c, s := m.begin(writerLane, func() *call {
			group = m.group(rng)
			return appendCall(group)
		})
		if c == nil {
			return
		}
		if err := s.Append(group); err != nil {
			m.ended(writerLane, c.name, err, is(""), storage.ErrClosed)
			continue
		}
		answer := outcomes(group)
		m.count(group)
		m.end(writerLane, "group", is(answer), func() {
			for _, e := range group {
				for i, device := range metamorphicDevices {
					if e.Reading.Device.String() == device && !e.Reading.Gateway.IsZero() {
						m.used[i][e.Reading.Gateway.String()] = true
					}
				}
			}
		})
	}
}

func (m *metamorphosis) count(group []*storage.Entry) {
	m.Lock()
	defer m.Unlock()
	for _, e := range group {
		m.counts[storetest.OutcomeName(e.Outcome)]++
	}
}

// group draws a group of new readings, late ones, and some with the device and time of
// others.
func (m *metamorphosis) group(rng *rand.Rand) (group []*storage.Entry) {
	notBefore := int64(0)
	if c := m.calls[expirerLane]; c != nil {
		notBefore = c.oldest
	}
	size, late := 1+rng.IntN(24), rng.IntN(2) == 0
	if rng.IntN(10) == 0 {
		size = 100
	}
	m.received += rng.Int64N(3)
	for range size {
		i := rng.IntN(len(metamorphicDevices))
		r := &vitals.Reading{Device: mustName(metamorphicDevices[i])}
		m.clock++
		switch n := rng.IntN(20); {
		case n < 12 || !late:
			r.TimeUnixMs = m.clock
		case n < 17 || len(m.recent) == 0:
			r.TimeUnixMs = m.clock - rng.Int64N(400)
		default:
			other := m.recent[rng.IntN(len(m.recent))]
			r.Device, r.TimeUnixMs = other.Device, other.TimeUnixMs
			i = slices.Index(metamorphicDevices[:], other.Device.String())
		}
		r.TimeUnixMs = max(r.TimeUnixMs, notBefore)
		if rng.IntN(4) > 0 {
			r.Gateway = m.gateways[i]
		}
		if rng.IntN(2) == 0 {
			r.UTCOffset = vitals.MakeUTCOffset(60 * rng.IntN(3))
		}
		present := 1 + rng.IntN(1<<vitals.NumBuiltIn-1)
		for sign := range vitals.Sign(vitals.NumBuiltIn) {
			if present&(1<<sign) == 0 {
				continue
			}
			v := vitals.Value(100 + sign)
			if rng.IntN(16) == 0 {
				v++
			}
			r.Values.Set(sign, v)
		}
		group = append(group, &storage.Entry{Reading: r, ReceivedUnixMs: m.received})
		m.recent = append(m.recent, r)
	}
	m.recent = m.recent[max(0, len(m.recent)-64):]
	return group
}

// appendCall returns the call that appends a group.
func appendCall(group []*storage.Entry) *call {
	c := &call{name: fmt.Sprintf("Append of %d readings", len(group)), oldest: math.MaxInt64, gateways: map[string]bool{}}
	received := make([]int64, len(group)) // the store may raise those of the entries
	for i, e := range group {
		c.oldest = min(c.oldest, e.Reading.TimeUnixMs)
		c.gateways[e.Reading.Gateway.String()] = true
		received[i] = e.ReceivedUnixMs
	}
	c.run = func(m *storetest.Memory) string {
		settled := make([]*storage.Entry, len(group)) // the store settles the others
		for i, e := range group {
			settled[i] = &storage.Entry{Reading: e.Reading, ReceivedUnixMs: received[i]}
		}
		if err := m.Append(settled); err != nil {
			return err.Error()
		}
		return outcomes(settled)
	}
	return c
}

// outcomes returns the outcomes of the readings of a group.
func outcomes(group []*storage.Entry) string {
	var b strings.Builder
	for _, e := range group {
		b.WriteString(storetest.OutcomeName(e.Outcome))
		if e.Outcome == storage.Conflict {
			fmt.Fprintf(&b, "(%s)", e.Sign)
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// erase erases devices. Some erasures cannot be recorded.
func (m *metamorphosis) erase(rng *rand.Rand) {
	for {
		device, records := 0, rng.IntN(5) > 0
		var before *storage.Erasure
		c, s := m.begin(eraserLane, func() *call {
			device = rng.IntN(len(metamorphicDevices))
			c := eraseCall(mustName(metamorphicDevices[device]))
			c.gateways = maps.Clone(m.used[device])
			if w := m.calls[writerLane]; w != nil { // its group may take effect after the erasure
				maps.DeleteFunc(c.gateways, func(g string, _ bool) bool { return w.gateways[g] })
			}
			m.gateways[device] = randomGateway(rng)
			if x := m.calls[expirerLane]; x != nil {
				x.duringErasure = true
			}
			before, m.reported = m.unrecorded, nil
			c.first = before == nil
			return c
		})
		if c == nil {
			return
		}
		e, err := s.EraseRecorded(c.device, func(storage.Erasure) error {
			if records {
				return nil
			}
			return errRecord
		})
		erased := is(fmt.Sprintf("erased %d", e.Readings))
		if before != nil && before.Device == c.device && e.Readings == before.Readings {
			erased = func(answer string) bool { // the earlier one was finished, or this one done
				return answer == fmt.Sprintf("erased %d", e.Readings) || answer == "erased 0"
			}
		}
		purged := func() {
			if before != nil && before.Device != c.device && !slices.Contains(m.reported, *before) {
				m.fail(fmt.Errorf("%s: %+v was finished but not reported", c.name, *before))
			}
			if m.unrecorded = nil; errors.Is(err, errRecord) {
				m.unrecorded = &storage.Erasure{Device: c.device, Readings: e.Readings}
			}
			m.purged(device, c)
		}
		switch {
		case err == nil:
			m.end(eraserLane, "erased", erased, purged)
		case errors.Is(err, storage.ErrNotFound):
			m.end(eraserLane, "not there to erase", is("erased 0"), purged)
		case errors.Is(err, errRecord) && errors.Is(err, storage.ErrUnfinished):
			m.end(eraserLane, "erased, not recorded", erased, purged)
		case errors.Is(err, storage.ErrUnfinished) && errors.Is(err, storage.ErrClosed):
			m.hold()
		default:
			m.Lock()
			if before != nil && slices.Contains(m.reported, *before) {
				m.unrecorded = nil // Close came after the earlier one was finished
			}
			m.Unlock()
			m.ended(eraserLane, c.name, err, is(""), storage.ErrClosed, storage.ErrBusy)
		}
	}
}

// purged records what an erasure has removed, so that no file may contain it from now on.
func (m *metamorphosis) purged(device int, c *call) {
	for g := range c.gateways {
		if delete(m.used[device], g); g != "" {
			m.gone = append(m.gone, g[:12], g[12:])
		}
	}
	m.gone = m.gone[max(0, len(m.gone)-400):]
}

// hold records an erasure that Close has interrupted, perhaps while it finished an earlier
// one. The next Open ends the call.
func (m *metamorphosis) hold() {
	m.Lock()
	defer m.Unlock()
	m.counts["erasure left unfinished"]++
	m.done[eraserLane]++
	if !m.halted {
		m.fail(errors.New("Erase returns ErrClosed, and nobody has closed the store"))
	}
	m.held, m.unrecorded = true, nil
	m.changed.Broadcast()
}

// eraseCall returns the call that erases a device.
func eraseCall(device vitals.Name) *call {
	return &call{
		name:   fmt.Sprintf("Erase of %s", device),
		device: device,
		run: func(m *storetest.Memory) string {
			e, err := m.Erase(device)
			if err != nil && !errors.Is(err, storage.ErrNotFound) {
				return err.Error()
			}
			return fmt.Sprintf("erased %d", e.Readings)
		},
	}
}

// expire removes expired readings, in some calls with a bound on their number.
func (m *metamorphosis) expire(rng *rand.Rand) {
	for {
		atMost := int64(math.MaxInt64)
		c, s := m.begin(expirerLane, func() *call {
			before := m.clock - rng.Int64N(600)
			if rng.IntN(2) == 0 {
				before = m.clock
			}
			if w := m.calls[writerLane]; w != nil {
				before = min(before, w.oldest)
			}
			c := &call{oldest: before, duringErasure: m.calls[eraserLane] != nil}
			if rng.IntN(3) == 0 && !c.duringErasure {
				atMost, c.bounded = rng.Int64N(100), true
			}
			c.name = fmt.Sprintf("Expire before %d, at most %d", before, atMost)
			c.run = func(m *storetest.Memory) string {
				x, err := m.Expire(context.Background(), before, atMost)
				if err != nil {
					return err.Error()
				}
				return expiredText(x)
			}
			return c
		})
		if c == nil {
			return
		}
		x, err := s.Expire(context.Background(), c.oldest, atMost)
		m.Lock()
		duringErasure := c.duringErasure
		m.Unlock()
		switch done := func(answer string) bool { return answer == expiredText(x) || duringErasure && answer != "" }; {
		case err == nil || errors.Is(err, storage.ErrClosed) && x.Readings > 0:
			m.end(expirerLane, "removal", done, nil)
		case duringErasure:
			m.ended(expirerLane, c.name, err, anyAnswer, storage.ErrClosed)
		default:
			m.ended(expirerLane, c.name, err, func(answer string) bool { return answer == "" || done(answer) },
				storage.ErrClosed)
		}
	}
}

func expiredText(x storage.Expiry) string {
	return fmt.Sprintf("removed %d readings, and %d devices", x.Readings, x.Devices)
}

// backUp makes backups, restores them and compares their content.
func (m *metamorphosis) backUp(rng *rand.Rand) {
	for {
		var gone []string
		c, s := m.begin(backupLane, func() *call {
			gone = slices.Clone(m.gone)
			return &call{name: "Backup", reads: true, run: func(m *storetest.Memory) string {
				text, err := dump(m)
				if err != nil {
					return err.Error()
				}
				return "backup of\n" + text
			}}
		})
		if c == nil {
			return
		}
		b, err := s.Backup()
		if err != nil {
			m.ended(backupLane, c.name, err, anyAnswer, storage.ErrClosed, storage.ErrBusy, context.Canceled)
			continue
		}
		// What is stored from here on is not in the backup.
		m.Lock()
		m.fail(m.keep(backupLane, func(answer string) bool { return answer != "" }))
		m.Unlock()
		var archive bytes.Buffer
		_, err = b.WriteTo(&archive)
		if err := errors.Join(err, b.Close()); err != nil {
			m.ended(backupLane, c.name, err, anyAnswer, context.Canceled)
			continue
		}
		text, err := restoredText(&archive, gone)
		if err != nil {
			m.ended(backupLane, c.name, err, anyAnswer)
			return
		}
		m.end(backupLane, "backup", is("backup of\n"+text), nil)
	}
}

// restoredText restores an archive and returns the dump of the store. No file may contain any
// of gone.
func restoredText(archive *bytes.Buffer, gone []string) (string, error) {
	ctx, fs := context.Background(), vfs.NewMem()
	if _, err := pebblestore.ReceiveBackup(ctx, archive, backupPath, backup.Options{FS: fs}); err != nil {
		return "", err
	}
	if _, err := pebblestore.Restore(ctx, backupPath, restoredPath, backup.Options{FS: fs}); err != nil {
		return "", err
	}
	s, err := pebblestore.Open(restoredPath, pebblestore.Options{FS: fs, MinFreeBytes: -1})
	if err != nil {
		return "", err
	}
	text, err := dump(s)
	for _, dir := range []string{backupPath, restoredPath} {
		if found := tracesOf(fs, dir, gone); len(found) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %v contain erased readings", dir, found))
		}
	}
	return text, errors.Join(err, s.Close())
}

// reader returns a function that reads in a lane.
func (m *metamorphosis) reader(lane int) func(*rand.Rand) {
	return func(rng *rand.Rand) {
		for {
			c, s := m.begin(lane, func() *call { return m.question(rng) })
			if c == nil {
				return
			}
			answer, err := c.ask(s)
			if err != nil {
				m.ended(lane, c.name, err, anyAnswer, storage.ErrClosed)
				continue
			}
			m.end(lane, strings.Fields(c.name)[0], is(answer), nil)
			m.Lock()
			if m.failed != nil && strings.Contains(m.failed.Error(), c.name) {
				m.t.Logf("%s returned %s", c.name, answer)
			}
			m.Unlock()
			m.scrape(s)
			if rng.IntN(20) == 0 {
				m.tidy(s)
			}
		}
	}
}

// tidy merges small segments, which must change nothing, of a store that may be closed.
func (m *metamorphosis) tidy(s *pebblestore.Store) {
	err := pebblestore.TidyPass(s)
	m.Lock()
	defer m.Unlock()
	m.counts["tidied"]++
	if err != nil && !errors.Is(err, storage.ErrClosed) {
		m.fail(fmt.Errorf("Tidy returns %w", err))
	}
}

// scrape gathers the metrics of a store, which may be closed, for the race detector.
func (m *metamorphosis) scrape(s *pebblestore.Store) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	_, err := registry.Gather()
	_ = s.Ready()
	if err != nil {
		m.Lock()
		defer m.Unlock()
		m.fail(err)
	}
}

// question draws a call that reads.
func (m *metamorphosis) question(rng *rand.Rand) *call {
	device := mustName(metamorphicDevices[rng.IntN(len(metamorphicDevices))])
	if e := m.calls[eraserLane]; e != nil && rng.IntN(2) == 0 {
		device = e.device
	}
	switch rng.IntN(4) {
	case 0:
		return readCall("Latest of "+device.String(), func(s storage.Store) (string, error) {
			d, err := s.Latest(context.Background(), device)
			if errors.Is(err, storage.ErrNotFound) {
				return "not found", nil
			}
			return fmt.Sprintf("latest %+v", d), err
		})
	case 1:
		after, size := vitals.Name{}, 1+rng.IntN(8)
		if rng.IntN(2) == 0 {
			after = device
		}
		return readCall(fmt.Sprintf("Devices after %q, %d of them", after, size), func(s storage.Store) (string, error) {
			dst := make([]storage.Device, size)
			n, err := s.Devices(context.Background(), after, dst)
			return fmt.Sprintf("devices %+v", dst[:n]), err
		})
	}
	r := storage.Range{Device: device, ToUnixMs: 1 << 62, Descending: rng.IntN(2) == 0}
	if rng.IntN(2) == 0 {
		r.FromUnixMs, r.ToUnixMs = m.clock-rng.Int64N(600), m.clock+50-rng.Int64N(200)
	}
	return scanCall(r, 1+rng.IntN(200))
}

// readCall returns a call that runs ask on the store and on the model.
func readCall(name string, ask func(storage.Store) (string, error)) *call {
	return &call{name: name, reads: true, ask: ask, run: func(m *storetest.Memory) string {
		answer, err := ask(m)
		if err != nil {
			return err.Error()
		}
		return answer
	}}
}

// scanCall returns the call that reads a range.
func scanCall(r storage.Range, size int) *call {
	return readCall(fmt.Sprintf("Scan of %+v, %d records", r, size), func(s storage.Store) (string, error) {
		dst := make([]storage.Record, size)
		n, err := s.Scan(context.Background(), r, dst)
		b := []byte("read\n")
		for i := range dst[:n] {
			b = append(appendRecord(b, &dst[i]), '\n')
		}
		return string(b), err
	})
}

// reopen repeatedly closes the store, or simulates a loss of power, and opens it again.
func (m *metamorphosis) reopen(rng *rand.Rand) {
	for {
		m.Lock()
		for m.failed == nil && m.ahead(openLane) {
			m.changed.Wait()
		}
		if m.failed != nil || m.done[openLane] == m.goals[openLane] {
			m.Unlock()
			return
		}
		m.turn(rng.IntN(2) == 0)
		m.done[openLane]++
		m.changed.Broadcast()
		m.Unlock()
	}
}

// turn closes the store, or simulates a loss of power, while calls are running, and opens it
// again.
func (m *metamorphosis) turn(powerLost bool) {
	if m.failed != nil {
		return
	}
	m.halted = true
	m.changed.Broadcast()
	var after *vfs.MemFS
	m.lost, m.lostErasure = nil, nil
	if powerLost {
		// The running calls may have taken effect or not.
		percent := []int{0, 50, 100}[m.life.IntN(3)]
		after = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: m.life})
		m.lost, m.lostErasure = map[world]struct{}{}, m.calls[eraserLane]
		for w := range m.possible {
			w.answers = [lanes]string{eraserLane: w.answers[eraserLane]}
			m.lost[w] = struct{}{}
		}
		if m.lostErasure != nil {
			m.unrecorded = nil // it may be finished by now
		}
		m.counts["power lost"]++
	}
	unrecorded := m.unrecorded
	s := m.store
	m.Unlock()
	err := s.Close()
	m.Lock()
	// The eraser's call may be in held, and is ended below.
	for lane := range m.calls {
		for m.failed == nil && m.calls[lane] != nil && (lane != eraserLane || !m.held) {
			m.changed.Wait()
		}
	}
	if err != nil {
		m.fail(fmt.Errorf("Close returns %w", err))
	}
	if m.failed != nil {
		return
	}
	if powerLost {
		m.disk, m.possible = after, m.lost
		m.calls = [lanes]*call{eraserLane: m.lostErasure}
		m.unrecorded, m.held = unrecorded, false
	}
	if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: m.disk}); err != nil {
		m.fail(fmt.Errorf("after Close or a loss of power: %w", err))
		return
	}
	m.reported = nil
	m.Unlock()
	m.open()
	m.Lock()
	if m.failed == nil {
		m.fail(m.opened())
	}
	m.halted, m.held, m.lost, m.lostErasure = false, false, nil, nil
	m.changed.Broadcast()
}

// opened compares the store with the model after an Open.
func (m *metamorphosis) opened() error {
	if c := m.calls[eraserLane]; c != nil {
		isReported := slices.ContainsFunc(m.reported, func(e storage.Erasure) bool { return e.Device == c.device })
		if m.held && (len(m.reported) == 0 || c.first && !isReported) {
			return fmt.Errorf("%s was unfinished, but Open reported %+v", c.name, m.reported)
		}
		// The content of the store shows whether it has taken effect.
		if err := m.worlds.end(eraserLane, anyAnswer); err != nil {
			return err
		}
		if isReported && c.first {
			m.counts["erasure finished by Open"]++
			m.purged(slices.Index(metamorphicDevices[:], c.device.String()), c)
		}
	}
	if m.unrecorded != nil {
		if !slices.Contains(m.reported, *m.unrecorded) {
			return fmt.Errorf("Open reported %+v, want %+v", m.reported, *m.unrecorded)
		}
		m.counts["recorded by Open"]++
		m.unrecorded = nil
	}
	text, err := dump(m.store)
	if err != nil {
		return err
	}
	if err := m.settle(text); err != nil {
		return err
	}
	if found := tracesOf(m.disk, dataDir, m.gone); len(found) > 0 {
		return fmt.Errorf("%v contain erased readings", found)
	}
	m.counts["opened"]++
	return nil
}

// open opens the store with random options.
func (m *metamorphosis) open() {
	maxDevices := []int{0, 0, len(metamorphicDevices) - 1}[m.life.IntN(3)]
	s, err := pebblestore.Open(dataDir, pebblestore.WithSegmentRows(pebblestore.Options{
		FS:            inject(m.disk, errorfs.InjectorFunc(slowSync)),
		WindowRows:    []int{1, 20, 90, pebblestore.DefaultWindowRows}[m.life.IntN(4)],
		MinFreeBytes:  -1,
		MaxDevices:    maxDevices,
		MemTableBytes: []int{64 << 10, 96 << 10, 1 << 20}[m.life.IntN(3)],
		CacheBytes:    []int64{1, 256 << 10, 8 << 20}[m.life.IntN(3)],
		OnFatal: func(text string) {
			m.t.Errorf("seed %d: %s", m.seed, text)
		},
		OnErased: func(e storage.Erasure) error {
			m.Lock()
			defer m.Unlock()
			m.reported = append(m.reported, e)
			return nil
		},
	}, []int{6, 40, 1024}[m.life.IntN(3)]))
	m.Lock()
	defer m.Unlock()
	if err != nil {
		m.fail(fmt.Errorf("Open returns %w", err))
		return
	}
	m.store = s
	m.bound = maxDevices
}

// slowSync delays syncs of the log, as a disk does, so that other calls run while an Append
// waits for one.
func slowSync(op errorfs.Op) error {
	if isLog(op.Path) && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
		time.Sleep(200 * time.Microsecond)
	}
	return nil
}

// randomGateway returns a unique name, so that it can be found in files.
func randomGateway(rng *rand.Rand) vitals.Name {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, 24)
	for i := range b {
		b[i] = letters[rng.IntN(len(letters))]
	}
	return mustName(string(b))
}
