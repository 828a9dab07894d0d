package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// scrubFile holds the progress of the scrub:
//
//	pulsegate scrub 1
//	begun 1763805600000
//	tables 124 to 560
//	ended 1763200812345
//	bad 97
//	end 4a17b9ff
//
// The last line has the CRC-32C of everything before it. The other lines are the start of the
// pass, the range of table numbers that it has yet to verify, the end of the last complete
// pass, and one line for each table that failed. Times are Unix milliseconds.
//
// No reading depends on this file: if it is missing or damaged, a new pass starts. It is
// therefore neither in the list of files nor in backups.
const scrubFile = "SCRUB"

const (
	scrubHeader   = "pulsegate scrub 1\n"
	maxScrubBytes = 64 << 10

	// maxScrubBad bounds the number of failed tables in the file. The next pass finds the
	// others again.
	maxScrubBad = 1000
)

// A scrubState is the content of scrubFile.
type scrubState struct {
	begunUnixMs int64    // start of the pass; 0: no pass has started
	endedUnixMs int64    // end of the last complete pass; 0: there is none
	next, last  uint64   // the pass has yet to verify tables next to last; both 0: no pass is running
	bad         []uint64 // tables that failed
}

func (st *scrubState) begin(nowUnixMs int64, last uint64) {
	st.begunUnixMs, st.next, st.last = nowUnixMs, 1, last
}

func (st *scrubState) end(nowUnixMs int64) { st.endedUnixMs, st.next, st.last = nowUnixMs, 0, 0 }

// underWay reports whether a pass has begun and not ended.
func (st *scrubState) underWay() bool { return st.next > 0 }

// rest returns the files that the pass has yet to verify. Files must be sorted by number.
func (st *scrubState) rest(files []tableFile) []tableFile {
	from, _ := slices.BinarySearchFunc(files, st.next, compareNumber)
	to, _ := slices.BinarySearchFunc(files, st.last+1, compareNumber)
	return files[from:max(from, to)]
}

func (st *scrubState) text() []byte {
	b := fmt.Appendf(nil, scrubHeader+"begun %d\ntables %d to %d\nended %d\n", st.begunUnixMs, st.next, st.last, st.endedUnixMs)
	for _, number := range st.bad {
		b = fmt.Appendf(b, "bad %d\n", number)
	}
	return fmt.Appendf(b, "end %08x\n", checksum(b))
}

// parseScrub parses a text that scrubState.text has returned. Any other text is damaged.
func parseScrub(text []byte) (*scrubState, error) {
	st := &scrubState{}
	head, bad, _ := strings.Cut(string(text), "\nbad ")
	_, err := fmt.Sscanf(head, scrubHeader+"begun %d\ntables %d to %d\nended %d\n", &st.begunUnixMs, &st.next, &st.last, &st.endedUnixMs)
	for line := range strings.SplitSeq(bad, "\nbad ") {
		var number uint64
		if _, err := fmt.Sscanf(line, "%d\n", &number); err == nil {
			st.bad = append(st.bad, number)
		}
	}
	if err != nil || len(st.bad) > maxScrubBad || !bytes.Equal(st.text(), text) {
		return nil, fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, scrubFile)
	}
	return st, nil
}

// readScrub returns the progress of the scrub. After an error, or if the file is missing,
// it returns a zero state.
func (d *directory) readScrub() (*scrubState, error) {
	text, err := readSmallFile(d.fs, d.fs.PathJoin(d.path, scrubFile), maxScrubBytes)
	if err == nil {
		var st *scrubState
		if st, err = parseScrub(text); err == nil {
			return st, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return &scrubState{}, err
}

func (d *directory) writeScrub(st *scrubState) error {
	if err := d.intact(); err != nil {
		return err
	}
	return replaceFile(d.fs, d.path, scrubFile, st.text())
}
