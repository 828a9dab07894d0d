// Package storage defines the contract of a store of readings, with its types and
// errors. The stores themselves are packages below it, and storetest is the suite
// that each of them passes.
//
// # The contract
//
// Identity. A value is identified by device, time and sign. Readings of one
// device and time are one record, whichever gateway sent them.
//
// Settling. Append settles the readings of a group one after another, in their order
// in the group, each as if it had been committed alone:
//
//   - a reading of a device and time that the store does not hold is [Stored];
//   - a reading that adds at least one sign to the stored record, and contradicts
//     none of the record's signs, is [Completed];
//   - a reading that adds nothing and contradicts nothing is a [Duplicate];
//   - a reading with any sign that contradicts the record is a [Conflict]. It is
//     rejected as a whole: none of its other signs is added to the record;
//   - a reading whose record cannot be read is [Unreadable]. It is rejected; the
//     other readings of its group are settled;
//   - a reading of a time that the store cannot write now is [Unavailable]. It is rejected,
//     nothing of it was written, and it may be appended again later; the other readings of its
//     group are settled.
//
// A record's time of receipt is that of the first reading stored in it, and the time at which it was changed that of
// the last one that completed it. Its gateway is
// the one named by the first reading that named any and was stored or completed the
// record; duplicates and conflicts do not change it. The gateways of later readings
// are not kept. The same holds for the offset from UTC of a record's time, by itself: the
// gateway and the offset of a record may be those of different readings.
//
// Withholding. The outcome of a reading shows its writer whether a guessed value is the
// stored one. An entry with a [Guard] bounds such guessing: if its reading shares a sign
// with a record of another gateway, the two are compared only if the Guard agrees;
// otherwise the reading is [Withheld]. A record counts as another gateway's if it names
// no gateway, or if a gateway other than the one it names has completed it.
//
// Claims. An entry with a [Claim] says who wears its device. The claim is settled with the reading, in the same
// atomic step: it may reject the reading, and may make, or end, an assignment of the device if the reading is stored.
//
// Durability. When Append returns nil, every outcome is set, and everything that
// the outcomes report is on stable storage. When it returns an error that wraps
// [ErrNotWritten], nothing of the group was written or ever will be. After any
// other error the outcome of the group is unknown. If that error wraps [ErrFailed], the
// store has failed: it accepts no further group until it is opened again. Otherwise it
// accepts further groups, and the same readings may be appended again: those that were
// stored are then duplicates of themselves.
//
// A store that is reached over a network may try a group again whose outcome is unknown. A
// reading that an earlier attempt has stored, or that cannot be told from such a one, is then
// [Stored], and one that an earlier attempt may have completed is [Completed].
//
// Atomicity. After a crash, and after an unknown outcome, each reading, and each unit, of an
// unacknowledged group is either stored as a whole or not at all. The readings of a unit, see
// [Entry], are settled together: if one of them is rejected, none is stored.
//
// Nodes. Some stores may be opened several times, each time by another process. What one of
// them stores is seen by all, and each reading is settled as if all their groups had been
// appended one after the other: the first of two contradicting readings is kept, whichever
// node it reaches.
//
// Reading. Latest, Scan and Devices return durable data only: what they return
// will be returned again after any crash. They may run concurrently with Append and
// with each other.
//
// Removal. Only a [Remover] removes readings. What it has removed when it
// returns nil is gone for readers and for Append, and stays gone after any crash: a
// later reading of the same device and time is new, and so is a later value of a removed
// one. A device without readings is no longer known and does not count towards a bound on devices; a sign whose latest
// value was removed is not known. After a crash, each reading that was being removed is either stored as a whole or
// gone, or has lost all the values that were being removed.
//
// Changes. A store that implements [Changes] can be copied, and a copy kept up with it: see [NextChanges].
//
// Order. Devices are sorted by the bytes of their names, records of a device by
// their times. Both orders are strict, so a page ends at a key and the next page
// starts immediately after it: no record is returned twice, and every record that
// was stored when the first page was read is returned, whatever is written in
// between, unless it was removed.
//
// # Not here
//
// No validation of values: a store takes readings that vitals has accepted. It
// rejects only what would break its keys, see [Store.Append]. No clock: the caller
// passes the time at which a reading was received. A store may make that time later, so that
// what it stores later has not been received, or changed, earlier, whatever clocks do.
package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of a store. Each may be wrapped; compare with errors.Is.
var (
	// ErrNotWritten is wrapped by every error of Append after which nothing of
	// the group was written.
	ErrNotWritten = errors.New("nothing was written")

	// ErrDiskLow means that too little disk space is left to write safely. It comes
	// with ErrNotWritten. The store accepts writes again once there is enough space.
	ErrDiskLow = errors.New("disk space is low")

	// ErrFailed means that an earlier write failed and that the store must be
	// opened again before it accepts another one.
	ErrFailed = errors.New("the store has failed")

	// ErrClosed means that the store was closed. With Append it comes with
	// ErrNotWritten.
	ErrClosed = errors.New("the store is closed")

	// ErrLocked means that another process has the store open.
	ErrLocked = errors.New("the store is in use by another process")

	// ErrCorrupt means that stored bytes differ from what was written. The
	// wrapping error names the place.
	ErrCorrupt = errors.New("corrupt")

	// ErrFormat means that a directory holds something other than a store, or a
	// store written by another version. The directory was left unchanged.
	ErrFormat = errors.New("no usable store")

	// ErrNotFound means that the store holds no readings of the device.
	ErrNotFound = errors.New("no such device")

	// ErrBusy means that a backup or an erasure is in progress. No other may begin
	// before it ends: a backup would contain what is being erased.
	ErrBusy = errors.New("the store is busy")

	// ErrUnavailable means that readings of some time cannot be read now. The wrapping error names what holds them up.
	ErrUnavailable = errors.New("readings of some time cannot be read now")

	// ErrRemoved means that readings were removed while they were read.
	ErrRemoved = errors.New("readings were removed while they were read")

	// ErrUnfinished means that an erasure began and was not finished.
	ErrUnfinished = errors.New("the erasure is not finished")
)

// An Outcome is the result of settling a reading.
type Outcome uint8

// The outcomes. The zero Outcome means "not settled".
const (
	Stored         Outcome = 1 + iota // the first of its device and time
	Completed                         // added signs to a stored record; see also Entry.Relayed
	Duplicate                         // added nothing
	Conflict                          // contradicted the record; rejected as a whole
	TooManyDevices                    // a new device or gateway beyond the configured number; rejected
	AwkwardName                       // a new device with an awkward name, see [vitals.Name.IsAwkward]; rejected
	Withheld                          // not compared with the record, because of its Guard; rejected
	// the record of its device and time, or its device's assignments, cannot be read; rejected
	Unreadable
	Unavailable // the store cannot write readings of its time now; rejected

	// With a [Claim]. All are rejected.
	OtherSubject       // the device was assigned to another subject at that time
	TooManyAssignments // the device has no room for one more, see [MaxAssignments]
	Unrecorded         // an assignment would change, and Recorded is not set
)

// A Guard bounds what a writer without the read right learns about values that other
// gateways wrote. Append calls it, perhaps from many goroutines; it must not block.
type Guard interface {
	// Take is called before a reading is compared, and reports whether it may be.
	// It counts the reading as a conflict.
	Take() bool

	// Return undoes Take after a comparison that found no conflict.
	Return()
}

// An Entry is one reading of a group, with its outcome.
type Entry struct {
	Reading *vitals.Reading // not modified by the store, not retained after Append
	// the server's clock when the reading arrived; Append may make it later, by some seconds
	ReceivedUnixMs int64
	Guard          Guard       // called by Append; nil means the reading is compared with every record
	Outcome        Outcome     // set by Append
	Sign           vitals.Sign // set by Append with Conflict: the first sign that contradicts
	Recorded       bool        // the change of an assignment to which Claim may lead is recorded
	Momentary      bool        // set by Append with Unrecorded: the assignment would last for a millisecond

	// Unit is the number of entries of a unit that begins with this one. All readings of a unit are
	// stored, or none. It is 0 in the others, and in an entry that is settled by itself.
	Unit int32

	Claim *Claim // nil means none; not in a unit of several entries

	// Relayed means that another server hands the reading over, and names its gateway. The Guard is then asked whichever
	// gateway has sent the record, and a reading that would be a Duplicate, but has a gateway or an offset that the record
	// lacks, is Completed: the record gets it.
	Relayed bool
}

// CheckGroup returns an error if a store must reject a group as a whole. See [Store.Append].
func CheckGroup(group []*Entry, signs *vitals.Signs) error {
	known := signs.Known()
	for i, e := range group {
		switch r := e.Reading; {
		case r.Device.IsZero():
			return fmt.Errorf("reading %d has no device", i)
		case r.Values.IsZero() && (e.Claim == nil || e.Claim.Unknown || e.Claim.Subject != ""):
			return fmt.Errorf("reading %d has no value", i)
		case r.Values.Present()&^known != 0:
			return fmt.Errorf("reading %d has an unknown sign", i)
		case r.TimeUnixMs < 0:
			return fmt.Errorf("reading %d has a time before 1970", i)
		case e.Unit > 1 &&
			slices.ContainsFunc(group[i:min(i+int(e.Unit), len(group))], func(e *Entry) bool { return e.Claim != nil }):
			return fmt.Errorf("the unit of reading %d has a claim", i)
		case int(e.Unit) > len(group)-i:
			return fmt.Errorf("the unit of reading %d exceeds the group", i)
		}
	}
	return nil
}

// UnitLen returns the number of entries from the first of group on that are settled together: those
// of its unit, or one.
func UnitLen(group []*Entry) int { return max(int(group[0].Unit), 1) }

// Merge settles the values of a reading, given those of the record of its device and time. It returns
// the values of the record afterwards, or with Conflict the first sign that contradicts.
func Merge(record, reading *vitals.Values) (merged vitals.Values, sign vitals.Sign, outcome Outcome) {
	merged, outcome = *record, Duplicate
	for s, v := range reading.All() {
		old, held := record.Get(s)
		switch {
		case !held:
			merged.Set(s, v)
			outcome = Completed
		case old != v:
			return vitals.Values{}, s, Conflict
		}
	}
	return merged, 0, outcome
}

// A Record is the stored form of the readings of one device and time. It does not name
// the device, which the caller of Scan knows.
type Record struct {
	TimeUnixMs     int64
	ReceivedUnixMs int64 // when the first of its readings arrived
	ChangedUnixMs  int64 // when the last one arrived that completed it; 0 if none did after ReceivedUnixMs
	Values         vitals.Values
	UTCOffset      vitals.UTCOffset
	Gateway        *vitals.Name // nil means none; records may share it, and it is never modified
	Shared         bool         // a gateway other than the one named has completed it
}

// A Latest is the newest value of one sign of a device.
type Latest struct {
	TimeUnixMs int64            // when it was measured
	UTCOffset  vitals.UTCOffset // of the time; that of its record
	Value      vitals.Value
	Known      bool // false: the device has never sent this sign
}

// A Device is a summary of one device.
type Device struct {
	Name         vitals.Name
	NewestUnixMs int64                   // time of its newest record
	Latest       [vitals.MaxSigns]Latest // by sign
}

// A Range selects the records of one device with FromUnixMs <= time < ToUnixMs.
type Range struct {
	Device     vitals.Name
	FromUnixMs int64
	ToUnixMs   int64
	Descending bool // newest first
}

// A Scanner reads the records of a Range with several calls of Scan. Its zero value with a Range is ready for use.
type Scanner struct {
	Range
	last  Record // read last
	begun bool   // there is one
}

// Next reads the next records into buffer, which must have room for at least two. It returns them, and whether there
// may be more. The error wraps [ErrRemoved] if the record that was read last is no longer stored: what was read before
// and what follows would be no state that the store ever had.
func (s *Scanner) Next(ctx context.Context, scan func(context.Context, Range, []Record) (int, error),
	buffer []Record) (records []Record, more bool, err error) {
	n, err := scan(ctx, s.Range, buffer)
	if err != nil {
		return nil, false, fmt.Errorf("scan readings: %w", err)
	}
	records, more = buffer[:n], n == len(buffer)
	if s.begun {
		if n == 0 || records[0].TimeUnixMs != s.last.TimeUnixMs || records[0].ReceivedUnixMs != s.last.ReceivedUnixMs {
			return nil, false, ErrRemoved
		}
		records = records[1:]
	}
	if len(records) > 0 {
		s.last, s.begun = records[len(records)-1], true
		if s.Descending {
			s.ToUnixMs = s.last.TimeUnixMs + 1
		} else {
			s.FromUnixMs = s.last.TimeUnixMs
		}
	}
	return records, more, nil
}

// A Store keeps readings. The package comment states the contract.
//
// Consumers declare the methods that they need; this interface is what storetest
// requires of a store.
type Store interface {
	// Append settles group and makes it durable with as few syncs as possible, at best
	// one. Unless the store permits it, Append must not be called concurrently with itself;
	// groups that are appended concurrently are settled in any order, but each device's
	// readings in their order in the group. It ignores the previous Outcome and Sign of
	// each entry, and retains neither group nor its entries. After an error, Outcome and
	// Sign are undefined.
	//
	// The readings of a unit (see Entry.Unit) are settled in their order like others, until one is
	// rejected: then nothing of the unit is stored, that one has its Outcome, and the others have
	// the Outcome 0. A store may find first which readings are TooManyDevices, AwkwardName or Unavailable.
	//
	// A group with a reading that has no device, no value or a negative time, or with a unit that is
	// cut off, is rejected as a whole, with ErrNotWritten.
	Append(group []*Entry) error

	// Latest returns the summary of a device, or ErrNotFound. Latest, Scan and
	// Devices return ctx's error if ctx has ended.
	Latest(ctx context.Context, device vitals.Name) (Device, error)

	// Scan fills dst with the first records of r, in r's order, and returns their
	// number. A number below len(dst) means that r holds no more. To continue,
	// move the bound of r past the last record's time.
	Scan(ctx context.Context, r Range, dst []Record) (int, error)

	// Devices fills dst with the first devices whose names sort after the name
	// after, and returns their number. The zero Name sorts before all others. A
	// number below len(dst) means that there are no more devices.
	Devices(ctx context.Context, after vitals.Name, dst []Device) (int, error)

	// Signs returns the table of the signs that the store has or accepts. It is the same at every
	// call; a store that others share may add signs that they have defined.
	Signs() *vitals.Signs

	// Close waits for the running Append and for readers, and closes the store.
	// All later calls, a second Close included, return ErrClosed.
	Close() error
}

// An Erasure is what [Remover.Erase], [Remover.EraseAssignment] or [Remover.EraseValues] has removed.
type Erasure struct {
	Device   vitals.Name
	Readings int64 // number of the device's readings, also of those that have lost only some of their signs

	// The assignment of EraseAssignment, or the times of EraseValues. Both times are 0 if the device was erased.
	Subject              Subject
	FromUnixMs, ToUnixMs int64

	// What EraseValues removes of these times.
	Signs   uint32      // presence of the signs whose values are removed; 0 means all
	Gateway vitals.Name // if not zero, only readings that name it, and that no other gateway has completed
	Shared  bool        // with Gateway: also those that another gateway has completed
}

// OfValues reports whether e is an erasure of [Remover.EraseValues].
func (e *Erasure) OfValues() bool { return e.Subject == "" && e.ToUnixMs != 0 }

// Validate returns ErrNotFound or ErrPeriod unless e may be passed to [Remover.EraseValues].
func (e *Erasure) Validate() error {
	if e.Device.IsZero() {
		return ErrNotFound
	}
	if e.FromUnixMs < 0 || e.FromUnixMs >= e.ToUnixMs {
		return ErrPeriod
	}
	return nil
}

// Selects reports whether e, an erasure of values, removes values of a record of its device. If not, shared reports
// whether that is only because another gateway has completed the record.
func (e *Erasure) Selects(r *Record) (removed, shared bool) {
	ofTime := e.FromUnixMs <= r.TimeUnixMs && r.TimeUnixMs < e.ToUnixMs
	if !ofTime || e.Signs != 0 && r.Values.Present()&e.Signs == 0 {
		return false, false
	}
	if e.Gateway.IsZero() {
		return true, false
	}
	if r.Gateway == nil || *r.Gateway != e.Gateway {
		return false, false
	}
	return e.Shared || !r.Shared, r.Shared && !e.Shared
}

// Left returns the values that e, an erasure of values, leaves of those of a reading.
func (e *Erasure) Left(values *vitals.Values) (left vitals.Values) {
	if e.Signs == 0 {
		return left
	}
	for s, v := range values.All() {
		if e.Signs&(1<<s) == 0 {
			left.Set(s, v)
		}
	}
	return left
}

// An Expiry is what [Remover.Expire] has removed.
type Expiry struct {
	Readings int64
	Devices  int64 // devices that have no readings left
	More     bool  // the bound was reached; more readings may have expired
}

// A Remover is a store from which readings can be removed. Its methods may run
// concurrently with all others.
type Remover interface {
	// Erase removes all readings of a device, and its assignments. Readings of the device that Append
	// stores during the call may be removed as well, or stay. After an error that wraps
	// ErrUnfinished, the removal has begun and readings may be gone. After any other
	// error nothing was removed; the error is ErrNotFound if the store holds nothing
	// of the device. If the device has no readings but the store may still hold bytes
	// of removed ones, or has assignments, Erase removes those and returns 0 readings.
	Erase(device vitals.Name) (Erasure, error)

	// EraseAssignment removes the assignment with the device, subject and beginning of a, and the readings that the
	// device measured during it. It is like Erase in all other respects; the error is ErrNotAssigned if there is no such
	// assignment. If a names no device, the call is about all assignments of its subject. It erases none: the caller
	// erases the existing ones one by one, and the store only notes the erasure, as below.
	//
	// A store that restores what a database has forgotten notes what Erase, EraseAssignment and EndAssignment did not
	// find, and removes or ends it when it is restored.
	EraseAssignment(a Assignment) (Erasure, error)

	// EraseValues removes values that a device measured from FromUnixMs to ToUnixMs of e, as far as e selects them; see
	// [Erasure]. A reading without a value left is removed, and what is left of another one stays as it is. Assignments
	// stay. It is like Erase in all other respects; the error is that of [Erasure.Validate], or ErrNotFound if the
	// device has no readings.
	EraseValues(e Erasure) (Erasure, error)

	// Expire removes at most atMost readings with a time before beforeUnixMs, device
	// by device in their order, the oldest readings of a device first. Readings that
	// Append stores during the call may stay. If Expire returns an error, such as that of a
	// ctx that has ended, the Expiry holds what was removed, and more may be left.
	Expire(ctx context.Context, beforeUnixMs, atMost int64) (Expiry, error)
}
