package pgstore

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// SQLSTATE codes that are handled.
const (
	noTable   = "42P01"
	noSchema  = "3F000"
	forgotten = "PU001" // of the function refuse of the schema: the database lacks what was acknowledged
	// of the same: readings that were not looked up in segments may be in one, or some were removed since
	outdated         = "PU002"
	duplicateKey     = "23505" // of the statement insert: another node has stored a reading that was expected to be new
	noPartition      = "23514"
	readOnly         = "25006"
	serialization    = "40001"
	deadlock         = "40P01"
	diskFull         = "53100"
	tooManyConns     = "53300"
	notPrepared      = "55000"
	inUse            = "55006"
	lockNotAvailable = "55P03"
	canceled         = "57014"
	startingUp       = "57P03"
	dataCorrupted    = "XX001"
)

// errWarning means that PostgreSQL has sent a warning during a commit.
var errWarning = errors.New("PostgreSQL warned during the commit, which may not be replicated")

// A fate is what an error says about a transaction.
type fate uint8

const (
	rolledBack  fate = 1 + iota // try again
	rejected                    // nothing was written, and trying again does not help
	unreachable                 // nothing was sent
	unknown                     // it may be committed
)

// fateOf returns the fate of a transaction that ended with err.
func fateOf(err error) fate {
	if _, ok := errors.AsType[*acquireError](err); ok {
		return unreachable
	}
	if _, ok := errors.AsType[*closedError](err); ok || errors.Is(err, errUnseen) {
		return rolledBack
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.SeverityUnlocalized != "ERROR" {
		return unknown
	}
	switch pg.Code {
	case outdated, noPartition, readOnly, forgotten, serialization, deadlock, tooManyConns, lockNotAvailable,
		canceled, startingUp:
		return rolledBack
	}
	return rejected
}

// An acquireError is the error of a connection that could not be made.
type acquireError struct{ err error }

func (e *acquireError) Error() string { return "connect to PostgreSQL: " + e.err.Error() }
func (e *acquireError) Unwrap() error { return e.err }

// A hidden error has a text without data. Messages of PostgreSQL may quote values.
type hidden struct {
	text string
	err  error
}

func (e *hidden) Error() string { return e.text }
func (e *hidden) Unwrap() error { return e.err }

// quotable are the classes of SQLSTATE codes whose messages are about the server. Others, about data
// exceptions, constraints and triggers, quote data.
const quotable = "08 25 28 3D 40 42 53 54 55 57 58 PU XX"

// hide returns err with a text that contains no values.
func hide(err error) error {
	if errors.Is(err, ErrForgot) {
		return &hidden{ErrForgot.Error(), err}
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	text := fmt.Sprintf("PostgreSQL: %s, SQLSTATE %s", pg.SeverityUnlocalized, pg.Code)
	if len(pg.Code) == 5 && strings.Contains(quotable, pg.Code[:2]) {
		text += ": " + pg.Message
	}
	return &hidden{text, err}
}

// diskLow adds storage.ErrDiskLow to an error that says that the server's disk is full.
func diskLow(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == diskFull {
		return fmt.Errorf("%w: %w", storage.ErrDiskLow, err)
	}
	return err
}

// stateText matches SQLSTATE codes.
var stateText = regexp.MustCompile(`^[0-9A-Z]{5}$`)

// sqlState returns the SQLSTATE of err for a metric's label, or why there is none.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if !stateText.MatchString(pg.Code) {
			return otherState
		}
		return pg.Code
	}
	switch {
	case errors.Is(err, errWarning):
		return "warning"
	case errors.Is(err, errUnseen):
		return "partitions"
	case fateOf(err) == unreachable:
		return "unreachable"
	}
	return "connection"
}
