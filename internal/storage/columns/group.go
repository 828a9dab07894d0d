package columns

import (
	"encoding/binary"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Run is the rows of one device within a group.
type Run struct {
	Device vitals.Name
	Rows   int // number of rows; at least 1
}

// nameEscape is the greatest length that a half byte may have: the length minus nameEscape
// follows.
const nameEscape = 15

// AppendGroup appends a group to dst: the rows of the first run, then those of the second
// and so on. It panics if there is no row or more than MaxGroupRows, if the names are not
// strictly increasing, if the runs' times are not, if the runs do not have all rows, or if a
// row is invalid; see [Row].
func AppendGroup(dst []byte, runs []Run, rows []Row) []byte {
	if len(rows) == 0 || len(rows) > MaxGroupRows || len(runs) > len(rows) {
		panic("columns: invalid number of rows")
	}
	if !runsInOrder(runs, rows) {
		panic("columns: runs are not in order or do not have all rows")
	}
	start := len(dst)
	dst = append(dst, groupTag)
	dst = binary.AppendUvarint(dst, uint64(len(rows)-1))
	dst = binary.AppendUvarint(dst, uint64(len(rows)-len(runs)))
	if len(runs) < len(rows) {
		dst = appendLengths(dst, runs)
	}
	dst = appendNames(dst, runs)
	dst = binary.AppendUvarint(dst, uint64(rows[0].TimeUnixMs))
	return appendChecksum(appendBody(dst, rows), start)
}

// DecodeGroup appends the group b to runs and rows. It allocates only if these lack the
// capacity. It does not retain b. Its guarantees are those of [DecodeSegment].
func DecodeGroup(b []byte, runs []Run, rows []Row) ([]Run, []Row, error) {
	r := checked(b, groupTag)
	n, fewer := r.uvarint(), r.uvarint()
	// A block of rows has at least two bytes in each of three columns, a device has two.
	if n >= MaxGroupRows || fewer > n || n/blockLen > uint64(len(r.b))/6 || n+1-fewer > uint64(len(r.b))/2 {
		r.fail(errCount)
	}
	if r.err != nil {
		return runs, rows, r.err
	}
	devices := int(n + 1 - fewer)
	allRuns := slices.Grow(runs, devices)[:len(runs)+devices]
	newRuns := allRuns[len(runs):]
	clear(newRuns)
	allRows, newRows := growRows(rows, int(n+1))
	if fewer == 0 {
		for i := range newRuns {
			newRuns[i].Rows = 1
		}
	} else {
		r.lengths(newRuns, len(newRows))
	}
	r.names(newRuns)
	newRows[0].TimeUnixMs = int64(r.uvarint())
	r.body(newRows)
	if err := r.end(); err != nil {
		return runs, rows, err
	}
	for rest, i := newRows, 0; i < len(newRuns); i++ {
		k := newRuns[i].Rows
		if !inOrder(rest[:k]) {
			return runs, rows, errTime
		}
		rest = rest[k:]
	}
	return allRuns, allRows, nil
}

// runsInOrder reports whether runs and rows form a group, except for the names.
func runsInOrder(runs []Run, rows []Row) bool {
	for i := range runs {
		r := &runs[i]
		if r.Rows < 1 || r.Rows > len(rows) {
			return false
		}
		if !inOrder(rows[:r.Rows]) {
			return false
		}
		rows = rows[r.Rows:]
	}
	return len(rows) == 0
}

// appendLengths appends the numbers of rows minus 1.
func appendLengths(dst []byte, runs []Run) []byte {
	var v block
	for len(runs) > 0 {
		n := min(len(runs), blockLen)
		for i := range runs[:n] {
			v[i] = int64(runs[i].Rows - 1)
		}
		dst = appendBlock(append(dst, 0), len(dst), v[:n], makePlan(v[:n]))
		runs = runs[n:]
	}
	return dst
}

// lengths decodes the numbers of rows, whose sum is total.
func (r *reader) lengths(runs []Run, total int) {
	var v block
	for len(runs) > 0 && r.err == nil {
		n := min(len(runs), blockLen)
		if second := r.block(v[:n], nil); second {
			r.fail(errBlock)
		}
		for i, x := range v[:n] {
			if x < 0 || x >= int64(total) {
				r.fail(errCount)
				return
			}
			runs[i].Rows = int(x) + 1
			total -= int(x) + 1
		}
		runs = runs[n:]
	}
	if total != 0 {
		r.fail(errCount)
	}
}

// appendNames appends the names. Each is written as the number of bytes to cut off the end
// of the name before it and the bytes to append.
func appendNames(dst []byte, runs []Run) []byte {
	var before []byte
	for i := range runs {
		name := runs[i].Device.Bytes()
		same := 0
		for same < len(before) && same < len(name) && before[same] == name[same] {
			same++
		}
		if same == len(name) || same < len(before) && name[same] < before[same] {
			panic("columns: names are not in order")
		}
		cut, added := len(before)-same, len(name)-same-1
		dst = append(dst, byte(min(cut, nameEscape)<<4|min(added, nameEscape)))
		if cut >= nameEscape {
			dst = append(dst, byte(cut-nameEscape))
		}
		if added >= nameEscape {
			dst = append(dst, byte(added-nameEscape))
		}
		dst = append(dst, name[same:]...)
		before = name
	}
	return dst
}

// names decodes the names.
func (r *reader) names(runs []Run) {
	var buf [vitals.MaxNameBytes]byte
	name := buf[:0]
	for i := range runs {
		head := r.byte()
		cut, added := int(head>>4), int(head&15)
		for _, n := range []*int{&cut, &added} {
			if *n == nameEscape {
				*n += int(r.byte())
			}
		}
		tail := r.take(added + 1)
		same := len(name) - cut
		if r.err == nil && (same < 0 || same+len(tail) > vitals.MaxNameBytes || cut > 0 && tail[0] <= name[same]) {
			r.fail(errName)
		}
		if r.err != nil {
			return
		}
		name = append(name[:same], tail...)
		var err error
		if runs[i].Device, err = vitals.ParseName(name); err != nil {
			r.fail(errName)
			return
		}
	}
}
