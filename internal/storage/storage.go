// Package storage says what a store of readings promises. It holds the contract,
// its types and its errors; the stores themselves are packages below it, and
// storetest is the suite that each of them passes.
//
// # The contract
//
// Identity. A value is identified by device, time and sign. Readings of one
// device and time are one record, whichever gateway sent them.
//
// Settling. Append settles readings one after another, in the order in which
// they stand in the group, each as if it had been committed alone:
//
//   - a reading of a device and time that the store does not hold is [Stored];
//   - one that brings at least one sign that the record lacks, and contradicts
//     none that it holds, completes the record and is [Completed];
//   - one that brings nothing new and contradicts nothing is a [Duplicate];
//   - one of which any sign contradicts the record is a [Conflict]. It is refused
//     whole: signs that the record lacks are not taken from it;
//   - one whose record cannot be read is [Unreadable]. It is refused, and the others
//     of its group are settled.
//
// The first part decides a record's time of receipt. A record's gateway is the
// first one that a part named which was stored or completed the record; duplicates
// and conflicts leave it alone. It alone is kept: no store has room for the gateways
// of later parts.
//
// Withholding. The outcome of a reading shows its writer whether a guessed value is the
// stored one. An entry with a [Guard] bounds that: it is compared with a record of
// another gateway that has a sign in common with it only if the Guard agrees, and is
// [Withheld] otherwise. A record without a gateway's name, and one that others than its
// gateway have completed, is another gateway's.
//
// Durability. When Append returns nil, every outcome is set, and everything that
// the outcomes say is on stable storage. When it returns an error that wraps
// [ErrNotWritten], nothing of the group was written or ever will be. After any
// other error the outcome of the group is unknown, and the store has failed: it
// accepts no further group until it is opened again.
//
// Atomicity. After a crash, each reading of a group that was not acknowledged is
// either there whole or not at all.
//
// Reading. Latest, Scan and Devices show durable data only: what they return
// will be returned again after any crash. They may run beside Append and beside
// each other.
//
// Removal. Nothing is ever removed but by a [Remover]. What Erase or Expire has removed
// when it returns nil is gone for readers and for Append, and stays gone after any
// crash: a reading of the same device and time is new. A device without a reading is
// not known any more and does not count for a bound on devices; a sign whose latest
// value was removed is not known. After a crash, each reading that was being removed
// is there whole or not at all.
//
// Order. Devices come in the order of their names' bytes, records of a device in
// the order of their times. Both orders are strict, so that a page ends at a key
// and the next page starts right behind it: no record is shown twice, and none
// that was there when the first page was read is left out, whatever is written
// in between, unless it was removed.
//
// # Not here
//
// No validation of values: a store takes readings that vitals has accepted. It
// refuses only what would break its keys, see [Store.Append]. No time of its own:
// the caller says when a reading was received.
package storage

import (
	"context"
	"errors"

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of a store. Each may be wrapped; compare with errors.Is.
var (
	// ErrNotWritten is wrapped by every error of Append after which nothing of
	// the group was written.
	ErrNotWritten = errors.New("storage: nothing was written")

	// ErrDiskLow means that too little space is left to write safely. It comes
	// with ErrNotWritten. The store takes writes again when space returns.
	ErrDiskLow = errors.New("storage: disk space is low")

	// ErrFailed means that an earlier write failed and that the store must be
	// opened again before it takes another.
	ErrFailed = errors.New("storage: failed")

	// ErrClosed means that the store was closed. With Append it comes with
	// ErrNotWritten.
	ErrClosed = errors.New("storage: closed")

	// ErrLocked means that another process has the store open.
	ErrLocked = errors.New("storage: in use by another process")

	// ErrCorrupt means that stored bytes do not carry what was written. The
	// wrapping error names the place.
	ErrCorrupt = errors.New("storage: corrupt")

	// ErrFormat means that a place holds something that is not a store, or a
	// store that another version wrote. It was left as it was.
	ErrFormat = errors.New("storage: not a store of this version")

	// ErrNotFound means that the store holds nothing of that device.
	ErrNotFound = errors.New("storage: no such device")

	// ErrBusy means that a backup or an erasure is under way, beside which no other
	// may begin: a backup would hold what is being erased.
	ErrBusy = errors.New("storage: busy")

	// ErrUnfinished means that an erasure has begun and was not finished.
	ErrUnfinished = errors.New("storage: the erasure is not finished")
)

// An Outcome tells how a reading was settled.
type Outcome uint8

// The outcomes. The zero Outcome means "not settled".
const (
	Stored         Outcome = 1 + iota // the first of its device and time
	Completed                         // brought further signs to a stored record
	Duplicate                         // brought nothing new
	Conflict                          // contradicted the record; refused whole
	TooManyDevices                    // a new device beyond the configured number; refused
	AwkwardName                       // a new device with an awkward name, see [vitals.Name.IsAwkward]; refused
	Withheld                          // not compared with the record, for its Guard; refused
	Unreadable                        // what may be stored at its device and time cannot be read; refused
)

// A Guard bounds what a writer who may not read learns of values that other gateways
// wrote. It is called by Append, perhaps from many goroutines; it must not block.
type Guard interface {
	// Take is called before a reading is compared, as if it were a conflict. It
	// reports whether the reading may be.
	Take() bool

	// Return is called when a reading was compared and is no conflict.
	Return()
}

// An Entry is one reading of a group and what became of it.
type Entry struct {
	Reading        *vitals.Reading // not modified by the store, not retained after Append
	ReceivedUnixMs int64           // the server's clock when the reading came in
	Guard          Guard           // asked by Append; nil: the reading is compared with every record
	Outcome        Outcome         // set by Append
	Sign           vitals.Sign     // set by Append with Conflict: the first sign that contradicts
}

// A Record is one reading as it is stored.
type Record struct {
	vitals.Reading
	ReceivedUnixMs int64 // when its first part came in
}

// A Latest is the newest value of one sign of a device.
type Latest struct {
	TimeUnixMs int64 // when it was measured
	Value      vitals.Hundredths
	Known      bool // false: the device has never sent this sign
}

// A Device is what is known of one device.
type Device struct {
	Name         vitals.Name
	NewestUnixMs int64                   // time of its newest record
	Latest       [vitals.NumSigns]Latest // by sign
}

// A Range asks for the records of one device with FromUnixMs <= time < ToUnixMs.
type Range struct {
	Device     vitals.Name
	FromUnixMs int64
	ToUnixMs   int64
	Descending bool // newest first
}

// A Store keeps readings. The package comment states the contract.
//
// Consumers declare the part that they need; this interface is what storetest
// asks of a store.
type Store interface {
	// Append settles group and makes it durable, with one sync; a group that
	// changes nothing needs none. Only one Append runs at a time. It ignores what
	// Outcome and Sign held before, and retains neither group nor its entries.
	// After an error, Outcome and Sign mean nothing.
	//
	// A group with a reading that has no device, no value or a negative time is
	// refused whole, with ErrNotWritten.
	Append(group []*Entry) error

	// Latest returns what is known of a device, or ErrNotFound. It and the two
	// calls below return the error of a ctx that has ended.
	Latest(ctx context.Context, device vitals.Name) (Device, error)

	// Scan fills dst with the first records of r, in r's order, and returns how
	// many there are. A number below len(dst) means that r holds no more. To go
	// on, move the bound of r past the last record's time.
	Scan(ctx context.Context, r Range, dst []Record) (int, error)

	// Devices fills dst with the devices whose names sort after after (the zero
	// Name: with the first ones) and returns how many there are. A number below
	// len(dst) means that there are no more.
	Devices(ctx context.Context, after vitals.Name, dst []Device) (int, error)

	// Close waits for the running Append and for readers, and closes the store.
	// The calls after it, a second Close included, return ErrClosed.
	Close() error
}

// An Erasure is what [Remover.Erase] has removed.
type Erasure struct {
	Device   vitals.Name
	Readings int64 // that were stored of it
}

// An Expiry is what [Remover.Expire] has removed.
type Expiry struct {
	Readings int64
	Devices  int64 // of which no reading is left
	More     bool  // the bound was reached; more may be due
}

// A Remover is a store from which readings can be removed. Its methods may run beside
// all others.
type Remover interface {
	// Erase removes all readings of a device. Readings of the device that Append
	// takes meanwhile may be removed as well, or stay. After an error that wraps
	// ErrUnfinished it has begun, and may have removed them. After any other
	// nothing was removed; it is ErrNotFound when the store holds nothing of it. Of a
	// device without readings, whose bytes the store may still hold, it removes those
	// and returns 0 readings.
	Erase(device vitals.Name) (Erasure, error)

	// Expire removes the readings with a time before beforeUnixMs, at most so many:
	// device by device in their order, and those of a device oldest first. Readings
	// that Append takes meanwhile may stay. When it returns an error, that of a ctx that
	// has ended for example, it has removed what it says, and more may be left.
	Expire(ctx context.Context, beforeUnixMs, atMost int64) (Expiry, error)
}
