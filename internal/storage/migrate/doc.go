// Package migrate moves the contents of one store to another.
//
// # Promise
//
// When [Run] returns nil, the target has every record of the source and no other, each with the
// same time, time of receipt, values, offset from UTC, gateway, and mark that another gateway has
// completed it (see Withholding in package storage). Run verifies that by reading both stores to
// the end. The target also has the source's assignments of devices to subjects, if the stores keep
// them.
//
// To continue a run that ended early for any reason, call Run again: the only state is the target
// itself.
//
// Signs of a user's own may have other numbers in the target. The target is opened with the
// [Definitions] of the source, and keeps them. A target in which a sign has another unit or other
// decimals is refused.
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
// No exclusion: no other process may change either store during a run. The stores ensure that;
// Run checks it with those that have a method Alone.
package migrate
