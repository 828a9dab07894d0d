package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// The file SCRUB holds the progress of the scrub:
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
const (
	scrubHeader   = "pulsegate scrub 1\n"
	maxScrubBytes = 64 << 10

	// maxScrubBad bounds the number of failed tables in the file. The next pass finds the
	// others again.
	maxScrubBad = 1000
)

// A scrubState is the content of SCRUB.
type scrubState struct {
	begunUnixMs int64    // start of the pass; 0 means no pass has started
	endedUnixMs int64    // end of the last complete pass; 0 means there is none
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
func (st *scrubState) rest(files []datadir.Table) []datadir.Table {
	from, _ := slices.BinarySearchFunc(files, st.next, compareNumber)
	to, _ := slices.BinarySearchFunc(files, st.last+1, compareNumber)
	return files[from:max(from, to)]
}

func (st *scrubState) text() []byte {
	b := fmt.Appendf(nil, scrubHeader+"begun %d\ntables %d to %d\nended %d\n", st.begunUnixMs, st.next, st.last,
		st.endedUnixMs)
	for _, number := range st.bad {
		b = fmt.Appendf(b, "bad %d\n", number)
	}
	return fmt.Appendf(b, "end %08x\n", datadir.Checksum(b))
}

// parseScrub parses a text that scrubState.text has returned. Any other text is damaged.
func parseScrub(text []byte) (*scrubState, error) {
	st := &scrubState{}
	head, bad, _ := strings.Cut(string(text), "\nbad ")
	_, err := fmt.Sscanf(head, scrubHeader+"begun %d\ntables %d to %d\nended %d\n", &st.begunUnixMs, &st.next, &st.last,
		&st.endedUnixMs)
	for line := range strings.SplitSeq(bad, "\nbad ") {
		var number uint64
		if _, err := fmt.Sscanf(line, "%d\n", &number); err == nil {
			st.bad = append(st.bad, number)
		}
	}
	if err != nil || len(st.bad) > maxScrubBad || !bytes.Equal(st.text(), text) {
		return nil, fmt.Errorf("%w: file %s is damaged", storage.ErrCorrupt, datadir.ScrubFile)
	}
	return st, nil
}

// readScrub returns the progress of the scrub. After an error, or if the file is missing,
// it returns a zero state.
func readScrub(d *datadir.Dir) (*scrubState, error) {
	text, err := datadir.ReadSmall(d.FS, d.File(datadir.ScrubFile), maxScrubBytes)
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

// write stores the progress.
func (st *scrubState) write(d *datadir.Dir) error {
	return datadir.Replace(d.FS, d.Path, datadir.ScrubFile, st.text())
}
