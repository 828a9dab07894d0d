package recording

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// RejectedColumns are the columns that come before those of a CSV file in a file of its rejected rows. Readers ignore
// them.
const RejectedColumns = "rejected_line,rejected_field,rejected_reason,"

// AppendRejected appends a row that was rejected, as the file has it, to a file of the same format, with the line, the
// field, which may be "", and the reason. The delimiter is that of the cells of CSV. After a row has been corrected
// there, a Reader reads it as that of the file.
func AppendRejected(dst []byte, format string, delimiter byte, row []byte, line int, field, reason string) []byte {
	if format == CSV { // its cells need no quotes, so that Text can cut them off
		cell := strings.NewReplacer(",", ";", `"`, "'")
		if delimiter == ';' {
			cell = strings.NewReplacer(";", ",", `"`, "'")
		}
		return fmt.Appendf(dst, "%[1]d%[2]c%[3]s%[2]c%[4]s%[2]c%[5]s\n", line, delimiter, cell.Replace(field),
			cell.Replace(reason), row)
	}
	if format == XML {
		quoted := func(text string) string {
			var b bytes.Buffer
			_ = xml.EscapeText(&b, []byte(text)) // a Buffer returns no error
			return b.String()
		}
		return fmt.Appendf(dst, "<rejected line=\"%d\" field=\"%s\" reason=\"%s\">%s</rejected>\n", line, quoted(field),
			quoted(reason), row)
	}
	object := jsontext.Value(row)
	kind := object.Kind()
	switch {
	case format == JSON && (kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray) &&
		object.IsValid(lenient):
		object = bytes.Clone(object)
		_ = object.Compact(lenient) // to one line; it is valid
	case kind != jsontext.KindBeginObject || !object.IsValid():
		object, _ = jsontext.AppendQuote(nil, row) // bytes that are not UTF-8 are replaced
	}
	quoted := func(text string) []byte {
		b, _ := jsontext.AppendQuote(nil, text)
		return b
	}
	return fmt.Appendf(dst, `{"rejected":{"line":%d,"field":%s,"reason":%s},"row":%s}`+"\n", line, quoted(field),
		quoted(reason), object)
}

// rejectedRow returns the row of a line of NDJSON that AppendRejected has written, and any other line unchanged.
func rejectedRow(line []byte) []byte {
	var wrapped struct {
		Row jsontext.Value `json:"row"`
	}
	if !bytes.HasPrefix(line, []byte(`{"rejected":`)) || json.Unmarshal(line, &wrapped) != nil || wrapped.Row == nil {
		return line
	}
	if wrapped.Row.Kind() == jsontext.KindString {
		wrapped.Row, _ = jsontext.AppendUnquote(nil, wrapped.Row) // it is valid
	}
	return wrapped.Row
}

// A tape keeps what is read from a file until it is cut off.
type tape struct {
	file io.Reader
	kept []byte
	at   int64 // offset of kept in the file
}

func (t *tape) Read(p []byte) (int, error) {
	n, err := t.file.Read(p)
	t.kept = append(t.kept, p[:n]...)
	return n, err
}

// cut cuts off the text up to an offset and returns it without the ends of lines around it.
func (t *tape) cut(offset int64) []byte {
	n := offset - t.at
	text := t.kept[:n]
	t.kept, t.at = t.kept[n:], offset
	return bytes.Trim(text, "\r\n")
}
