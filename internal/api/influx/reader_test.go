package influx_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/influx"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// A lineCase is a line and a mapping, as reader.py of package shape has them.
type lineCase struct {
	Kind      string              `json:"kind"`
	Text      string              `json:"text"`
	Precision string              `json:"precision"`
	Where     map[string]string   `json:"where"`
	Device    []string            `json:"device"` // joined
	Missing   []string            `json:"missing"`
	Signs     map[string]lineSign `json:"signs"`
}

type lineSign struct {
	At       string `json:"at"`
	Factor   string `json:"factor"`
	Minus    string `json:"minus"`
	Suffix   string `json:"suffix"`
	Round    bool   `json:"round"`
	Decimals int    `json:"decimals"`
	Missing  []int  `json:"missing"`
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomLine returns a line and a mapping that often fits it.
func randomLine(r *rand.Rand) lineCase {
	c := lineCase{Kind: "line", Precision: pick(r, "s", "ms", "us", "ns"), Signs: map[string]lineSign{}}
	keys := []string{"a", "b", "c d", "e=f,"}
	escape := strings.NewReplacer(",", `\,`, "=", `\=`, " ", `\ `).Replace
	for range pick(r, 0, 0, 1, 1, 2) {
		if c.Where == nil {
			c.Where = map[string]string{}
		}
		c.Where[pick(r, "measurement", "measurement", "tag:"+pick(r, keys...), "field:"+pick(r, keys...))] = pick(r, "m", "m",
			"x", "1", "true", `"`)
	}
	for range 1 + r.IntN(2) {
		c.Device = append(c.Device, pick(r, "measurement", "tag:"+pick(r, keys...), "field:"+pick(r, keys...)))
	}
	given := func() (some []string) { // seldom one twice
		for _, i := range r.Perm(len(keys)) {
			some = append(some, keys[i])
		}
		return append(some[:min(len(some), 1+r.IntN(6))], pick(r, nil, nil, nil, nil, nil, nil, nil, nil, some[:1])...)
	}
	c.Missing = pick(r, nil, []string{"--"}, []string{"NaN", "off"})
	for d := range 1 + r.IntN(2) {
		c.Signs[fmt.Sprintf("own_%d", d)] = lineSign{At: pick(r, "field:", "field:", "field:", "tag:") + pick(r, keys...),
			Minus:  "0",
			Factor: pick(r, "1", "1", "0.1", "100"), Round: r.IntN(2) == 0, Decimals: d,
			Missing: pick(r, nil, []int{255_000_000})}
	}
	value := func() string {
		if r.IntN(2) == 0 {
			return fmt.Sprint(r.IntN(300)) + pick(r, "", "i", "u", ".0", ".5", ".25")
		}
		return pick(r, "007x", "0012-A", "00a1", "72", "72.0", "-3", "70", "71i", "7.5", "072i", "7u", "-7u", ".5", "5.",
			"1.25e1", "7e", "t", "False",
			"NaN", "255000000i",
			"255e6", "", "i", `"72"`, `"--"`, `"off"`, `"x"`, `"\""`, `"a\\b"`, `"ä"`, `"m"`, "1", "1.005")
	}
	c.Text = pick(r, "m", "m", "m", "x", `m\,n`, `m\ n`)
	for _, key := range given() {
		c.Text += "," + escape(key) + "=" + escape(pick(r, "m", "x", "1", "7.5", "a b", "a,b", "é", "bed:7"))
	}
	delimiter := " "
	for _, key := range given() {
		c.Text += delimiter + escape(key) + "=" + value()
		delimiter = ","
	}
	at := receivedAt.Add(-time.Duration(r.Int64N(int64(1000 * time.Hour))))
	stamp := map[string]int64{"s": at.Unix(), "ms": at.UnixMilli(), "us": at.UnixMicro(), "ns": at.UnixNano()}[c.Precision]
	if r.IntN(20) > 0 {
		c.Text += fmt.Sprintf(" %d", stamp)
	}
	return c
}

// read reads a case with this package, and returns the answer as the reader writes it.
func (c *lineCase) read(t *testing.T, signs *vitals.Signs, rules *vitals.Validator) string {
	t.Helper()
	table := shape.Table{Name: "m", Source: influx.Source, Device: strings.Join(c.Device, " + "),
		Signs: map[string]shape.SignTable{}}
	if c.Where != nil {
		table.Where = map[string]tomlfile.Text{}
	}
	for at, text := range c.Where {
		table.Where[at] = tomlfile.Text(text)
	}
	if c.Missing != nil {
		var all []any
		for _, text := range c.Missing {
			all = append(all, text)
		}
		table.Missing = all
	}
	for field, s := range c.Signs {
		sign := shape.SignTable{At: &s.At, Round: s.Round}
		if s.Factor != "1" {
			sign.Factor = (*tomlfile.Text)(&s.Factor)
		}
		if s.Missing != nil {
			sign.Missing = int64(s.Missing[0])
		}
		table.Signs[field] = sign
	}
	m := influx.NewMappings(codes.Table{Signs: signs}, nil)
	if err := m.Add(&table); err != nil {
		return "mapping: " + err.Error()
	}
	in, ok := influx.NewInput(influx.Options{Signs: signs, MaxLineBytes: 1000, DeviceTag: influx.DefaultDeviceTag,
		Mappings: m}, c.Precision)
	var batch vitals.Batch
	intake := ingest.Intake{NowUnixMs: receivedAt.UnixMilli(), Rules: rules, MaxReadings: 1, Batch: &batch}
	if err := in.Decode([]byte(c.Text), &intake); err != nil || !ok {
		t.Fatalf("%+v: %v", c, err)
	}
	var got any
	switch {
	case len(batch.Readings) == 1:
		values := map[string]int64{}
		for _, d := range signs.All() {
			s, _ := signs.Named(d.Field)
			if v, has := batch.Readings[0].Values.Get(s); has {
				values[d.Field] = int64(v)
			}
		}
		got = []any{batch.Readings[0].Device.String(), batch.Readings[0].TimeUnixMs, values}
	case len(batch.Refused) == 0:
		got = "left out"
	}
	text, err := json.Marshal(got)
	try(t, err)
	return string(text)
}

// TestReader compares random lines, as random mappings read them, with what a reader in Python's standard library makes
// of them.
func TestReader(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	signs := vitals.NewSigns()
	var own []vitals.Definition
	for d := range 3 {
		field := fmt.Sprintf("own_%d", d)
		own = append(own, vitals.Definition{Field: field, Label: field, Unit: "1", Decimals: d,
			Accepted: vitals.Range{Min: -1_000_000, Max: 1_000_000}, // as the reader has it
			Usual:    vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}})
	}
	try(t, signs.Define(own))
	rules, err := vitals.NewValidator(signs.DefaultLimits())
	try(t, err)
	random := rand.New(rand.NewPCG(59, 2))
	var cases []lineCase
	var answers []string
	var lines bytes.Buffer
	for len(cases) < 2000 {
		c := randomLine(random)
		got := c.read(t, signs, rules)
		if strings.HasPrefix(got, "mapping: ") { // one place for two signs, for example
			continue
		}
		line, err := json.Marshal(&c)
		try(t, err)
		lines.Write(append(line, '\n'))
		cases, answers = append(cases, c), append(answers, got)
	}
	command := exec.CommandContext(t.Context(), "python3", "../shape/testdata/reader.py")
	command.Stdin = &lines
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	read, failures, counts := bufio.NewScanner(bytes.NewReader(out)), 0, map[byte]int{}
	for i := range cases {
		if !read.Scan() {
			t.Fatalf("the reader has answered %d of %d cases", i, len(cases))
		}
		want := strings.NewReplacer(", ", ",", ": ", ":").Replace(read.Text())
		counts[want[0]]++
		if answers[i] != want {
			if failures++; failures < 20 {
				t.Errorf("%+v:\n got %s\nwant %s", cases[i], answers[i], want)
			}
		}
	}
	if counts['['] < 200 || counts['"'] < 5 || counts['n'] < 200 {
		t.Errorf("only %d lines are read, and %d have no value", counts['['], counts['"'])
	}
}
