package pgstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// A snapshot says which transactions PostgreSQL's snapshot of that moment sees, by their 64-bit numbers: those before
// next that were not running.
type snapshot struct {
	next    int64
	running []int64 // ascending, each before next
}

// firstTransaction is before the numbers of all transactions.
const firstTransaction = 3

// parseSnapshot parses the text of a pg_snapshot.
func parseSnapshot(text string) (s snapshot, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, errTypes
	}
	if s.next, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return s, errTypes
	}
	for number := range strings.SplitSeq(parts[2], ",") {
		if number == "" {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n >= s.next {
			return s, errTypes
		}
		s.running = append(s.running, n)
	}
	slices.Sort(s.running)
	return s, nil
}

// encode returns the form that positions have: next, and how far before it each running transaction is.
func (s *snapshot) encode() string {
	b := binary.AppendUvarint(nil, uint64(s.next))
	for _, n := range s.running {
		b = binary.AppendUvarint(b, uint64(s.next-n))
	}
	return string(b)
}

// decodeSnapshot returns the snapshot of a position.
func decodeSnapshot(text string) (s snapshot, err error) {
	bad := fmt.Errorf("%w: its snapshot", storage.ErrUnknownPosition)
	for b := []byte(text); len(b) > 0; {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxInt64 || s.next > 0 && (v == 0 || int64(v) >= s.next) {
			return s, bad
		}
		if s.next == 0 {
			s.next = int64(v)
		} else {
			s.running = append(s.running, s.next-int64(v))
		}
		b = b[n:]
	}
	if s.next == 0 {
		return s, bad
	}
	return s, nil
}

// since returns a number that no transaction is below that to sees and s does not.
//
// A reading that was sealed, or unsealed, has the number of the latest reading of its segment, or of the transaction
// that unsealed it. So it may have a number that s sees although s does not see its own, which is not below since
// either. What still runs has stored nothing that to sees: a transaction that runs for long does not make readings
// return again and again.
func (s *snapshot) since(to *snapshot) int64 {
	if late := s.late(to, 0, s.next); len(late) > 0 {
		return late[0]
	}
	return s.next
}

// late returns the transactions from one number to another, exclusive, that to sees and that s does not although they
// had begun: their numbers, ascending.
func (s *snapshot) late(to *snapshot, from, end int64) []int64 {
	late := []int64{}
	for _, n := range s.running {
		if _, runs := slices.BinarySearch(to.running, n); !runs && from <= n && n < end {
			late = append(late, n)
		}
	}
	return late
}
