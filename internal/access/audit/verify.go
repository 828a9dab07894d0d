package audit

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// ErrCorrupt means that a log does not hold what was written. The wrapping error
// names the line.
var ErrCorrupt = errors.New("audit: the log was damaged or changed")

// A Report tells what a file of the log holds.
type Report struct {
	Records   uint64
	FirstSeq  uint64
	LastSeq   uint64
	Prev      string // the chain before the first record, in hexadecimal digits
	Chain     string // that of the last record
	TornBytes int64  // at the end, of a record that was cut off; only a file that is in use may have them
}

// Verify reads one file of a log. It returns an error that wraps [ErrCorrupt] when
// a line is not what was written. Two files follow one another when the Prev of
// one is the Chain of the other.
func Verify(r io.Reader) (Report, error) {
	var p position
	torn, err := p.scan(r)
	if err != nil {
		return Report{}, err
	}
	report := Report{Records: p.lines, LastSeq: p.seq, TornBytes: torn}
	if p.lines > 0 {
		report.FirstSeq = p.seq - p.lines + 1
		report.Prev, report.Chain = hex.EncodeToString(p.prev[:]), hex.EncodeToString(p.chain[:])
	}
	return report, nil
}

// VerifyFile is [Verify] for the file at path.
func VerifyFile(path string) (Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return Report{}, fmt.Errorf("verify audit log: %w", err)
	}
	defer file.Close()
	report, err := Verify(file)
	if err != nil {
		return report, fmt.Errorf("verify audit log %s: %w", path, err)
	}
	return report, nil
}

// A position is how far a file was read or written. The zero position is its
// beginning.
type position struct {
	bytes int64
	lines uint64
	seq   uint64 // of the last record
	chain chain  // of the last record
	prev  chain  // before the first record
}

// Bounds of a line.
const (
	maxLineBytes = 2048
	maxTornBytes = 64 << 10
)

// scan moves p over the valid lines that r begins with, and returns the number of
// bytes behind them that a crash has left. When there are lines among these that
// a crash cannot have left, it returns an error that wraps ErrCorrupt.
func (p *position) scan(r io.Reader) (torn int64, err error) {
	in := bufio.NewReaderSize(r, maxLineBytes)
	for {
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
	}
}

// take moves p over line, if it is the one that follows.
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
	p.lines, p.seq, p.chain = p.lines+1, seq, sum
	return true
}

// rest judges what follows the last valid line: bad, and what in still holds.
func (p *position) rest(bad []byte, in *bufio.Reader) (torn int64, err error) {
	damaged := fmt.Errorf("%w: line %d", ErrCorrupt, p.lines+1)
	if p.lines == 0 { // a log is never without its first record: this is something else
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

// cutLine takes a line of the right form apart, without judging its chain.
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

// decodeChain reads lower-case hexadecimal digits: a chain has one spelling.
func decodeChain(dst *chain, text []byte) bool {
	if len(text) != 2*len(dst) || bytes.ContainsAny(text, "ABCDEF") {
		return false
	}
	_, err := hex.Decode(dst[:], text)
	return err == nil
}
