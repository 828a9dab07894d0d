package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # Fatal errors in Pebble
//
// A commit returns the error of its log: see committer.write. In all other places Pebble calls
// Logger.Fatalf, or panics while its locks are inconsistent, and relies on these calls
// not returning: otherwise, a flush whose manifest was not synced would write to the
// manifest again and delete logs that only the lost record makes obsolete. The
// goroutine is one of Pebble's, or one of the store's inside a call to Pebble. So the
// alarm reports the failure to the operator and blocks that goroutine, with the locks
// that it holds, until Options.OnFatal ends the process.
//
// In two places Pebble returns the error itself, and the goroutine continues: in the
// creation of a store, and when Close closes the log.

// An alarm records that the store has failed, and reports it to the operator once.
// Everything that can detect a failure shares it, from the start of Open.
type alarm struct {
	dir     string
	log     *slog.Logger
	onFatal func(message string) // Options.OnFatal

	creating atomic.Bool // Pebble creates the files of a new store
	closing  atomic.Bool // Close has begun

	// cause is the reason for which no further group is accepted, or nil. It is set
	// before the failure is reported.
	cause atomic.Pointer[error]

	// reporting is held while the failure is reported; it guards reported.
	reporting sync.Mutex
	reported  bool
}

// rejectGroups rejects all further groups.
func (a *alarm) rejectGroups(cause error) { a.cause.CompareAndSwap(nil, &cause) }

// raise rejects all further groups and reports the failure, once.
func (a *alarm) raise(cause string) {
	a.reporting.Lock()
	defer a.reporting.Unlock() // also if Options.OnFatal ends the goroutine
	if a.reported {
		return
	}
	a.reported = true
	a.rejectGroups(errors.New(cause))
	a.log.Error("store failed", "dir", a.dir, "cause", cause)
	a.onFatal(fmt.Sprintf("The store in %s can no longer be written: %s. "+
		"All acknowledged readings are on stable storage; readings that were not acknowledged may be missing and should be "+
		"sent again. "+
		"Check the disk, then restart. \"pulsegate check %s\" verifies what is stored.", a.dir, cause, a.dir))
}

// err returns nil, or after a failure an error that wraps storage.ErrFailed.
func (a *alarm) err() error {
	if cause := a.cause.Load(); cause != nil {
		return fmt.Errorf("%w: %w", storage.ErrFailed, *cause)
	}
	return nil
}

// reportedErr is like err, for a caller that returns the error: it waits until
// Options.OnFatal has returned, so that no caller sees a failure earlier.
// TestFatalComesFirst checks it.
func (a *alarm) reportedErr() error {
	if a.cause.Load() == nil {
		return nil
	}
	a.reporting.Lock()
	defer a.reporting.Unlock()
	return a.err()
}

// block blocks until the process ends.
func (a *alarm) block() { select {} }

// RaiseAndBlock is raise for places where Pebble calls Logger.Fatalf. It does not return, except
// while a store is created.
func (a *alarm) RaiseAndBlock(cause string) {
	a.raise(cause)
	if !a.creating.Load() {
		a.block()
	}
}

// RaiseBeforePanic is raise for places after which Pebble panics and unlocks an unlocked
// mutex. It does not return, except during Close.
func (a *alarm) RaiseBeforePanic(cause string) {
	a.raise(cause)
	if !a.closing.Load() {
		a.block()
	}
}
