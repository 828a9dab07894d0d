package audit

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// ErrCorrupt means that a log differs from what was written. The wrapping error names
// the line.
var ErrCorrupt = errors.New("the audit log was damaged or changed")

// A FileReport describes one file of a log.
type FileReport struct {
	Path      string
	FirstSeq  uint64
	LastSeq   uint64
	TornBytes int64 // bytes of an incomplete last record; only the file in use may have them
}

// A LogReport describes all files of a log.
type LogReport struct {
	Files   []FileReport // oldest first
	Records uint64
	Chain   string // of the last record

	// Removed is the number of records before the first one whose files were removed by
	// someone else than a [Log], which keeps DefaultKeep older files.
	Removed uint64

	// Set if a key was given.
	Signed   uint64 // record with the newest signature; no record before it was changed
	SignedAt string // time in that record
	Others   int    // number of signatures of other keys, which prove nothing
	Head     bool   // the key has a head file, and no record up to its record is missing
}

// errUnsigned means that a log has no signature of the key.
var errUnsigned = fmt.Errorf("%w: it has no signature of this key", ErrCorrupt)

// VerifyLog verifies all files of the log at path. It returns an error that wraps
// [ErrCorrupt] if a line was changed, or if a file does not follow the one before it.
// With a key, it also does so if a signed record is missing, or if no record is signed. A
// nil key verifies only the chain.
func VerifyLog(path string, key *Key) (LogReport, error) {
	var report LogReport
	files, err := filesOf(path)
	if err != nil {
		return report, err
	}
	var head mark
	if key != nil {
		if head, report.Head, err = key.readHead(); err != nil {
			return report, err
		}
	}
	var end mark
	for i, path := range files {
		p, torn, err := report.verifyFile(path, key, head)
		if err != nil {
			return report, fmt.Errorf("verify audit log %s: %w", path, err)
		}
		if i > 0 && p.before() != end {
			return report, fmt.Errorf("%w: %s does not follow %s", ErrCorrupt, path, files[i-1])
		}
		end = p.mark
		report.Files = append(report.Files, FileReport{path, p.before().seq + 1, p.seq, torn})
		report.Records += p.lines
	}
	report.Chain = hex.EncodeToString(end.chain[:])
	// A crash during a rotation may leave one file fewer.
	if first := report.Files[0].FirstSeq; first > 1 && len(files) < DefaultKeep {
		report.Removed = first - 1
	}
	switch {
	case report.Head && end.seq < head.seq:
		return report, fmt.Errorf("%w: it ends with record %d, but record %d was signed", ErrCorrupt, end.seq, head.seq)
	case key != nil && report.Signed == 0:
		return report, errUnsigned
	}
	return report, nil
}

// verifyFile verifies a file, and notes its signatures.
func (r *LogReport) verifyFile(path string, key *Key, head mark) (p position, torn int64, err error) {
	file, err := sharedfile.Open(path)
	if err != nil {
		return p, 0, err
	}
	defer file.Close()
	torn, err = p.scan(file, func(before, at mark, line []byte) error {
		if at.seq == head.seq && at.chain != head.chain {
			return fmt.Errorf("%w: record %d differs from the one that was signed", ErrCorrupt, at.seq)
		}
		if key == nil || !bytes.Contains(line, []byte(signedKey)) {
			return nil
		}
		return r.takeSignature(key, before, at, line)
	})
	return p, torn, err
}

// signedKey occurs in every log.signed record and in no other record, because names
// contain no quotes.
const signedKey = `"event":"log.signed","key":"`

// takeSignature verifies a log.signed record.
func (r *LogReport) takeSignature(key *Key, before, at mark, line []byte) error {
	if field(line, "key") != key.ID() {
		r.Others++
		return nil
	}
	signature, err := base64.StdEncoding.DecodeString(field(line, "signature"))
	if err != nil || !key.signed(before, signature) {
		return fmt.Errorf("%w: record %d is not signed by the key that it names", ErrCorrupt, at.seq)
	}
	r.Signed, r.SignedAt = at.seq, field(line, "time")
	return nil
}

// field returns a text field of a record, or "" if there is none. No field contains a
// quote.
func field(line []byte, name string) string {
	_, rest, _ := bytes.Cut(line, []byte(`,"`+name+`":"`))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text)
}

// A mark identifies a record and, through the chain, all records before it. The zero
// mark is the one before the first record.
type mark struct {
	seq   uint64
	chain chain
}

// gone returns the error for a log that no longer contains m.
func (m mark) gone() error {
	return fmt.Errorf("%w: record %d is missing", ErrCorrupt, m.seq)
}

// A position is how far a file has been read or written. The zero position is its
// beginning.
type position struct {
	mark  // the last record
	bytes int64
	last  int64 // size of the last record in bytes
	prior chain // chain before the last record
	lines uint64
	prev  chain // the one before the first record
}

// before returns the mark before the first record of the file.
func (p *position) before() mark { return mark{p.seq - p.lines, p.prev} }

// beforeLast returns the position of the last record.
func (p *position) beforeLast() position {
	return position{mark{p.seq - 1, p.prior}, p.bytes - p.last, 0, chain{}, p.lines - 1, p.prev}
}

// Bounds of a line.
const (
	maxLineBytes = 2048
	maxTornBytes = 64 << 10
)

// scan advances p over the valid lines at the beginning of r, and returns the number of
// bytes after them that a crash has left. If a crash cannot explain these bytes, it
// returns an error that wraps ErrCorrupt. It calls each with every valid line, and stops
// at its first error.
func (p *position) scan(r io.Reader, each func(before, at mark, line []byte) error) (torn int64, err error) {
	in := bufio.NewReaderSize(r, maxLineBytes)
	for {
		before := p.mark
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return 0, nil
		}
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, err
		}
		if err != nil || !p.take(line) {
			return p.rest(line, in)
		}
		if p.lines == 1 {
			before = p.before()
		}
		if err := each(before, p.mark, line); err != nil {
			return 0, err
		}
	}
}

// take advances p over line, if line is the valid next record.
func (p *position) take(line []byte) bool {
	head, seq, sum, ok := cutLine(line)
	if !ok || p.lines > 0 && seq != p.seq+1 {
		return false
	}
	before := p.chain
	if p.lines == 0 {
		_, text, ok := bytes.Cut(head, []byte(`,"prev":"`))
		if !ok || !decodeChain(&before, bytes.TrimSuffix(text, []byte(`"`))) {
			return false
		}
	}
	if before.next(head) != sum {
		return false
	}
	if p.lines == 0 {
		p.prev = before
	}
	p.bytes += int64(len(line))
	p.last, p.prior = int64(len(line)), before
	p.lines, p.seq, p.chain = p.lines+1, seq, sum
	return true
}

// rest classifies what follows the last valid line: bad, and the remainder of in.
func (p *position) rest(bad []byte, in *bufio.Reader) (torn int64, err error) {
	damaged := fmt.Errorf("%w: line %d", ErrCorrupt, p.lines+1)
	if p.lines == 0 { // a log always has a valid first record: this is another kind of file
		return 0, damaged
	}
	text := append([]byte(nil), bad...)
	more, err := io.ReadAll(io.LimitReader(in, maxTornBytes+1))
	if err != nil {
		return 0, err
	}
	text = append(text, more...)
	if len(text) > maxTornBytes {
		return 0, damaged
	}
	for line := range bytes.Lines(text) {
		if _, _, _, ok := cutLine(line); ok {
			return 0, damaged
		}
	}
	return int64(len(text)), nil
}

// cutLine splits a well-formed line. It does not verify the chain.
func cutLine(line []byte) (head []byte, seq uint64, sum chain, ok bool) {
	line, ok = bytes.CutSuffix(line, []byte("\"}\n"))
	at := len(line) + len("\"}") - chainTail
	if !ok || at < 0 {
		return nil, 0, sum, false
	}
	head, tail := line[:at], line[at:]
	digits, isRecord := bytes.CutPrefix(head, []byte(`{"seq":`))
	tail, isChain := bytes.CutPrefix(tail, []byte(chainKey))
	if !isRecord || !isChain || !decodeChain(&sum, tail) {
		return nil, 0, sum, false
	}
	digits, _, _ = bytes.Cut(digits, []byte{','})
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return head, seq, sum, err == nil
}

// decodeChain accepts only lower-case hexadecimal digits, so that a chain has one
// spelling.
func decodeChain(dst *chain, text []byte) bool {
	if len(text) != 2*len(dst) || bytes.ContainsAny(text, "ABCDEF") {
		return false
	}
	_, err := hex.Decode(dst[:], text)
	return err == nil
}
