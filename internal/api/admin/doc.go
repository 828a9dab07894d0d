// Package admin is what is done to a store while it serves: backups and erasures,
// which an administrator asks for over HTTP, and the removal of old readings, which
// goes on by itself.
//
// # Promise
//
//   - A backup that is answered to its end is whole; one that fails on its way ends in
//     a connection that is cut.
//   - An erasure that is answered with 200 is done, for good, and recorded. It goes on
//     when whoever asked for it is gone.
//   - A server whose clock is ahead by years removes a fortieth of what it keeps too many,
//     and not all, while fewer than a fiftieth of the devices and fewer than two agree
//     with it; and where more do, a tenth of its readings with each run.
//
// # Not here
//
// No decision about who may ask: see the caller. No files, no tables: the store does
// the work.
package admin
