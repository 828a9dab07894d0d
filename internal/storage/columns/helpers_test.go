package columns_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

const (
	startUnixMs = 1_790_000_000_000
	minuteMs    = 60_000
)

// A shape generates believable rows of one device.
type shape struct {
	name       string
	intervalMs int64
	jitterMs   int64 // of the time, uniform
	walk       bool  // the jitter adds up
	batch      int   // rows that are received together; 0: each alone
	offline    bool  // for 150 of 300 rows, which are received together afterwards
	allSigns   bool  // in every row; otherwise heart rate and SpO2
	otherSigns bool  // also all others, some with wide or negative values
	cuff       bool  // blood pressure every 15 rows, resting heart rate every 60
	dropouts   bool  // of SpO2
	gaps       bool
	gateways   int
	whole      bool // values without decimals
}

// shapes has those of believable wearers.
var shapes = []shape{
	{name: "two-signs", intervalMs: minuteMs, jitterMs: 500, gateways: 1},
	{name: "two-signs/drift", intervalMs: minuteMs, jitterMs: 7500, walk: true, dropouts: true, gaps: true, gateways: 1},
	{name: "two-signs/batches-of-20", intervalMs: minuteMs, jitterMs: 500, batch: 20, gateways: 1},
	{name: "two-signs/roaming", intervalMs: minuteMs, jitterMs: 500, gateways: 3},
	{name: "two-signs/1Hz", intervalMs: 1000, whole: true, batch: 10, gateways: 1},
	{name: "two-signs/offline", intervalMs: minuteMs, jitterMs: 500, offline: true, gateways: 1},
	{name: "cuff", intervalMs: minuteMs, jitterMs: 500, cuff: true, dropouts: true, gaps: true, gateways: 1},
	{name: "five-signs", intervalMs: minuteMs, jitterMs: 500, allSigns: true, gateways: 1},
}

var try = polltest.Try

// newRand returns a source of the same numbers each time.
func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// rows returns n rows of a device.
func (s shape) rows(rng *rand.Rand, n int) []columns.Row {
	normal := func(sd float64) int64 { return int64(math.Round(rng.NormFloat64() * sd)) }
	value := func(tenths int64) vitals.Value {
		if s.whole {
			return vitals.Value((tenths + 5) / 10 * 100)
		}
		return vitals.Value(tenths * 10)
	}
	rows := make([]columns.Row, n)
	grid, slow, noise, received := int64(startUnixMs)+rng.Int64N(s.intervalMs), int64(0), int64(0), int64(0)
	rest, aim, phase, deaf := 600+normal(70), int64(0), 0, 0
	number := uint32(1 + rng.IntN(10_000))
	for i := range rows {
		r := &rows[i]
		grid += s.intervalMs
		if s.gaps && rng.IntN(1400) == 0 {
			grid += int64(rng.ExpFloat64() * 30 * minuteMs)
		}
		r.TimeUnixMs = grid
		if s.jitterMs > 0 {
			r.TimeUnixMs += rng.Int64N(2*s.jitterMs+1) - s.jitterMs
			if s.walk {
				grid = r.TimeUnixMs
			}
		}
		if s.offline && i%300 < 150 {
			received = max(received, grid+(150-int64(i%300))*s.intervalMs)
		} else if s.batch == 0 {
			received = r.TimeUnixMs + 200 + rng.Int64N(1000)
		} else if i%s.batch == 0 {
			received = r.TimeUnixMs + int64(s.batch)*s.intervalMs + rng.Int64N(1000)
		}
		r.ReceivedUnixMs = received
		if phase--; phase <= 0 {
			phase = 5 + rng.IntN(60)
			aim = int64(rng.IntN(4)/3) * rng.Int64N(500)
		}
		slow += (rest + aim - slow) / 2
		noise = noise/2 + normal(13)
		r.Values.Set(vitals.HeartRate, value(min(max(slow+noise, 350), 2100)))
		if deaf--; deaf <= 0 {
			r.Values.Set(vitals.SpO2, value(min(968+normal(6), 1000)))
			if s.dropouts && rng.IntN(60) == 0 {
				deaf = 1 + rng.IntN(16)
			}
		}
		if s.allSigns || s.cuff && i%15 == 0 {
			r.Values.Set(vitals.Systolic, value(1220+normal(50)))
			r.Values.Set(vitals.Diastolic, value(710+normal(35)))
		}
		if s.allSigns || s.cuff && i%60 == 0 {
			r.Values.Set(vitals.RestingHeartRate, value(rest+normal(8)))
		}
		if s.otherSigns {
			for sign := vitals.Sign(5); sign < vitals.MaxSigns; sign++ {
				if rng.IntN(4) > 0 {
					r.Values.Set(sign, vitals.Value(normal(float64(int64(1)<<(sign-4)))))
				}
			}
		}
		if s.gateways > 0 {
			r.Gateway = number
			if s.gateways > 1 && rng.IntN(4) == 0 {
				number = uint32(1 + 977*rng.IntN(s.gateways))
			}
		}
	}
	return rows
}

// group returns the next row of each of n devices of a fleet.
func (s shape) group(rng *rand.Rand, n int) ([]columns.Run, []columns.Row) {
	runs, rows := make([]columns.Run, n), make([]columns.Row, n)
	device := 0
	for i := range runs {
		device += 1 + rng.IntN(20)
		runs[i] = columns.Run{Device: mustName(fmt.Sprintf("ppg-%06d", device)), Rows: 1}
		rows[i] = s.rows(rng, 1)[0]
		rows[i].Gateway = uint32(1 + device%50)
		rows[i].TimeUnixMs = startUnixMs + rng.Int64N(minuteMs)
		rows[i].ReceivedUnixMs = startUnixMs + minuteMs + int64(rng.IntN(3))
	}
	return runs, rows
}

func mustName(text string) vitals.Name {
	name, err := vitals.ParseName(text)
	if err != nil {
		panic(err)
	}
	return name
}

// anyRows generates valid rows of every kind, also unlikely ones.
func anyRows(most int) *rapid.Generator[[]columns.Row] {
	return rapid.Custom(func(t *rapid.T) []columns.Row {
		n := rapid.OneOf(rapid.IntRange(1, min(most, 3)), rapid.IntRange(1, most)).Draw(t, "rows")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var rows []columns.Row
		if rapid.Bool().Draw(t, "believable") {
			rows = rapid.SampledFrom(shapes).Draw(t, "shape").rows(rng, n)
		} else {
			rows = wildRows(t, rng, n)
		}
		if rapid.Bool().Draw(t, "wild receipts") {
			for i := range rows {
				rows[i].ReceivedUnixMs = int64(rng.Uint64()) >> rng.IntN(64)
			}
		}
		if every := rapid.SampledFrom([]int{0, 1, 2, 40}).Draw(t, "completions"); every > 0 {
			for i := range rows {
				if rng.IntN(every) == 0 {
					rows[i].CompletedMs = int64(rng.Uint64()) >> rng.IntN(64)
				}
			}
		}
		if rapid.Bool().Draw(t, "signs") {
			for i := range rows {
				rows[i].Values = someValues(rng)
			}
		}
		if every := rapid.SampledFrom([]int{0, 1, 2, 40, 4096}).Draw(t, "gateways"); every > 0 {
			for i := range rows {
				rows[i].Gateway = uint32(rng.IntN(every)) << rng.IntN(20)
				rows[i].Shared = rng.IntN(every) == 0
			}
		}
		if every := rapid.SampledFrom([]int{0, 1, 3, vitals.MaxUTCOffsetMinutes}).Draw(t, "offsets"); every > 0 {
			for i := range rows {
				if rng.IntN(3) > 0 {
					rows[i].UTCOffset = vitals.MakeUTCOffset(rng.IntN(2*every+1) - every)
				}
			}
		}
		return rows
	})
}

// wildRows has times from 0 to the greatest one.
func wildRows(t *rapid.T, rng *rand.Rand, n int) []columns.Row {
	most := uint(rapid.IntRange(11, 63).Draw(t, "time bits"))
	times := make(map[int64]bool)
	for len(times) < n {
		times[int64(rng.Uint64()&(1<<most-1))] = true
	}
	if rapid.Bool().Draw(t, "last") {
		for x := range times {
			delete(times, x)
			break
		}
		times[math.MaxInt64] = true
	}
	rows := make([]columns.Row, 0, n)
	for x := range times {
		rows = append(rows, columns.Row{TimeUnixMs: x, ReceivedUnixMs: x, Values: someValues(rng)})
	}
	slices.SortFunc(rows, func(a, b columns.Row) int { return int(min(max(a.TimeUnixMs-b.TimeUnixMs, -1), 1)) })
	return rows
}

// someValues returns at least one value.
func someValues(rng *rand.Rand) (vs vitals.Values) {
	for vs.IsZero() {
		few := rng.IntN(2) == 0
		for s := range vitals.Sign(vitals.MaxSigns) {
			if rng.IntN(8) == 0 || few && s < 5 && rng.IntN(4) == 0 {
				vs.Set(s, vitals.Value(rng.Uint32())>>rng.IntN(32))
			}
		}
	}
	return vs
}

// equal fails the test unless got and want are equal.
func equal[T comparable](t rapid.TB, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d %s, want %d", len(got), what, len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s %d of %d: %+v, want %+v", what, i, len(got), got[i], want[i])
		}
	}
}
