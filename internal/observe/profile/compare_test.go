package profile_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/pprof/profile"
	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

func TestCompareText(t *testing.T) {
	c, err := pg.Compare(pg.Analyze(example(t, 150)), pg.Analyze(example(t, 50)))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := c.WriteText(&text, 5); err != nil {
		t.Fatal(err)
	}
	golden(t, "diff.txt", text.String())
	var asJSON bytes.Buffer
	if err := c.WriteJSON(&asJSON); err != nil || !json.Valid(asJSON.Bytes()) {
		t.Errorf("JSON: %v, %s", err, asJSON.Bytes())
	}
}

// TestCompareExposure compares the same cost in windows of different lengths.
func TestCompareExposure(t *testing.T) {
	stack := module + "vitals.(*Decoder).Decode"
	short, long := capture(1000, cpu(t, 30, stack)), capture(10_000, cpu(t, 300, stack))
	c, err := pg.Compare(pg.Analyze(short), pg.Analyze(long))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range c.Tables {
		if table.Total.Beyond || table.Total.A != table.Total.B {
			t.Errorf("%s: %+v", table.Title, table.Total)
		}
	}
	// A cost in only one of the windows is detected.
	longer := capture(10_000, cpu(t, 300, stack, module+"reply.(*Answer).serve"))
	c, err = pg.Compare(pg.Analyze(short), pg.Analyze(longer))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, row := range c.Tables[0].Rows {
		if row.Name == "answering" {
			found = row.Beyond && row.A == 0 && row.B == 300
		}
	}
	if !found {
		t.Errorf("a new cost is not detected: %+v", c.Tables[0].Rows)
	}
}

// TestCompareFalseAlarms repeatedly draws two windows of the same program: at most
// about one comparison in a hundred may report a difference.
func TestCompareFalseAlarms(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const stacks, runs = 60, 200
	names := make([]string, stacks)
	mean := make([]float64, stacks)
	for i := range names {
		names[i] = module + "vitals.F" + string(rune('A'+i%26)) + string(rune('a'+i/26))
		mean[i] = 200 / float64(1+i) // few expensive functions, many cheap ones
	}
	draw := func() *pg.Report {
		var samples []sample
		for i, name := range names {
			if n := poisson(rnd, mean[i]); n > 0 {
				samples = append(samples, sample{stack: name, values: []int64{n, n * 1e7}})
			}
		}
		return pg.Analyze(capture(1000, build(t, cpuTypes, 1e7, samples...)))
	}
	alarms := 0
	for range runs {
		c, err := pg.Compare(draw(), draw())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range c.Tables[2].Rows {
			if row.Beyond {
				alarms++
				break
			}
		}
	}
	// A binomial count with the probability 0.01 and the mean 2 exceeds 8 once in 4,700 times.
	if alarms > 8 {
		t.Errorf("%d of %d comparisons reported a difference although there is none, want about %d", alarms, runs, runs/100)
	}
}

// poisson draws a Poisson count by summing exponential gaps.
func poisson(rnd *rand.Rand, mean float64) (n int64) {
	for at := rnd.ExpFloat64(); at < mean; at += rnd.ExpFloat64() {
		n++
	}
	return n
}

func TestCompareNothingInCommon(t *testing.T) {
	a, b := capture(1, cpu(t, 1, "main.f")), capture(1, nil)
	if _, err := pg.Compare(pg.Analyze(a), pg.Analyze(b)); err == nil {
		t.Error("a CPU profile and none: got no error")
	}
}

// FuzzAnalyze checks that an arbitrary profile causes no panic and no division by zero
// in any form of the report.
func FuzzAnalyze(f *testing.F) {
	for _, p := range []*profile.Profile{
		{SampleType: cpuTypes, DurationNanos: 1e9, Period: 1e7},
		{SampleType: heapTypes, Period: 512 << 10},
	} {
		fn := &profile.Function{ID: 1, Name: "main.f[a.b/c]"}
		loc := &profile.Location{ID: 1, Line: []profile.Line{{Function: fn, Line: 3}}}
		p.Function, p.Location = []*profile.Function{fn}, []*profile.Location{loc, {ID: 2}}
		p.Sample = []*profile.Sample{{Location: p.Location, Value: []int64{1, 1e7}}, {Value: []int64{-1, 5}}}
		var buf bytes.Buffer
		if err := p.WriteUncompressed(&buf); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := profile.ParseUncompressed(data)
		if err != nil || p.CheckValid() != nil {
			return
		}
		c := capture(3, p)
		c.Allocs, c.Heap, c.Goroutine, c.Mutex, c.Block = p, p, p, p, p
		r := pg.Analyze(c)
		var text, svg bytes.Buffer
		if err := r.WriteText(&text, 3); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteJSON(&text); err != nil {
			t.Fatal(err) // NaN is not valid JSON
		}
		if err := pg.WriteFlame(&svg, c); err != nil {
			t.Fatal(err)
		}
		if comparison, err := pg.Compare(r, r); err == nil {
			if err := comparison.WriteJSON(&text); err != nil {
				t.Fatal(err)
			}
		}
	})
}
