// Package migrate moves the contents of one store to another.
//
// # Promise
//
// When [Run] returns nil, the target has every record of the source and no other, each with the
// same time, time of receipt, values, offset from UTC and gateway, and the same answer to whether
// another gateway has completed it (see Withholding in package storage). Run has read both stores
// to the end for that. The target has the source's assignments of devices to subjects, too, if
// the stores keep them.
//
// A run that ended early, however it ended, is continued by running it again: there is no state
// but the target itself.
//
// # How
//
//  1. Compare both stores, device by device, each in the order of time. The target may lack
//     records of the source. If it has anything that the source does not have, Run returns
//     [ErrDiffers], and has written nothing.
//  2. Append the records of each device that lacks any, in their order.
//  3. Compare again. Now the target may lack nothing.
//
// A record that several gateways have completed is appended as two readings: the first sign
// without a gateway, then the others with the record's gateway. The store makes the same record
// of them.
//
// # Not here
//
// No other process may change either store meanwhile. Stores see to that; Run asks those with a
// method Alone whether it was so.
package migrate
