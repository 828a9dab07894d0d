package query

import (
	"io"
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

// A parquetRow is the schema of a file without flags. The columns are those of CSV.
//
// Values are DOUBLE, which all tools read as numbers: the one nearest to the decimal, so
// that its shortest text is the decimal again.
type parquetRow struct {
	Device           string   `parquet:"device,dict"`
	Time             int64    `parquet:"time,timestamp(millisecond:utc),delta"`
	UTCOffsetMinutes *int32   `parquet:"utc_offset_minutes,optional,dict"`
	Systolic         *float64 `parquet:"systolic_mmhg,optional,dict"`
	Diastolic        *float64 `parquet:"diastolic_mmhg,optional,dict"`
	SpO2             *float64 `parquet:"spo2_pct,optional,dict"`
	HeartRate        *float64 `parquet:"heart_rate_bpm,optional,dict"`
	RestingHeartRate *float64 `parquet:"resting_heart_rate_bpm,optional,dict"`
	Gateway          *string  `parquet:"gateway,optional,dict"`
	Received         int64    `parquet:"received,timestamp(millisecond:utc),delta"`
}

// A flaggedRow is the schema of a file with flags.
type flaggedRow struct {
	parquetRow
	Flags *string `parquet:"flags,optional,dict"` // as in CSV
}

// parquetSchemas are the schemas without and with flags. They are never modified.
var parquetSchemas = map[bool]*parquet.Schema{
	false: parquet.NewSchema("readings", parquet.SchemaOf(parquetRow{})),
	true:  parquet.NewSchema("readings", parquet.SchemaOf(flaggedRow{})),
}

// A parquetSink is a sink for Parquet. It keeps one row group in memory.
type parquetSink struct {
	w      *parquet.GenericWriter[any]
	device parquet.Value
	limits *vitals.FlagLimits // nil means no flags
	rows   []parquet.Row
	names  map[vitals.Name][]byte    // of gateways; fewer than maxGateways between calls
	flags  map[vitals.FlagSet][]byte // texts of flags
}

func newParquetSink(w io.Writer, device vitals.Name, limits *vitals.FlagLimits) *parquetSink {
	options := []parquet.WriterOption{
		parquetSchemas[limits != nil],
		parquet.MaxRowsPerRowGroup(rowsPerGroup),
		parquet.PageBufferSize(pageBytes),
		parquet.Compression(&parquet.Snappy),
		parquet.CreatedBy("pulsegate", "", ""),
	}
	// parquet-go writes no metadata of columns, so their units and codes are in the file's.
	for s := range vitals.Sign(vitals.NumSigns) {
		options = append(options, parquet.KeyValueMetadata(s.Field()+".unit", s.Unit()),
			parquet.KeyValueMetadata(s.Field()+".loinc", strings.Join(s.LOINC(), " ")))
	}
	if limits != nil {
		options = append(options, parquet.KeyValueMetadata("flags_notice", vitals.FlagNotice))
	}
	return &parquetSink{
		w:      parquet.NewGenericWriter[any](&pieces{w}, options...),
		device: parquet.ByteArrayValue(device.AppendTo(nil)),
		limits: limits,
		names:  map[vitals.Name][]byte{},
		flags:  map[vitals.FlagSet][]byte{},
	}
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
	required(p.device)
	required(parquet.Int64Value(r.TimeUnixMs))
	minutes, known := r.UTCOffset.Minutes()
	optional(parquet.Int32Value(int32(minutes)), known)
	for s := range vitals.Sign(vitals.NumSigns) {
		v, ok := r.Values.Get(s)
		optional(parquet.DoubleValue(float64(v)/100), ok)
	}
	if r.Gateway == nil {
		optional(parquet.Value{}, false)
	} else {
		name := p.names[*r.Gateway]
		if name == nil {
			name = r.Gateway.AppendTo(nil)
			p.names[*r.Gateway] = name
		}
		optional(parquet.ByteArrayValue(name), true)
	}
	required(parquet.Int64Value(r.ReceivedUnixMs))
	if p.limits != nil {
		set := p.limits.Flags(&r.Values)
		optional(parquet.ByteArrayValue(p.flagsText(set)), set != 0)
	}
	return row
}

func (p *parquetSink) flagsText(set vitals.FlagSet) []byte {
	text, ok := p.flags[set]
	if !ok {
		text = appendFlagCell(nil, set)[len(","):]
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
