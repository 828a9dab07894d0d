// Package query implements the read API: devices, the latest value of each sign of a
// device, and the readings of a time range, one by one or in buckets, as JSON, NDJSON, CSV
// or Parquet. It serves the same of a subject, to whom devices were assigned.
//
// # Promise
//
// Responses are streamed: a range of any length needs memory for only one chunk of
// records, or for one row group of Parquet, and a slow client pins nothing in the store. Pages are stable: a cursor
// names the last key shown, so that concurrent writes neither repeat nor hide existing
// readings. If a response cannot be completed, the connection is closed, so that the
// client detects it.
//
// Every request needs the read right, which is checked first. A client sees only the
// devices that its token covers, as if there were no others. Of a subject, it sees only what was measured during
// its assignments, and only if it may see all of that.
//
// # Not here
//
// No storage: a [Reader] and a [Lister] provide the records. No alarms: flags mark
// unusual values for human readers, but Pulsegate is not an alarm system.
package query
