package recording_test

import (
	"encoding/xml"
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

const elements = `[[mapping]]
name = "m"
source = "xml"
element = "R"
where = { type = "hr" }
device = "who"
time = "at"
time_format = "unix_s"
signs.heart_rate_bpm.at = "v"
[[mapping]]
name = "m"
source = "xml"
element = "C"
device = "who"
time = "at"
time_format = "unix_s"
signs.systolic_mmhg.at = "R[type=sys]/v"
signs.diastolic_mmhg.at = "R[type=dia]/v"
[[mapping]]
name = "m"
source = "xml"
ignore = true
`

// elementShapes compiles mappings of XML.
func elementShapes(t *testing.T, text string) (all []*shape.Shape, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.toml")
	try(t, os.WriteFile(path, []byte(text), 0o600))
	err = shape.Read([]string{path}, func(table *shape.Table) error {
		s, err := table.Compile(shape.Options{Table: codes.Table{Signs: vitals.NewSigns()}, DeviceKnown: true,
			Place: func(at string) error {
				_, err := shape.ParseAttribute(at)
				return err
			}})
		all = append(all, s)
		return err
	})
	return all, err
}

// TestElementMappings checks mappings of XML that are wrong.
func TestElementMappings(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`element = "R"`, ``, "1: element: missing: the element that is a record"},
		{`source = "xml"`, `source = "csv"`, `4: element: needs source = "xml"`},
		{`"v"`, `"R[sys]/v"`, `not an attribute, such as "value"`},
		{`element = "R"`, `elements = "R"`, "unknown key; did you mean element?"},
	} {
		if _, err := elementShapes(t, strings.Replace(elements, tt.old, tt.new, 1)); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.new, err, tt.want)
		}
	}
}

// TestXMLBroken reads what is no XML, and what nests too deeply: it ends the import, and no record vanishes.
func TestXMLBroken(t *testing.T) {
	by, err := elementShapes(t, elements)
	try(t, err)
	const ok = `<R type="hr" who="a" at="1790000000" v="70"/>`
	for _, tt := range []struct{ file, want string }{
		{`<H>` + ok + `<R type="hr"><R/></H></R>`, "line 1: not XML"},
		{`<H>` + ok + `</H></H>`, "line 1: not XML"},
		{`<H>` + ok + `<R`, "line 1: not XML"},
		{`<H>` + ok, "the XML is cut off"},
		{`<H>` + ok + `<a>` + strings.Repeat("<b>", 200), "nested in more than 100 elements"},
		{`<H>` + ok + `<` + strings.Repeat("b", 2000) + `/></H>`, "the name of one has more than 1024 bytes"},
		{`<?xml version="1.0" encoding="ISO-8859-1"?><H>` + ok + `</H>`, "not XML in UTF-8 or UTF-16"},
		{`<H></H>`, "the file has no element R"},
	} {
		r, _, err := recording.NewShapedXML(strings.NewReader(tt.file), by, recording.Options{})
		try(t, err)
		for err == nil {
			_, _, err = r.Next()
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.100s: got %v, want %s", tt.file, err, tt.want)
		}
	}
}

// TestShapedXMLModel reads random documents, and compares the readings with those of a reader that has the whole
// document in memory.
func TestShapedXMLModel(t *testing.T) {
	by, err := elementShapes(t, elements)
	try(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	record := func() string {
		text := "<R"
		for _, a := range []string{`type="` + pick("hr", "sys", "dia", "step") + `"`, `who="b&#45;1"`,
			fmt.Sprintf(`at="%d"`, 1_790_000_000+rng.IntN(9)), fmt.Sprintf(`v="%d"`, 50+rng.IntN(60))} {
			if rng.IntN(8) > 0 {
				text += " " + a
			}
		}
		return text + pick("/>", "><M v=\"1\"/></R>", "></R>")
	}
	accepted := 0
	for range 2_000 {
		file := pick("", "<?xml version=\"1.0\"?>\n<!DOCTYPE H [ <!ELEMENT H (R)> ]>\n") + "<H>"
		for range rng.IntN(6) {
			switch rng.IntN(3) {
			case 0:
				file += fmt.Sprintf(`<C who="c" at="%d">`, 1_790_000_000+rng.IntN(9)) + record() + pick("", "<!-- x -->",
					record()) + "</C>"
			case 1:
				file += "<W>" + record() + "</W>\n"
			default:
				file += record()
			}
		}
		file += "</H>"
		got := readXML(t, by, file)
		want := elementsInMemory(t, file)
		if !slices.Equal(got, want) {
			t.Fatalf("%s:\n got %q\nwant %q", file, got, want)
		}
		accepted += len(want)
	}
	if accepted < 1_000 {
		t.Errorf("only %d readings", accepted)
	}
}

// readXML returns the readings of a document.
func readXML(t *testing.T, by []*shape.Shape, file string) (readings []string) {
	t.Helper()
	r, _, err := recording.NewShapedXML(strings.NewReader(file), by, recording.Options{Texts: true})
	try(t, err)
	for {
		reading, _, err := r.Next()
		var row *recording.RowError
		switch {
		case err == io.EOF:
			return readings
		case errors.As(err, &row):
			if text := string(r.Text()); !strings.HasPrefix(text, "<R") && !strings.HasPrefix(text, "<C") ||
				!strings.HasSuffix(text, ">") {
				t.Errorf("the text of a rejected record is %q", text)
			}
		case err != nil && r.Counts().Rows == 0:
			return nil // without a record
		case err != nil:
			t.Fatal(err)
		default:
			readings = append(readings, string(vitals.NewSigns().AppendJSON(nil, &reading)))
		}
	}
}

// An element is any element of a document.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
}

func (e *element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// elementsInMemory returns the readings of a document by the mappings elements.
func elementsInMemory(t *testing.T, file string) (readings []string) {
	t.Helper()
	var root element
	try(t, xml.Unmarshal([]byte(file), &root))
	add := func(e *element, values map[vitals.Sign]string) {
		var r vitals.Reading
		for sign, text := range values {
			if v, err := vitals.ParseValue([]byte(text), 2); err == nil {
				r.Values.Set(sign, v)
			}
		}
		seconds, err := vitals.ParseValue([]byte(e.attr("at")), 0)
		if err != nil || e.attr("who") == "" || r.Values.IsZero() {
			return
		}
		r.Device, r.TimeUnixMs = name(t, e.attr("who")), int64(seconds)*1000
		readings = append(readings, string(vitals.NewSigns().AppendJSON(nil, &r)))
	}
	var visit func(e *element)
	visit = func(e *element) {
		switch {
		case e.XMLName.Local == "R":
			if e.attr("type") == "hr" {
				add(e, map[vitals.Sign]string{vitals.HeartRate: e.attr("v")})
			}
		case e.XMLName.Local == "C":
			values, twice := map[vitals.Sign]string{}, false
			for _, c := range e.Children {
				for kind, sign := range map[string]vitals.Sign{"sys": vitals.Systolic, "dia": vitals.Diastolic} {
					if v := c.attr("v"); c.attr("type") == kind && v != "" {
						twice = twice || values[sign] != ""
						values[sign] = v
					}
				}
			}
			if !twice {
				add(e, values)
			}
		default:
			for i := range e.Children {
				visit(&e.Children[i])
			}
		}
	}
	visit(&root)
	return readings
}
