package profile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A sample is a stack and its values. The stack has lines "function file:line", the
// innermost frame first.
type sample struct {
	stack  string
	values []int64
	labels map[string][]int64
}

// build returns a profile with the given samples.
func build(t *testing.T, types []*profile.ValueType, period int64, samples ...sample) *profile.Profile {
	t.Helper()
	p := &profile.Profile{SampleType: types, Period: period, TimeNanos: 1, DurationNanos: int64(10 * time.Second)}
	functions := map[string]*profile.Function{}
	locations := map[string]*profile.Location{}
	for _, s := range samples {
		var stack []*profile.Location
		for line := range strings.SplitSeq(strings.TrimSpace(s.stack), "\n") {
			line = strings.TrimSpace(line)
			loc := locations[line]
			if loc == nil {
				name, place, _ := strings.Cut(line, " ")
				fn := functions[name]
				if fn == nil {
					fn = &profile.Function{ID: uint64(len(functions) + 1), Name: name, SystemName: name}
					functions[name] = fn
					p.Function = append(p.Function, fn)
				}
				number := int64(0)
				if file, text, ok := strings.Cut(place, ":"); ok {
					fn.Filename = file
					for _, c := range text {
						number = number*10 + int64(c-'0')
					}
				}
				loc = &profile.Location{ID: uint64(len(locations) + 1), Line: []profile.Line{{Function: fn, Line: number}}}
				locations[line] = loc
				p.Location = append(p.Location, loc)
			}
			stack = append(stack, loc)
		}
		p.Sample = append(p.Sample, &profile.Sample{Location: stack, Value: s.values, NumLabel: s.labels})
	}
	try(t, p.CheckValid())
	return p
}

var (
	cpuTypes  = []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}
	heapTypes = []*profile.ValueType{
		{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"},
	}
)

// cpu returns a CPU profile with n samples of each stack.
func cpu(t *testing.T, n int64, stacks ...string) *profile.Profile {
	t.Helper()
	var samples []sample
	for _, s := range stacks {
		samples = append(samples, sample{stack: s, values: []int64{n, n * 1e7}})
	}
	return build(t, cpuTypes, 1e7, samples...)
}

// counted returns two scrapes of counters, ten seconds apart, with the given number of
// requests in between.
func counted(requests uint64) (before, after *pg.Counters) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	before = &pg.Counters{
		At: at, Version: "1.0.0", GoVersion: "go1.26", Started: 5, CPU: 1,
		Requests: map[string]uint64{"POST /v1/readings 2xx": 7},
		Readings: map[string]uint64{"stored": 7},
	}
	after = &pg.Counters{
		At: at.Add(10 * time.Second), Version: "1.0.0", GoVersion: "go1.26", Started: 5, CPU: 2,
		Requests: map[string]uint64{"POST /v1/readings 2xx": 7 + requests},
		Readings: map[string]uint64{"stored": 7 + requests},
	}
	return before, after
}

// capture returns a capture with the given CPU profile and number of requests.
func capture(requests uint64, cpu *profile.Profile) *pg.Capture {
	before, after := counted(requests)
	return &pg.Capture{Target: "http://127.0.0.1:6060", Start: before.At, Window: 10 * time.Second, Before: before,
		After: after, CPU: cpu}
}

var try = polltest.Try
