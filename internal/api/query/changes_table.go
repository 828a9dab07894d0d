package query

import (
	"io"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A changeTable writes changes as CSV or Parquet, a row each.
type changeTable struct {
	text    *changeText
	signs   []vitals.Sign // that have a column
	columns []parquetColumn
	row     parquet.Row
	file    *parquet.GenericWriter[any] // nil for CSV
}

// Types of columns. They are never modified.
var (
	textColumn    = parquetColumn{zero: (*string)(nil), tag: ",optional,dict"}
	timeColumn    = parquetColumn{zero: (*int64)(nil), tag: ",optional,timestamp(millisecond:utc)"}
	integerColumn = parquetColumn{zero: (*int32)(nil), tag: ",optional,dict"}
	valueColumn   = parquetColumn{zero: (*float64)(nil), tag: ",optional,dict"}
)

// Columns before those of signs, in their order.
const (
	columnKind = iota
	columnDevice
	columnTime
	columnReceived
	columnChanged
	columnOffset
	columnGateway
	columnSubject
	columnFrom
	columnTo
	columnSigns
	columnCopy
	columnDefinition
	numChangeColumns
)

// newChangeTable returns a table of changes with columns for the signs that are defined now. It writes to out if it is
// Parquet.
func newChangeTable(format feedFormat, text *changeText, out io.Writer) *changeTable {
	t := &changeTable{text: text, columns: make([]parquetColumn, numChangeColumns)}
	name := func(of parquetColumn, name string) parquetColumn {
		of.name = name
		return of
	}
	for i, field := range [numChangeColumns]string{"kind", "device", "time", "received", "changed",
		"utc_offset_minutes", "gateway",
		"subject", "from", "to", "signs", "copy", "definition"} {
		of := textColumn
		switch i {
		case columnTime, columnReceived, columnChanged, columnFrom, columnTo:
			of = timeColumn
		case columnOffset:
			of = integerColumn
		}
		t.columns[i] = name(of, field)
	}
	for s, d := range text.signs.All() {
		t.signs = append(t.signs, s)
		t.columns = append(t.columns, name(valueColumn, d.Field))
	}
	if format == feedFormat(Parquet) {
		t.file = parquet.NewGenericWriter[any](&pieces{out}, parquetOptions(columnsSchema("changes", t.columns))...)
	}
	return t
}

// has reports whether the table has a column for each sign of some changes. Others were defined since.
func (t *changeTable) has(changes []storage.Change) bool {
	known := uint32(0)
	for _, s := range t.signs {
		known |= 1 << s
	}
	for i := range changes {
		if (changes[i].Signs|changes[i].Record.Values.Present())&^known != 0 {
			return false
		}
	}
	return true
}

// appendHead appends the header of CSV.
func (t *changeTable) appendHead(dst []byte) []byte {
	for i := range t.columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, t.columns[i].name...)
	}
	return append(dst, "\r\n"...)
}

// add appends a change as a row of CSV to dst, or writes it to the file of Parquet.
func (t *changeTable) add(dst []byte, c *storage.Change) ([]byte, error) {
	t.fill(c)
	if t.file != nil {
		_, err := t.file.WriteRows([]parquet.Row{t.row})
		return dst, err
	}
	for i, v := range t.row {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case v.IsNull():
		case t.columns[i].zero == timeColumn.zero:
			dst = vitals.AppendTime(dst, v.Int64())
		case t.columns[i].zero == integerColumn.zero:
			dst = strconv.AppendInt(dst, int64(v.Int32()), 10)
		case i == columnDefinition: // the only one with commas and quotes
			dst = append(append(append(dst, '"'), strings.ReplaceAll(v.String(), `"`, `""`)...), '"')
		case i < numChangeColumns:
			dst = append(dst, v.ByteArray()...)
		default:
			s := t.signs[i-numChangeColumns]
			value, _ := c.Record.Values.Get(s)
			d := t.text.signs.Of(s)
			dst = appendFloat(dst, d, value, d.Decimals > 0)
		}
	}
	return append(dst, "\r\n"...), nil
}

// fill sets the row of a change.
func (t *changeTable) fill(c *storage.Change) {
	t.row = t.row[:0]
	for i := range t.columns {
		t.row = append(t.row, parquet.NullValue().Level(0, 0, i))
	}
	set := func(i int, v parquet.Value) { t.row[i] = v.Level(0, 1, i) }
	text := func(i int, s string) { set(i, parquet.ByteArrayValue([]byte(s))) }
	text(columnKind, changeNames[c.Kind])
	if !c.Device.IsZero() {
		text(columnDevice, c.Device.String())
	}
	switch c.Kind {
	case storage.ChangedReading:
		t.fillReading(c, set)
	case storage.ChangeAssigned, storage.ChangeUnassigned:
		set(columnFrom, parquet.Int64Value(c.FromUnixMs))
	case storage.ChangeErased:
		subjects := make([]string, len(c.Subjects))
		for i, s := range c.Subjects {
			subjects[i] = string(s)
		}
		if len(subjects) > 0 {
			text(columnSubject, strings.Join(subjects, ";"))
		}
		if c.FromUnixMs > 0 {
			set(columnFrom, parquet.Int64Value(c.FromUnixMs))
		}
		var fields []string
		for s := range vitals.InOrder(c.Signs) {
			fields = append(fields, t.text.signs.Field(s))
		}
		if len(fields) > 0 {
			text(columnSigns, strings.Join(fields, ";"))
		}
	case storage.ChangeSign:
		for s := range vitals.InOrder(c.Signs) { // one
			text(columnSigns, t.text.signs.Field(s))
			text(columnDefinition, "{"+string(t.text.appendDefinition(nil, t.text.signs.Of(s))[len(","):])+"}")
		}
	case storage.ChangeBegin, storage.ChangeComplete:
		text(columnCopy, strconv.FormatUint(c.Copy, 16))
	}
	spans := c.Kind == storage.ChangeAssigned || c.Kind == storage.ChangeUnassigned || c.Kind == storage.ChangeErased
	if c.Kind == storage.ChangeExpired || spans && c.ToUnixMs != storage.OpenEnd {
		set(columnTo, parquet.Int64Value(c.ToUnixMs))
	}
	if c.Subject != "" {
		text(columnSubject, string(c.Subject))
	}
}

// fillReading sets the columns of a reading.
func (t *changeTable) fillReading(c *storage.Change, set func(int, parquet.Value)) {
	r := &c.Record
	set(columnTime, parquet.Int64Value(r.TimeUnixMs))
	set(columnReceived, parquet.Int64Value(r.ReceivedUnixMs))
	set(columnChanged, parquet.Int64Value(max(r.ChangedUnixMs, r.ReceivedUnixMs)))
	if minutes, ok := r.UTCOffset.Minutes(); ok {
		set(columnOffset, parquet.Int32Value(int32(minutes)))
	}
	if r.Gateway != nil {
		set(columnGateway, parquet.ByteArrayValue(r.Gateway.AppendTo(nil)))
	}
	for i, s := range t.signs {
		if v, ok := r.Values.Get(s); ok {
			set(numChangeColumns+i, parquet.DoubleValue(t.text.signs.Of(s).Float64(v)))
		}
	}
}

// close writes the end of a file of Parquet.
func (t *changeTable) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}
