package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

// shapeFlags choose how a file is written.
type shapeFlags struct {
	Mapping string `type:"path" env:"-" placeholder:"FILE" help:"File of mappings that say how other files are written."`
	As      string `placeholder:"NAME" help:"Mapping to use, of --mapping or of the shipped ones, which 'pulsegate mapping list' prints."`
	Zone    string `placeholder:"ZONE" help:"Zone of times without an offset from UTC in CSV, and for mappings without one, such as Europe/Berlin. Z means UTC, written in an unknown place."`
}

// shaped reports whether the file is read by a mapping.
func (f *shapeFlags) shaped() bool { return f.Mapping != "" || f.As != "" }

// tables calls use with the mappings of the file, or with those that are shipped.
func (f *shapeFlags) tables(use func(*shape.Table) error) error {
	if f.Mapping != "" {
		return shape.Read([]string{f.Mapping}, use)
	}
	return shape.ReadShipped(use)
}

// sources has the source of mappings for files of a format.
var sources = map[string]string{recording.CSV: "csv", recording.NDJSON: "json", recording.JSON: "json",
	recording.XML: "xml"}

// endings has the endings of files in a zip by the source of their mapping.
var endings = map[string][]string{"csv": {".csv", ".tsv", ".txt"}, "json": {".json", ".ndjson", ".jsonl"},
	"xml": {".xml"}}

// shapes returns the shapes that the flags choose for files of a format, which is set to that of the first mapping if
// it is not known.
func (f *shapeFlags) shapes(signs *vitals.Signs, format *string) (chosen []*shape.Shape, err error) {
	var names []string
	named := false
	err = f.tables(func(t *shape.Table) error {
		if !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
		if f.As != "" && t.Name != f.As {
			return nil
		}
		named = true
		source := cmp.Or(t.Source, "json")
		if *format == "auto" || *format == "" {
			*format = source
		}
		if source != sources[*format] {
			return nil
		}
		if t.Zone != "" && f.Zone != "" && t.Zone != f.Zone {
			return &vitals.FieldOf{Part: "zone", Err: fmt.Errorf("--zone is %s, and the mapping has another one", f.Zone)}
		}
		t.Zone = cmp.Or(t.Zone, f.Zone)
		s, err := compileFile(t, signs)
		switch {
		case err != nil:
			return err
		case s.Ignore && !s.Conditional() &&
			!slices.ContainsFunc(chosen, func(other *shape.Shape) bool { return other.Name == s.Name }):
			return shape.ErrIgnoreAll
		case source != "csv" && slices.ContainsFunc(chosen, func(other *shape.Shape) bool { return other.Hides(s) }):
			return &vitals.FieldOf{Part: "where",
				Err: errors.New(
					"not reached: an earlier mapping takes every record, because it has no where; choose a name with --as")}
		}
		chosen = append(chosen, s)
		return nil
	})
	switch {
	case err != nil && f.Zone == "" && errors.Is(err, shape.ErrNoZone):
		return nil, settings.Usagef("%v, with --zone", err)
	case err != nil:
		return nil, settings.Usage(err)
	case !named:
		return nil, settings.Usagef("--as: no mapping is named %s; there are %s", f.As, strings.Join(names, ", "))
	case len(chosen) == 0:
		return nil,
			settings.Usagef("the mapping is not for files of this format, %s: it needs source = %q, or choose another --format",
				*format, sources[*format])
	}
	return chosen, nil
}

// compileFile returns the shape of a mapping of files.
func compileFile(t *shape.Table, signs *vitals.Signs) (*shape.Shape, error) {
	opt := shape.Options{Table: codes.Table{Signs: signs}, DeviceKnown: true, Place: shape.CheckPointer}
	switch {
	case t.Source == "csv":
		opt.Place = func(at string) error {
			if strings.TrimSpace(at) == "" {
				return errors.New("not the name of a column, nor its number, such as #3")
			}
			return nil
		}
	case t.Source == "xml":
		opt.Place = func(at string) error {
			_, err := shape.ParseAttribute(at)
			return err
		}
	case t.Source != "" && t.Source != "json":
		return nil, &vitals.FieldOf{Part: "source", Err: errors.New("not one of csv, json and xml")}
	case t.Decode != "":
		return nil, &vitals.FieldOf{Part: "decode", Err: errors.New("import does not read characteristics")}
	}
	s, err := t.Compile(opt)
	if err != nil {
		return nil, err
	}
	if s.TakesReceived() {
		return nil, &vitals.FieldOf{Part: "time", Err: errors.New(`a file has no time at which it was "received"`)}
	}
	if t.Source == "csv" && !t.Ignore &&
		!slices.ContainsFunc(s.Places, func(p shape.Place) bool { return !strings.HasPrefix(p.At, "#") }) {
		return nil, &vitals.FieldOf{Part: "signs", Err: errors.New("name at least one column: numbers alone fit every line")}
	}
	return s, nil
}

// openShaped returns the Reader of a file that a mapping describes, and prints what was recognised. closeReader must be
// called after the last reading.
func (c *importCommand) openShaped(ctx context.Context, file io.Reader, errOut io.Writer) (reader recording.Reader,
	closeReader func(), err error) {
	shapes, err := c.shapes(c.signs, &c.Format)
	if err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(shapes, (*shape.Shape).NamesSources) {
		if err := c.checkSources(ctx, file, shapes); err != nil {
			return nil, nil, err
		}
	}
	reader, found, closeReader, err := c.shapedReader(file, shapes, recording.Options{Signs: c.signs, Device: c.Device,
		Texts: c.Rejects != ""})
	if err != nil || c.Quiet {
		return reader, closeReader, err
	}
	if c.Format != recording.CSV {
		fmt.Fprintf(errOut, "recognised: mapping %s, %s, %s\n", strings.Join(namesOf(shapes), " or "),
			found.Encoding, c.Format)
		return reader, closeReader, nil
	}
	fmt.Fprintf(errOut, "recognised: mapping %s, %s, cells end with %q, columns named in line %d\n", found.Shape.Name,
		found.Encoding, found.Delimiter, found.HeaderLine)
	if n := len(found.Unused); n > 0 {
		fmt.Fprintf(errOut, "%d columns left out\n", n)
	}
	return reader, closeReader, nil
}

// namesOf returns the different names of shapes.
func namesOf(shapes []*shape.Shape) (names []string) {
	for _, s := range shapes {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// shapedReader returns the Reader of the content of a file.
func (c *importCommand) shapedReader(file io.Reader, shapes []*shape.Shape,
	opt recording.Options) (reader recording.Reader, found *recording.Recognised, closeReader func(), err error) {
	content, closeContent, err := c.content(file, shapes)
	if err != nil {
		return nil, nil, nil, err
	}
	stop := func() {}
	switch c.Format {
	case recording.CSV:
		if reader, found, err = recording.NewShaped(content, shapes, opt); err == nil {
			c.delimiter = found.Delimiter
		}
	case recording.XML:
		reader, found, err = recording.NewShapedXML(content, shapes, opt)
	default:
		if reader, found, stop, err = recording.NewShapedJSON(content, c.Format, shapes, opt); err != nil {
			err = settings.Usagef("%v; choose a name with --as", err)
		}
	}
	if err != nil {
		closeContent()
		return nil, nil, nil, err
	}
	return reader, found, func() {
		stop()
		closeContent()
	}, nil
}

// content returns the content of a file that may be compressed. Of a zip it is that of one file, whose ending may say
// the format.
func (c *importCommand) content(file io.Reader, shapes []*shape.Shape) (content io.Reader,
	closeContent func(), err error) {
	archive, ok := file.(*os.File)
	if !ok || !recording.IsZip(archive) {
		return recording.Decompress(file)
	}
	info, err := archive.Stat()
	if err != nil {
		return nil, nil, err
	}
	name := ""
	for _, s := range shapes {
		name = cmp.Or(name, s.Member)
	}
	member, found, err := recording.OpenMember(archive, info.Size(), name, endings[sources[c.Format]])
	if err != nil {
		return nil, nil, err
	}
	if format := recording.FormatOf(found); sources[format] == sources[c.Format] {
		c.Format = format
	}
	return member, func() { _ = member.Close() }, nil
}

// checkSources reads a file once, and returns an error if a sign comes from several sources that have no devices.
func (c *importCommand) checkSources(ctx context.Context, file io.Reader, shapes []*shape.Shape) error {
	again, ok := file.(io.Seeker)
	if ok {
		_, err := again.Seek(0, io.SeekCurrent)
		ok = err == nil
	}
	if !ok {
		return settings.Usagef(
			"the file is read twice, to count the sources of each sign: name a regular file, or use a mapping with devices")
	}
	found := recording.Sources{}
	reader, _, closeReader, err := c.shapedReader(file, shapes, recording.Options{Signs: c.signs, Device: c.Device,
		Sources: found})
	if err != nil {
		return err
	}
	defer closeReader()
	for err != io.EOF {
		if _, _, err = reader.Next(); ctx.Err() != nil {
			return ctx.Err()
		}
		if row := (*recording.RowError)(nil); err != nil && err != io.EOF && !errors.As(err, &row) {
			return err
		}
	}
	if sign, n := found.Most(); n > 1 {
		hint := ""
		if c.Mapping == "" {
			hint = fmt.Sprintf("; 'pulsegate mapping list %s' prints the shipped one", c.As)
		}
		return settings.Usagef(
			"%s comes from %d sources in this file: name the device of each in a mapping of your own, with device and devices%s",
			c.signs.Of(sign).Field, n, hint)
	}
	_, err = again.Seek(0, io.SeekStart)
	return err
}

// shownReadings is the number of readings that --dry-run prints.
const shownReadings = 10

// preview is upload for --dry-run: it sends nothing.
func (c *importCommand) preview(ctx context.Context, std stdio, _ *transfer.Client, _ io.Reader,
	reader recording.Reader, rejected *rejections) (sum transfer.Summary, err error) {
	rules, err := vitals.NewValidator(c.signs.DefaultLimits())
	if err != nil {
		return sum, err
	}
	defer func() {
		sum.Count(reader.Counts())
		rejected.end(sum)
	}()
	refuse := func(line int, field string, err error) {
		sum.Rejected++
		rejected.add(transfer.Refusal{Line: line, Field: field, Reason: err.Error(), Row: reader.Text()})
	}
	for {
		if err := ctx.Err(); err != nil {
			return sum, err
		}
		r, line, err := reader.Next()
		var row *recording.RowError
		switch {
		case err == io.EOF:
			return sum, nil
		case errors.As(err, &row):
			refuse(row.Line, row.Field, row.Err)
			continue
		case err != nil:
			return sum, err
		}
		if broken, ok := errors.AsType[*vitals.FieldError](rules.Validate(&r, time.Now().UnixMilli())); ok {
			refuse(line, broken.Field, broken.Err)
			continue
		}
		sum.Values += bits.OnesCount32(r.Values.Present())
		if sum.WouldSend++; sum.WouldSend <= shownReadings {
			if _, err := fmt.Fprintf(std.out, "%s\n", c.signs.AppendJSON(nil, &r)); err != nil {
				return sum, err
			}
		}
	}
}
