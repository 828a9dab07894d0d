package recording_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/vitals"
)

// shapes compiles mappings of JSON.
func shapes(t *testing.T, text string) (all []*shape.Shape) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	try(t, shape.Read([]string{path}, func(table *shape.Table) error {
		s, err := table.Compile(shape.Options{Table: codes.Table{Signs: vitals.NewSigns()}, DeviceKnown: true,
			Place: shape.CheckPointer})
		all = append(all, s)
		return err
	}))
	return all
}

// readJSON returns what a file has: a line for each reading and each rejected row, the error that ends it, and the
// texts of the rejected rows.
func readJSON(t *testing.T, format string, by []*shape.Shape, file string) (lines, rejected []string,
	counts recording.Counts) {
	t.Helper()
	r, _, stop, err := recording.NewShapedJSON(strings.NewReader(file), format, by, recording.Options{Texts: true})
	try(t, err)
	defer stop()
	for {
		reading, at, err := r.Next()
		var row *recording.RowError
		switch {
		case err == io.EOF:
			return lines, rejected, r.Counts()
		case errors.As(err, &row):
			lines = append(lines, row.Error())
			rejected = append(rejected, string(r.Text()))
		case err != nil:
			return append(lines, err.Error()), rejected, r.Counts()
		default:
			lines = append(lines, fmt.Sprintf("%d %s", at, vitals.NewSigns().AppendJSON(nil, &reading)))
		}
	}
}

// nested reads arrays in the elements of an array.
const nested = `[[mapping]]
name = "m"
where = { "/kind" = "x" }
device = "/beds/-/id"
time = "/beds/-/values/-/t"
time_format = "unix_s"
signs.heart_rate_bpm = { at = "/beds/-/values/-/hr", missing = "--" }
`

// TestShapedJSON reads documents and lines, and the rejected rows again.
func TestShapedJSON(t *testing.T) {
	const flat = `[[mapping]]
name = "m"
where = { "/-/type" = "mbg" }
ignore = true
[[mapping]]
name = "m"
device = "/-/id"
time = "/-/at/0"
time_format = "unix_s"
signs.heart_rate_bpm.at = "/-/hr"
`
	ok := func(line int, device, hr string) string {
		return fmt.Sprintf(`%d {"device":"%s","time":"2026-09-21T14:13:20.000Z","heart_rate_bpm":%s}`, line, device, hr)
	}
	for _, tt := range []struct {
		format, mapping, file string
		want                  []string
		counts                recording.Counts
	}{
		{"json", flat,
			`[{"id":"a","at":[1790000000],"hr":70},{"type":"mbg"},{"id":"a","at":[1790000000],"hr":null},{"id":"b",` +
				`"at":[1790000000],"hr":"71"}]`,
			[]string{ok(1, "a", "70"), ok(4, "b", "71")}, recording.Counts{Rows: 4, NoSign: 1, Ignored: 1}},
		{"json", flat, `{"id":"a","at":[1790000000],"hr":70} [] [{"id":"b","at":[1790000000],"hr":71}]` + "\n" +
			`{"type":"mbg"}`,
			[]string{ok(1, "a", "70"), ok(2, "b", "71")}, recording.Counts{Rows: 3, Ignored: 1}},
		{"json", flat,
			"\ufeff" +
				`[{"id":"a","at":[1790000000],"hr":70},{"id":"a","id":"b","at":[1790000000],"hr":70},7,{"id":"a","at":"x",` +
				`"hr":70},{"id":"","at":[1],"hr":70}`,
			[]string{ok(1, "a", "70"), "line 2: a field is given twice", "line 4: time: missing", "line 5: device: not a name",
				"after 5 rows: the JSON is cut off: unexpected EOF"}, recording.Counts{Rows: 5, NoSign: 1}},
		{"json", nested,
			`{"kind":"x","beds":[{"id":"a","values":[{"t":1790000000,"hr":70},{"t":1790000000,"hr":"--"}]},` +
				`{"values":[{"t":1790000000,"hr":71}],"id":"b"}]}`,
			[]string{ok(1, "a", "70"), ok(3, "b", "71")}, recording.Counts{Rows: 3, NoSign: 1, Missing: 1}},
		{"json", nested,
			`{"beds":[{"values":[{"t":1790000000,"hr":70}]},{"id":"b"},{"values":[{"t":1790000000,"hr":71}],"id":"b"}],` +
				`"kind":"x"}`,
			[]string{"line 1: device: missing", "line 2: the array of readings is missing", ok(3, "b", "71")},
			recording.Counts{Rows: 3}},
		{"json", nested, `{"kind":"y","beds":[{"id":"a","values":[{"t":1790000000,"hr":70}]}]} {}`,
			[]string{"line 1: no mapping fits: none has a where that holds", "line 2: the array of readings is missing"},
			recording.Counts{Rows: 2}},
		{"json", nested, `{"kind":"x","kind":"y","beds":[]}`, []string{"after 0 rows: a field is given twice"},
			recording.Counts{}},
		{"json", nested, `{"kind":"x","beds":[{"id":"a","values":[{"t":1790000000,"hr":70},}]}]}`,
			[]string{ok(1, "a", "70"), "after 1 rows: not JSON at byte 64"}, recording.Counts{Rows: 1}},
		{"json", nested, `{"kind":"x","beds":null}`, []string{"after 0 rows: the file has no record"}, recording.Counts{}},
		{"json", nested, `{"kind":"x","beds":[]}`, []string{"after 0 rows: the file has no record"}, recording.Counts{}},
		{"json", nested, `{"kind":"x","beds":[{"id":"a","values":null},{"id":"b","values":[{"t":1790000000,"hr":71}]}]}`,
			[]string{ok(1, "b", "71")}, recording.Counts{Rows: 1}},
		{"json", nested,
			"{\"kind\":\"x\",\"by\":\"\xff\\ud800\",\"beds\":[{\"id\":\"a\",\"values\":[{\"t\":1790000000," +
				"\"hr\":71,\"\xff\":\"\xff\"}]}]}",
			[]string{ok(1, "a", "71")}, recording.Counts{Rows: 1}},
		{"json", nested,
			"{\"kind\":\"x\",\"beds\":[{\"id\":\"a\",\"values\":[{\"t\":1790000000," +
				"\"hr\":\"7\xff\"}]},{\"id\":\"a\xff\",\"values\":[]}]}",
			[]string{"line 1: a text that is not UTF-8", "after 1 rows: a text that is not UTF-8"}, recording.Counts{Rows: 1}},
		{"json", nested, `{"kind":"x\udc00","beds":[]}`, []string{"after 0 rows: a text that is not UTF-8"},
			recording.Counts{}},
		{"ndjson", flat,
			"{\"id\":\"a\",\"at\":[1790000000],\"hr\":70,\"by\":\"\xff\"}\n{\"id\":\"b\",\"at\":[1790000000],\"hr\":71}",
			[]string{"line 1: not JSON at byte", ok(2, "b", "71")}, recording.Counts{Rows: 2}},
		{"json", nested, ` `, []string{"after 0 rows: the file has no record"}, recording.Counts{}},
		{"json", nested, `{"kind":"x","y":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200) + `}`,
			[]string{"after 0 rows: nested in more than 100 arrays and objects"}, recording.Counts{}},
		{"json", nested, `{"rejected":{"line":1},"row":{"kind":"x","beds":[]},"kind":"y"}`,
			[]string{"after 0 rows: a rejected row has other members than rejected and row"}, recording.Counts{}},
		{"ndjson", nested, `{"kind":"x","beds":[{"id":"a","values":[{"t":1790000000,"hr":70}],"id":"b"}]}` + "\n" +
			`{"kind":"x","beds":[{"id":"a","values":[{"t":1790000000,"hr":70}]}]} x` + "\n" +
			`{"kind":"x","beds":[{"id":"a","values":[{"t":1790000000,"hr":70},`,
			[]string{"line 1: a field is given twice", "line 2: more than one JSON value on the line",
				"line 3: the JSON is cut off"}, recording.Counts{Rows: 3}},
		{"ndjson", flat, `{"id":"a","at":[1790000000],"hr":70}` + "\n\n" + `{"id":"a","at":` + "\n" +
			`{"id":"b","at":[1790000000],"hr":71}`,
			[]string{ok(1, "a", "70"), "line 3: the JSON is cut off: unexpected EOF", ok(4, "b", "71")},
			recording.Counts{Rows: 3}},
	} {
		got, _, counts := readJSON(t, tt.format, shapes(t, tt.mapping), tt.file)
		if !match(got, tt.want) || counts != tt.counts {
			t.Errorf("%s:\n got %q, %+v\nwant %q, %+v", tt.file, got, counts, tt.want, tt.counts)
		}
	}
}

// match reports whether lines begin as they should.
func match(got, want []string) bool {
	return slices.EqualFunc(got, want, func(g, w string) bool { return strings.HasPrefix(g, w) })
}

// TestShapedJSONRejected corrects the rows that were rejected, and reads them from both formats.
func TestShapedJSONRejected(t *testing.T) {
	_, rejected, _ := readJSON(t, "json", shapes(t, nested),
		`{"beds":[{"id":"a","values":[{"t":"soon","hr":70}]},{"values":[{"t":"soon","hr":71}],"id":"b"}],"kind":"x"}`)
	file := ""
	for i, row := range rejected {
		file += string(recording.AppendRejected(nil, "json", 0, []byte(strings.Replace(row, `"soon"`, "1790000000", 1)), i+1,
			"time", "wrong"))
	}
	const want = `1 {"device":"a","time":"2026-09-21T14:13:20.000Z","heart_rate_bpm":70}|2 {"device":"b",` +
		`"time":"2026-09-21T14:13:20.000Z","heart_rate_bpm":71}`
	for _, format := range []string{"json", "ndjson"} {
		if got, _, _ := readJSON(t, format, shapes(t, nested), file); strings.Join(got, "|") != want {
			t.Errorf("%s of %s:\n got %q\nwant %s", format, file, got, want)
		}
	}
	plain := strings.NewReplacer("/beds/-/", "/-/", `where = { "/kind" = "x" }`, "").Replace(nested)
	// Without the array, a row is rejected again, and what follows it is read.
	for _, tt := range []struct{ mapping, file, row string }{
		{nested, `{"kind":"x","beds":7}`, `{"beds":false,"kind":"x"}`},
		{nested, `{"kind":"x","beds":[{"id":"b"}]}`, `{"beds":[{"id":"b","values":false}],"kind":"x"}`},
		{plain, `7`, `"false"`},
		{plain, `{"id":"a"}`, `{"id":"a","values":false}`},
	} {
		lines, rejected, _ := readJSON(t, "json", shapes(t, tt.mapping), tt.file)
		file = string(recording.AppendRejected(nil, "json", 0, []byte(rejected[0]), 1, "", "no array"))
		again, _, _ := readJSON(t, "json", shapes(t, tt.mapping), file+file)
		if !strings.HasSuffix(file, `,"row":`+tt.row+"}\n") || len(lines) != 1 || len(again) != 2 || again[0] != lines[0] {
			t.Errorf("%s: %q, written as %s, read again as %q", tt.file, lines, file, again)
		}
	}
	// A row that has a name twice, on several lines, in a file that was formatted.
	_, rejected, _ = readJSON(t, "json", shapes(t, nested),
		"{\"beds\":[{\"id\":\"a\",\"values\":[{\"t\":1790000000,\n\"hr\":70,\n\"hr\":71}]}],\"kind\":\"x\"}")
	file = string(recording.AppendRejected(nil, "json", 0, []byte(strings.Replace(rejected[0], ",\n\"hr\":71", "", 1)), 1,
		"", "twice"))
	if strings.Count(file, "\n") != 1 {
		t.Errorf("%q is not one line", file)
	}
	twice := string(recording.AppendRejected(nil, "json", 0, []byte(rejected[0]), 1, "", "twice"))
	file = strings.Replace(file, `{"rejected":{`, "{ \"rejected\" : {", 1) + strings.Replace(twice, `,"hr":71`, "", 1)
	if got, _, _ := readJSON(t, "json", shapes(t, nested), file); len(got) != 2 ||
		!match(got, []string{`1 {"device":"a",`, `2 {"device":"a",`}) {
		t.Errorf("%s: got %q", file, got)
	}
	// Bytes that are not UTF-8 are replaced where a row is written. They are not those of a device afterwards.
	file = ""
	for _, line := range []string{"{\"id\":\"B\xe4r\",\"values\":[{\"t\":1790000000,\"hr\":70}]}",
		"{\"id\":\"B\xf6r\",\"values\":[{\"t\":1790000000,\"hr\":71}]}"} {
		_, rejected, _ = readJSON(t, "ndjson", shapes(t, plain), line)
		file += string(recording.AppendRejected(nil, "ndjson", 0, []byte(rejected[0]), 1, "", "not UTF-8"))
	}
	for format, reason := range map[string]string{"json": "a text that is not UTF-8", "ndjson": "not JSON at byte"} {
		got, again, _ := readJSON(t, format, shapes(t, plain), file)
		for _, line := range got {
			if !strings.Contains(line, reason) {
				t.Errorf("%s of %s: %s", format, file, line)
			}
		}
		if format == "ndjson" && (len(got) != 2 || len(again) != 2) { // a document ends there
			t.Errorf("%s: got %q, with the texts %q", file, got, again)
		}
	}
	if got, _, _ := readJSON(t, "ndjson", shapes(t, plain), strings.ReplaceAll(file, "\ufffd", "e")); len(got) != 2 ||
		!strings.Contains(got[0], `"device":"Ber"`) {
		t.Errorf("%s, corrected: got %q", file, got)
	}
	const rows = `[[mapping]]
name = "m"
device = "text:d"
time = "/-/0"
time_format = "unix_s"
signs.heart_rate_bpm.at = "/-/1"
`
	_, rejected, _ = readJSON(t, "json", shapes(t, rows), `[["soon",70]]`)
	file = string(recording.AppendRejected(nil, "json", 0, []byte(strings.Replace(rejected[0], `"soon"`, "1790000000", 1)),
		1, "time", "wrong"))
	for _, format := range []string{"json", "ndjson"} {
		if got, _, _ := readJSON(t, format, shapes(t, rows), file); len(got) != 1 ||
			!strings.Contains(got[0], `"heart_rate_bpm":70`) {
			t.Errorf("%s of %s: got %q", format, file, got)
		}
	}
}

// TestShapedJSONModel reads random documents whose members are in any order, and compares the readings with those of a
// reader that has the whole document in memory.
func TestShapedJSONModel(t *testing.T) {
	rng, by := rand.New(rand.NewPCG(1, 2)), shapes(t, nested)
	object := func(members ...string) string {
		members = slices.DeleteFunc(members, func(string) bool { return rng.IntN(6) == 0 })
		rng.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
		return "{" + strings.Join(members, ",") + "}"
	}
	array := func(most int, element func() string) string {
		all := make([]string, rng.IntN(most))
		for i := range all {
			all[i] = element()
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	odd := func() string {
		return []string{`"o":{"kind":"y","beds":[1,{"id":"z"}]}`, `"p":[[],{"values":[{}]}]`, `"q":null`}[rng.IntN(3)]
	}
	accepted := 0
	for range 2_000 {
		file := object(`"kind":"x"`, odd(), `"beds":`+array(4, func() string {
			return object(fmt.Sprintf(`"id":"b%d"`, rng.IntN(9)), odd(), `"values":`+array(4, func() string {
				return object(fmt.Sprintf(`"t":%d`, 1_790_000_000+rng.IntN(1000)), fmt.Sprintf(`"hr":%d`, 40+rng.IntN(100)), odd())
			}))
		}))
		got, _, _ := readJSON(t, "json", by, file)
		got = slices.DeleteFunc(got, func(line string) bool { return !strings.Contains(line, "{") })
		for i := range got {
			_, got[i], _ = strings.Cut(got[i], " ")
		}
		want := inMemory(t, file)
		if !slices.Equal(got, want) {
			t.Fatalf("%s:\n got %q\nwant %q", file, got, want)
		}
		accepted += len(want)
	}
	if accepted < 1_000 {
		t.Errorf("only %d readings", accepted)
	}
}

// inMemory returns the readings of a document by the mapping nested.
func inMemory(t *testing.T, file string) (readings []string) {
	t.Helper()
	var doc struct {
		Kind string
		Beds []struct {
			ID     string
			Values []struct {
				T, HR int64
			}
		}
	}
	try(t, json.Unmarshal([]byte(file), &doc))
	for _, bed := range doc.Beds {
		for _, v := range bed.Values {
			if doc.Kind != "x" || bed.ID == "" || v.T == 0 || v.HR == 0 {
				continue
			}
			r := vitals.Reading{Device: name(t, bed.ID), TimeUnixMs: v.T * 1000}
			r.Values.Set(vitals.HeartRate, vitals.Value(v.HR*100))
			readings = append(readings, string(vitals.NewSigns().AppendJSON(nil, &r)))
		}
	}
	return readings
}
