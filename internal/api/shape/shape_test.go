package shape_test

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
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/sys/tomlfile"
	"github.com/pulsegate/pulsegate/vitals"
)

var try = polltest.Try

// A testCase is a text and how it is written, as testdata/reader.py has it.
type testCase struct {
	Kind string `json:"kind"`
	Text string `json:"text"`

	Formats   []string `json:"formats"`
	Zone      string   `json:"zone"`
	Ambiguous string   `json:"ambiguous"`
	Months    []string `json:"months"`

	Unit     string `json:"-"`
	Suffix   string `json:"suffix"`
	Minus    string `json:"minus"`
	Factor   string `json:"factor"`
	Round    bool   `json:"round"`
	Decimals int    `json:"decimals"`

	Parts []string `json:"parts"`
}

func list(texts []string) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

func place(string) error { return nil }

// read reads a case with package shape, and returns the answer as the reader writes it.
func (c *testCase) read(t *testing.T, signs *vitals.Signs) string {
	t.Helper()
	at := "v"
	table := shape.Table{Name: "m", Device: "text:d", Time: shape.Received}
	sign := shape.SignTable{At: &at, Round: c.Round, Suffix: c.Suffix, Unit: c.Unit}
	field := "own_" + fmt.Sprint(c.Decimals)
	switch c.Kind {
	case "time":
		table.Time, table.TimeFormat, table.Zone, table.Ambiguous, table.Months = at, list(c.Formats), c.Zone,
			c.Ambiguous, c.Months
	case "number":
		if c.Unit == "" {
			sign.Factor = (*tomlfile.Text)(&c.Factor)
		} else {
			field = map[string]string{"[degF]": "body_temperature_c", "[lb_av]": "body_weight_kg", "kPa": "own_mmhg"}[c.Unit]
		}
	case "name":
		table.Device = "p0"
		for i := 1; i < len(c.Parts); i++ {
			table.Device = fmt.Sprintf("%s + p%d", table.Device, i)
		}
	}
	table.Signs = map[string]shape.SignTable{field: sign}
	s, err := table.Compile(shape.Options{Table: codes.Table{Signs: signs}, Place: place})
	try(t, err)
	cells := shape.Cells{}
	for i, p := range s.Places {
		cell := shape.Cell{Kind: shape.Text, Text: []byte(c.Text)}
		if strings.HasPrefix(p.At, "p") {
			cell.Text = []byte(c.Parts[p.At[1]-'0'])
		}
		cells.Values, cells.At = append(cells.Values, cell), append(cells.At, i)
	}
	var r vitals.Reading
	var got any
	switch c.Kind {
	case "time":
		if err = s.When(cells, shape.Moment{}, &r); err == nil {
			got = []any{r.TimeUnixMs, nil}
			if minutes, ok := r.UTCOffset.Minutes(); ok {
				got = []any{r.TimeUnixMs, minutes}
			}
		}
	case "number":
		v, found, failed := s.Value(&s.Signs[0], cells)
		if err = failed; err == nil && found < shape.Measured {
			t.Fatalf("%+v: found %d", c, found)
		}
		got = int64(v)
	case "name":
		if _, err = s.Origin(cells, vitals.Origin{}, &r); err == nil {
			got = r.Device.String()
		}
	}
	if err != nil {
		got = nil
	}
	text, err := json.Marshal(got)
	try(t, err)
	return strings.ReplaceAll(string(text), ",", ", ")
}

// signsWith returns a table with signs of 0 to 3 decimals.
func signsWith(t *testing.T) *vitals.Signs {
	t.Helper()
	table := vitals.NewSigns()
	own := []vitals.Definition{{Field: "own_mmhg", Unit: "mm[Hg]", Decimals: 1}}
	for d := range vitals.MaxDecimals + 1 {
		own = append(own, vitals.Definition{Field: fmt.Sprintf("own_%d", d), Unit: "1", Decimals: d})
	}
	for i := range own {
		own[i].Label, own[i].Accepted = own[i].Field, vitals.Range{Min: -1_000_000, Max: 1_000_000}
		own[i].Usual = vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	}
	try(t, table.Define(own))
	return table
}

var (
	patterns = []string{
		"%d.%m.%Y %H:%M", "%d.%m.%Y - %H:%M", "%m/%d/%Y %I:%M:%S %p", "%I:%M:%S%p %b %d, %Y", "%Y%m%d%H%M%S", "%F %T",
		"%Y-%m-%d %H:%M:%S.%f",
		"%d/%m/%y %R", "%a, %d %b %Y %H:%M:%S %z", "%A %e %B %Y %k:%M", "%Y-%m-%dT%H:%M:%S%z", "%H:%M %d-%h-%Y",
		"%l:%M %p, %m/%d/%y",
	}
	german = []string{"Jan", "Feb", "Mrz", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez"}
	zones  = []string{"Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "UTC"}
)

// goLayout returns a layout of package time for a pattern.
func goLayout(pattern string) string {
	return strings.NewReplacer("%Y", "2006", "%y", "06", "%m", "01", "%d", "02", "%e", "2", "%B", "January", "%b", "Jan",
		"%h", "Jan", "%A", "Monday",
		"%a", "Mon", "%H", "15", "%k", "15", "%I", "03", "%l", "3", "%M", "04", "%S", "05", "%f", "000000", "%p", "PM", "%z",
		"-0700", "%F", "2006-01-02",
		"%T", "15:04:05", "%R", "15:04").Replace(pattern)
}

// randomTime returns a time in a random spelling, which is often one that must be rejected.
func randomTime(r *rand.Rand) testCase {
	c := testCase{Kind: "time", Zone: pick(r, append(zones, "", "")...), Ambiguous: pick(r, "", "", "earlier", "later")}
	if c.Zone == "" {
		c.Ambiguous = ""
	}
	around := []string{"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-11-01T06:00:00Z", "2026-04-04T15:00:00Z",
		"2011-12-30T10:00:00Z", "2024-02-29T00:00:00Z", "2026-07-12T11:30:00Z"}
	at, _ := time.Parse(time.RFC3339, pick(r, around...))
	at = at.Add(time.Duration(r.Int64N(int64(8*time.Hour))) - 4*time.Hour).
		Round(pick(r, time.Minute, time.Second, time.Microsecond))
	if zone, err := time.LoadLocation(c.Zone); err == nil {
		at = at.In(zone)
	}
	switch r.IntN(3) {
	case 0:
		c.Formats = []string{"instant"}
		c.Text = at.Format("2006-01-02") + pick(r, "T", " ", "t", "\u202f", "  ", "_") +
			at.Format(pick(r, "15:04:05.999999", "15:04", "15:04:05", "15:04:05,000", "3:04")) +
			pick(r, "", "Z", at.Format("-07:00"), at.Format("-0700"), at.Format("-07"), " +0200", "-00:00", "+24:00",
				" UTC", " CET")
	case 1:
		c.Formats = []string{pick(r, "unix_s", "unix_ms")}
		c.Text = pick(r, fmt.Sprint(at.Unix()), fmt.Sprint(at.UnixMilli()), fmt.Sprintf("%d.%d", at.Unix(), r.IntN(100_000)),
			fmt.Sprintf("-%d.%03d", r.IntN(99), r.IntN(999)), "0123", "1.5e9", "noon")
	default:
		form := pick(r, patterns...)
		if !strings.Contains(form, "%z") && c.Zone == "" {
			c.Zone = "Europe/Berlin"
		}
		c.Formats = []string{form}
		layout := goLayout(form)
		if r.IntN(4) == 0 && strings.Contains(form, "%b") {
			c.Months = german
			layout = strings.Replace(layout, "Jan", "@", 1)
		}
		c.Text = strings.Replace(at.Format(layout), "@", german[at.Month()-1], 1)
		if r.IntN(3) == 0 {
			c.Formats = append([]string{"instant"}, form)
		}
	}
	if r.IntN(4) == 0 && len(c.Text) > 0 { // another digit, blank, or end
		i := r.IntN(len(c.Text))
		switch {
		case c.Text[i] >= '0' && c.Text[i] <= '9':
			c.Text = c.Text[:i] + fmt.Sprint(r.IntN(10)) + c.Text[i+1:]
		case c.Text[i] == ' ':
			c.Text = c.Text[:i] + pick(r, "\u00a0", "  ", "") + c.Text[i+1:]
		default:
			c.Text += pick(r, "x", "1", ".")
		}
	}
	return c
}

func randomNumber(r *rand.Rand) testCase {
	c := testCase{Kind: "number", Minus: "0", Factor: pick(r, "1", "100", "0.1", "0.001", "2.5"), Round: r.IntN(2) == 0,
		Decimals: r.IntN(4), Suffix: pick(r, "", "", "mmHg")}
	switch r.IntN(4) {
	case 0:
		c.Unit, c.Minus, c.Factor, c.Round, c.Decimals = "[degF]", "32", "5/9", true, 2
	case 1:
		c.Unit, c.Minus, c.Factor, c.Round, c.Decimals = "[lb_av]", "0", "45359237/100000000", true, 3
	case 2:
		c.Unit, c.Minus, c.Factor, c.Round, c.Decimals = "kPa", "0", "1000000000000/133322387415", true, 1
	}
	c.Text = pick(r, fmt.Sprintf("%d", r.IntN(300)), fmt.Sprintf("%d.%d5", r.IntN(300), r.IntN(10)),
		fmt.Sprintf("%d.%d", r.IntN(300), r.IntN(100_000)),
		fmt.Sprintf("-%d.5", r.IntN(9)), fmt.Sprintf("%de%d", r.IntN(100), r.IntN(12)-6), "2147483647", "1e12", "07", "+5",
		"1,5", ".5", "x", "") + pick(r, "", " ", "\u00a0") + c.Suffix + pick(r, "", "", "", "x")
	return c
}

func randomName(r *rand.Rand) testCase {
	c := testCase{Kind: "name"}
	for range pick(r, 1, 1, 2, 3) {
		part := ""
		for range r.IntN(9) {
			part += pick(r, "a", "7", ":", "3A", ":20", ".", " ", "é", "C", ":C3:A9", "-", "床")
		}
		c.Parts = append(c.Parts, part)
	}
	if len(c.Parts) == 1 && c.Parts[0] == "" || r.IntN(20) == 0 {
		c.Parts = []string{strings.Repeat(pick(r, "a", " "), 60+r.IntN(8))}
	}
	return c
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// TestReader compares random times, numbers and names with what a reader in Python's standard library makes of them.
func TestReader(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	random := rand.New(rand.NewPCG(59, 1))
	var cases []testCase
	var lines bytes.Buffer
	for i := range 3000 {
		c := []func(*rand.Rand) testCase{randomTime, randomTime, randomNumber, randomName}[i%4](random)
		line, err := json.Marshal(&c)
		try(t, err)
		lines.Write(append(line, '\n'))
		cases = append(cases, c)
	}
	command := exec.CommandContext(t.Context(), "python3", "testdata/reader.py")
	command.Stdin = &lines
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	signs, read, failures := signsWith(t), bufio.NewScanner(bytes.NewReader(out)), 0
	accepted := map[string]int{}
	for i := range cases {
		if !read.Scan() {
			t.Fatalf("the reader has answered %d of %d cases", i, len(cases))
		}
		want := read.Text()
		if want != "null" {
			accepted[cases[i].Kind]++
		}
		if got := cases[i].read(t, signs); got != want {
			if failures++; failures < 20 {
				t.Errorf("%+v:\n got %s\nwant %s", cases[i], got, want)
			}
		}
	}
	if accepted["time"] < 500 || accepted["number"] < 100 || accepted["name"] < 200 {
		t.Errorf("only %v texts are accepted", accepted)
	}
}

// TestNamesDiffer compares the names of all short texts of some letters, and of what they are escaped to: no two are
// the same. A text that is a name stays, unless it begins with a colon.
func TestNamesDiffer(t *testing.T) {
	texts := []string{""}
	for i := 0; i < len(texts); i++ {
		if len(texts[i]) < 5 {
			for _, letter := range []string{":", "3", "A", "2", "0", " ", "é", "C"} {
				texts = append(texts, texts[i]+letter)
			}
		}
		if i > 4_000 {
			break
		}
	}
	named := map[string]string{}
	for round := range 3 {
		var names []string
		for _, text := range texts {
			name, err := shape.Name([]byte(text))
			if err != nil {
				continue
			}
			if other, taken := named[name.String()]; taken && other != text {
				t.Fatalf("round %d: %q and %q have the name %v", round, other, text, name)
			}
			named[name.String()] = text
			names = append(names, name.String())
		}
		texts = append(texts, names...)
	}
	for text, want := range map[string]string{
		"4C:33:A6:60:3C:79": "4C:33:A6:60:3C:79", "aa:bb:cc:dd:ee:ff": "aa:bb:cc:dd:ee:ff",
		"AA:BB:CC:DD:EE:FF": "AA:BB:CC:DD:EE:FF",
		"00:22:09:5B:0C:3F": "00:22:09:5B:0C:3F", "ward:7": "ward:7", "ward:12": "ward:12", "bed:01": "bed:01",
		"bed:207": "bed:207", "a:": "a:",
		"bed 7": ":bed:207", ":bed:207": "::3Abed:3A207", "Zoë": ":Zo:C3:AB", "a/b": ":a:2Fb", ":": "::3A",
	} {
		if got, err := shape.Name([]byte(text)); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, &got, err, want)
		}
	}
}
