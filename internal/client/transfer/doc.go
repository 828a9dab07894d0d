// Package transfer moves readings between files and a running server: it sends
// what a recording holds, and fetches what the server stores. It also asks the admin
// listener for what administrators may do.
//
// # Promise
//
// Every reading of a recording ends up counted once: stored, duplicate, rejected
// or failed. A batch that was not answered is sent again; the server answers
// what it stored the first time as duplicates, so that repeating is safe. An
// export that broke off is reported as an error, never as a short file.
//
// # Not here
//
// No load: package sim measures. No file formats: package recording reads them.
package transfer
