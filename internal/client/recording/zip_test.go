package recording_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestZipBomb reads what decompresses to much more than a record may have.
func TestZipBomb(t *testing.T) {
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	for _, name := range []string{"x/export.xml", "other.xml", "__MACOSX/x/export.xml", "x/"} {
		w, err := z.Create(name)
		try(t, err)
		if name == "x/export.xml" {
			_, err = io.WriteString(w, "<a>"+strings.Repeat(" ", 30<<20))
			try(t, err)
		}
	}
	try(t, z.Close())
	archive := bytes.NewReader(file.Bytes())
	if !recording.IsZip(archive) || recording.IsZip(strings.NewReader("PK")) {
		t.Error("a zip is not recognised, or what is none is")
	}
	if _, _, err := recording.OpenMember(archive, archive.Size(), "", []string{".xml"}); err == nil ||
		!strings.Contains(err.Error(), "has 2 files") {
		t.Errorf("two files: %v", err)
	}
	content, name, err := recording.OpenMember(archive, archive.Size(), "export.xml", nil)
	try(t, err)
	defer content.Close()
	table := shape.Table{Name: "m", Source: "xml", Element: "r", Time: "t",
		Signs: map[string]shape.SignTable{"heart_rate_bpm": {At: new("v")}}}
	s, err := table.Compile(shape.Options{Table: codes.Table{Signs: vitals.NewSigns()}, DeviceKnown: true,
		Place: func(string) error { return nil }})
	try(t, err)
	r, _, err := recording.NewShapedXML(content, []*shape.Shape{s}, recording.Options{})
	try(t, err)
	if _, _, err = r.Next(); err == nil || errors.Is(err, io.EOF) ||
		!strings.Contains(err.Error(), "a row of more than") || name != "x/export.xml" {
		t.Errorf("%s: %v", name, err)
	}
}
