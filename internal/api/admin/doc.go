// Package admin maintains a store while it serves: backups and erasures, which an
// administrator requests over HTTP, and the periodic removal of old readings.
//
// # Promise
//
//   - A backup that is received completely is valid. If a backup fails, the connection
//     is closed.
//   - An erasure that is answered with 200 is permanent and recorded. It continues if
//     the client disconnects.
//   - A clock that is years ahead does not erase everything. Unless a fiftieth of the
//     devices, and at least two, agree with the clock, only readings within the last
//     fortieth of the retention period before their due time are removed too early.
//     Otherwise, each run removes at most a tenth of the readings.
//
// # Not here
//
// No authorization: the caller decides who may access the handlers. No files and no
// tables: the store does the work.
package admin
