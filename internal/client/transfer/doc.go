// Package transfer moves readings between files and a running server: it uploads
// recordings, and downloads stored readings and latest values. It is also the client of the
// admin listener.
//
// # Promise
//
// Every reading of a recording is counted once: as stored, duplicate, rejected or
// failed. A batch without an answer is retried, which is safe because the server
// reports readings that it has already stored as duplicates. An incomplete download is
// an error, never a short file.
//
// # Not here
//
// No load tests: see package sim. No file formats: see package recording.
package transfer
