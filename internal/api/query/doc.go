// Package query is the read side of the service: devices, the latest value of
// each sign of a device, and the readings of a time range as JSON, NDJSON or CSV.
//
// # Promise
//
// An answer is written while it is read: a range of any length needs one page of
// records in memory, and nothing in the store stays pinned while a slow client
// reads. Pages are stable: the cursor of a page names the last key shown, so
// that writes in between neither repeat nor hide what was there. An answer that
// could not be finished is cut off, so that its framing tells.
//
// Who asks is asked for the right to read before anything else is looked at, and
// gets to see the devices that his token is for, as if there were no others.
//
// # Not here
//
// No storage: a [Reader] and a [Lister] give the records. No alarms: flags mark
// unusual values for a reader's eye, and Pulsegate is not an alarm system.
package query
