// Package recording reads files of readings: CSV with columns of any name, and
// NDJSON as Pulsegate exports it.
//
// # Promise
//
// Every row of a file is accounted for: it becomes a reading, it is counted as
// holding no sign, or it is reported as a [RowError] that names the line, the
// field and the reason. Empty cells, and zeros that mean "no signal" on a
// monitor, are left out; the zeros are counted. No value is changed.
//
// # Not here
//
// No ranges: whether a value is plausible is for the server to say. No HTTP.
package recording
