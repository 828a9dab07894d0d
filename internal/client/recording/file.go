package recording

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Formats of files.
const (
	CSV    = "csv"
	NDJSON = "ndjson"
	JSON   = "json" // a document, which only shapes describe
	XML    = "xml"  // likewise
)

// FormatOf returns the format for a file name's extension, or for the one before .gz or .zst, or "" if it is unknown.
func FormatOf(name string) string {
	name = strings.ToLower(name)
	for _, compressed := range []string{".gz", ".zst"} {
		name = strings.TrimSuffix(name, compressed)
	}
	switch filepath.Ext(name) {
	case ".csv":
		return CSV
	case ".ndjson", ".jsonl":
		return NDJSON
	case ".json":
		return JSON
	case ".xml":
		return XML
	}
	return ""
}

// withoutMark skips the byte order mark with which some programs begin a file.
func withoutMark(file *bufio.Reader) *bufio.Reader {
	const mark = "\ufeff"
	if start, _ := file.Peek(len(mark)); string(start) == mark {
		_, _ = file.Discard(len(mark)) // it is buffered
	}
	return file
}

// DetectFormat returns the format that the first byte of a file shows, and a reader of
// the whole file.
func DetectFormat(file io.Reader) (format string, whole io.Reader, err error) {
	in := withoutMark(bufio.NewReader(file))
	start, err := in.Peek(1)
	if err != nil && err != io.EOF {
		return "", nil, err
	}
	if string(start) == "{" {
		return NDJSON, in, nil
	}
	return CSV, in, nil
}

// New returns a Reader of a file in one of the formats: [NewCSV] or [NewNDJSON].
func New(file io.Reader, format string, opt Options) (Reader, error) {
	if format == NDJSON {
		return NewNDJSON(file, opt), nil
	}
	return NewCSV(file, opt)
}

// NewShifted is like [New], but shifts all times so that the newest one becomes
// newestUnixMs, and rejects integers that look like seconds. It first reads the whole file, and calls visit, which may
// be nil, with the file's time of each reading.
func NewShifted(file io.ReadSeeker, format string, opt Options, newestUnixMs int64, visit func(unixMs int64)) (Reader,
	error) {
	opt.shifted = true
	reader, err := New(file, format, opt)
	if err != nil {
		return nil, err
	}
	newest, err := newestOf(reader, visit)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("find the newest time: %w", err)
	}
	opt.ShiftMs += newestUnixMs - newest
	return New(file, format, opt)
}
