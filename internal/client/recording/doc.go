// Package recording reads files of readings: CSV with columns of any name, NDJSON as Pulsegate exports it, and other
// CSV, NDJSON, JSON and XML as shapes describe them. Documents may be of any size: they are read as streams.
//
// # Promise
//
// Every row of a file is accounted for: it becomes a reading, it is counted as having
// no vital sign, or it is reported as a [RowError] with the line, the field and the
// reason. Empty cells, null and zeros, which mean "no signal" on a monitor, are skipped; the
// zeros are counted. No value is changed.
//
// # Not here
//
// No ranges: the server decides whether a value is plausible. No HTTP.
package recording
