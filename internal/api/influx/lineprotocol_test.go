package influx_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/pulsegate/pulsegate/internal/api/influx"
)

// ours returns the points of a text, and the number of those that are not of the protocol. It ends after a value of no
// kind: InfluxData's parser skips the rest of the line then, and ours, which must name the field, does not.
func ours(text []byte) (points []string, bad int, ended bool) {
	for s := influx.NewScanner(text); s.Next(); {
		point := ""
		other := false
		at, err := s.Read(nil, func(key, value []byte) { point += fmt.Sprintf("tag %q=%q ", key, value) },
			func(key []byte, kind influx.Kind, value []byte) {
				other = other || kind == influx.Other
				if kind == influx.String { // has its escapes
					value = nil
				}
				point += fmt.Sprintf("field %q=%d %q ", key, kind, value)
			})
		point += fmt.Sprintf("time %q", at)
		if other {
			return points, bad + 1, true
		}
		if err != nil {
			bad++
			continue
		}
		points = append(points, point)
	}
	return points, bad, false
}

var kinds = map[lineprotocol.ValueKind]influx.Kind{
	lineprotocol.String: influx.String, lineprotocol.Int: influx.Integer, lineprotocol.Uint: influx.Unsigned,
	lineprotocol.Float: influx.Float, lineprotocol.Bool: influx.Boolean,
}

// theirs is ours with InfluxData's parser.
func theirs(text []byte) (points []string, bad int) {
	d := lineprotocol.NewDecoderWithBytes(text)
next:
	for d.Next() {
		point := ""
		if _, err := d.Measurement(); err != nil {
			bad++
			continue
		}
		for {
			key, value, err := d.NextTag()
			if err != nil {
				bad++
				continue next
			}
			if key == nil {
				break
			}
			point += fmt.Sprintf("tag %q=%q ", key, value)
		}
		for {
			key, kind, value, err := d.NextFieldBytes()
			if err != nil {
				bad++
				continue next
			}
			if key == nil {
				break
			}
			if kind == lineprotocol.String {
				value = nil
			}
			point += fmt.Sprintf("field %q=%d %q ", key, kinds[kind], value)
		}
		at, err := d.TimeBytes()
		if err != nil {
			bad++
			continue
		}
		points = append(points, point+fmt.Sprintf("time %q", at))
	}
	return points, bad
}

// oddComment matches comments with control characters, which only our parser accepts.
var oddComment = regexp.MustCompile(`(?m)^ *#[^\n]*[\x00-\x09\x0b-\x1f\x7f]`)

// compare fails if the parsers disagree about a text: on its points, or on whether all of it is of the protocol.
func compare(t *testing.T, text []byte) {
	t.Helper()
	got, bad, ended := ours(text)
	want, theirBad := theirs(text)
	if ended {
		want = want[:min(len(got), len(want))]
	}
	if !slices.Equal(got, want) || (bad > 0) != (theirBad > 0) && !oddComment.Match(text) {
		t.Errorf("%q:\n%q, %d bad, want\n%q, %d bad", text, got, bad, want, theirBad)
	}
}

var seeds = []string{
	"v,device=d,gateway=g heart_rate_bpm=72i,spo2_pct=97.5 1795341600000000000\nv,device=d x=t,y=\"a\" 1",
	`a\,b\ c\=d,k\ \,\=="v\,\ \=\\\x",device=d heart\ rate=72 1795341600` + "\n" + `v,a=b\ x="\\\"\n\x",y=F`,
	"\r\n  # a comment\n\n  v,device=d   heart_rate_bpm=72   1795341600  \r\n#", "v x=\"\n\n\"\nv x=1 -5",
	"v x=.5u,y=-i,z=5.e3 1-2\r", "v\\", "v,a=b",
	"v x=NaN,y=\"\n\"\nv x=1", "v x=1 \r\nv x=1\rv x=1", "v,a=b=c x=1", "v x=\xff", "é,ö=ü ä=1\n",
	"v x=\"\xff\n\"\nv y=1", "v x=1 2 \nv x=1 2 3\nv x=1 a\rb\nv x=2",
}

// TestLineProtocol compares the parsers on texts, and on random changes of them.
func TestLineProtocol(t *testing.T) {
	const alphabet = "v,= \\\"\n\r#i1u.-t\xff\x01\x7f\xc3\xa9"
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, seed := range seeds {
		compare(t, []byte(seed))
		for range 2000 {
			text := []byte(seed)
			for range 1 + rnd.IntN(4) {
				i, c := rnd.IntN(len(text)), alphabet[rnd.IntN(len(alphabet))]
				switch rnd.IntN(3) {
				case 0:
					text[i] = c
				case 1:
					text = slices.Insert(text, i, c)
				default:
					text = slices.Delete(text, i, min(i+1+rnd.IntN(3), len(text)))
				}
				if len(text) == 0 {
					break
				}
			}
			if compare(t, text); t.Failed() {
				return
			}
		}
	}
}

// FuzzLineProtocol does the same with texts of the fuzzer's.
func FuzzLineProtocol(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(compare)
}
