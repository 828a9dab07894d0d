package query

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// rowsPerGroup is the number of rows in a row group. The encoded columns of a group are
// kept in memory until it is complete.
const rowsPerGroup = 128 << 10

// pageBytes is the size of a page of a column. The writer has a buffer of this size for
// each column.
const pageBytes = 64 << 10

// maxParquet is the maximum number of concurrent pages in Parquet. Each takes up to 18 MiB
// for its row group, and other pages 0.7 MiB.
const maxParquet = 4

// maxGateways is the number of names of gateways in a row group at which it ends early: the
// column's dictionary keeps each of them in memory. A chunk of records may add more.
const maxGateways = 8192

// parquetSchema returns the schema of a file, whose columns are those of CSV: parquet-go keeps the
// order of the fields of a struct.
//
// Values are DOUBLE, which all tools read as numbers: the one nearest to the decimal, so
// that its shortest text is the decimal again.
func parquetSchema(signs []*vitals.Definition, flags bool) *parquet.Schema {
	columns := []parquetColumn{
		{"device", "", ",dict"}, {"time", int64(0), ",timestamp(millisecond:utc),delta"},
		{"utc_offset_minutes", (*int32)(nil), ",optional,dict"},
	}
	for _, d := range signs {
		columns = append(columns, parquetColumn{d.Field, (*float64)(nil), ",optional,dict"})
	}
	columns = append(columns, parquetColumn{"gateway", (*string)(nil), ",optional,dict"},
		parquetColumn{"subject", (*string)(nil), ",optional,dict"},
		parquetColumn{"received", int64(0), ",timestamp(millisecond:utc),delta"})
	if flags {
		columns = append(columns, parquetColumn{"flags", (*string)(nil), ",optional,dict"}) // as in CSV
	}
	return columnsSchema("readings", columns)
}

// A parquetColumn is a column of a file of Parquet.
type parquetColumn struct {
	name string
	zero any    // a value of its type; a pointer if the column is optional
	tag  string // of parquet-go, after the name
}

// columnsSchema returns a schema with columns in their order.
func columnsSchema(name string, columns []parquetColumn) *parquet.Schema {
	var fields []reflect.StructField
	for i, c := range columns {
		tag := reflect.StructTag(`parquet:"` + c.name + c.tag + `"`)
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("C%d", i), Type: reflect.TypeOf(c.zero), Tag: tag})
	}
	return parquet.NewSchema(name, parquet.SchemaOf(reflect.Zero(reflect.StructOf(fields)).Interface()))
}

// parquetOptions returns the options of a writer of files with a schema.
func parquetOptions(schema *parquet.Schema) []parquet.WriterOption {
	return []parquet.WriterOption{
		schema,
		parquet.MaxRowsPerRowGroup(rowsPerGroup),
		parquet.PageBufferSize(pageBytes),
		parquet.Compression(&parquet.Snappy),
		parquet.CreatedBy("pulsegate", "", ""),
	}
}

// A parquetSink is a sink for Parquet. It keeps one row group in memory.
type parquetSink struct {
	w      *parquet.GenericWriter[any]
	device vitals.Name
	name   parquet.Value // of the device
	signs  *vitals.Signs
	marks  *recordFlagger       // nil means no flags
	signOf []*vitals.Definition // by column of a sign
	number []vitals.Sign        // the same
	rows   []parquet.Row
	names  map[vitals.Name][]byte    // of gateways and devices; fewer than maxGateways between calls
	flags  map[vitals.FlagSet][]byte // texts of flags
	worn   wearing
	wearer []byte // the subject of worn
}

func newParquetSink(w io.Writer, device vitals.Name, assigned []storage.Assignment, signs *vitals.Signs,
	marks *recordFlagger) *parquetSink {
	p := &parquetSink{
		signs: signs,
		marks: marks,
		names: map[vitals.Name][]byte{},
		flags: map[vitals.FlagSet][]byte{},
		worn:  wearing{all: assigned},
	}
	p.of(device)
	for s, d := range signs.All() {
		p.number, p.signOf = append(p.number, s), append(p.signOf, d)
	}
	options := parquetOptions(parquetSchema(p.signOf, marks != nil))
	// parquet-go writes no metadata of columns, so their units and codes are in the file's.
	for _, d := range p.signOf {
		options = append(options, parquet.KeyValueMetadata(d.Field+".unit", d.Unit),
			parquet.KeyValueMetadata(d.Field+".loinc", strings.Join(d.LOINC, " ")))
	}
	if marks != nil {
		options = append(options, parquet.KeyValueMetadata("flags_notice", vitals.FlagNotice))
	}
	p.w = parquet.NewGenericWriter[any](&pieces{w}, options...)
	return p
}

func (p *parquetSink) of(device vitals.Name) {
	if p.device != device || p.name.IsNull() {
		p.device, p.name = device, parquet.ByteArrayValue(p.text(device))
	}
}

// text returns the text of the name of a device or a gateway.
func (p *parquetSink) text(name vitals.Name) []byte {
	text := p.names[name]
	if text == nil {
		text = name.AppendTo(nil)
		p.names[name] = text
	}
	return text
}

func (p *parquetSink) add(records []storage.Record) error {
	for len(p.rows) < len(records) {
		p.rows = append(p.rows, nil)
	}
	for i := range records {
		p.rows[i] = p.appendRow(p.rows[i][:0], &records[i])
	}
	_, err := p.w.WriteRows(p.rows[:len(records)])
	if len(p.names) >= maxGateways && err == nil {
		clear(p.names)
		err = p.w.Flush()
	}
	return err
}

// appendRow appends the values of a record, in the order of the schema.
func (p *parquetSink) appendRow(row parquet.Row, r *storage.Record) parquet.Row {
	required := func(v parquet.Value) { row = append(row, v.Level(0, 0, len(row))) }
	optional := func(v parquet.Value, ok bool) {
		if !ok {
			row = append(row, parquet.NullValue().Level(0, 0, len(row)))
			return
		}
		row = append(row, v.Level(0, 1, len(row)))
	}
	required(p.name)
	required(parquet.Int64Value(r.TimeUnixMs))
	minutes, known := r.UTCOffset.Minutes()
	optional(parquet.Int32Value(int32(minutes)), known)
	for i, s := range p.number {
		v, ok := r.Values.Get(s)
		optional(parquet.DoubleValue(p.signOf[i].Float64(v)), ok)
	}
	if r.Gateway == nil {
		optional(parquet.Value{}, false)
	} else {
		optional(parquet.ByteArrayValue(p.text(*r.Gateway)), true)
	}
	if p.worn.seek(r.TimeUnixMs) {
		p.wearer = []byte(p.worn.now.Subject)
	}
	optional(parquet.ByteArrayValue(p.wearer), p.worn.now.Subject != "")
	required(parquet.Int64Value(r.ReceivedUnixMs))
	if p.marks != nil {
		set := p.marks.flags(&p.device, p.worn.now.Subject, &r.Values)
		optional(parquet.ByteArrayValue(p.flagsText(set)), !set.IsZero())
	}
	return row
}

func (p *parquetSink) flagsText(set vitals.FlagSet) []byte {
	text, ok := p.flags[set]
	if !ok {
		text = appendFlagCell(nil, p.signs, set)[len(","):]
		p.flags[set] = text
	}
	return text
}

// close writes the last row group and the end of the file, which has no place for a cursor.
func (p *parquetSink) close(string) error { return p.w.Close() }

// pieces divides what is written into pieces of at most flushBytes.
type pieces struct{ w io.Writer }

func (p *pieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var written int
		written, err = p.w.Write(b[:min(len(b), flushBytes)])
		n, b = n+written, b[written:]
	}
	return n, err
}
