package token

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of a token file.
const (
	MaxTokens    = 65_536
	maxFileBytes = 32 << 20 // a line has at most 400 bytes
)

// Errors of a token file. Each may be wrapped; compare with errors.Is.
var (
	// ErrFile means that a file is not a whole token file of this version. The
	// wrapping error names the line.
	ErrFile = errors.New("token: not a token file that can be used")

	// ErrWritable means that others than a file's owner may write to it, so that
	// they could let themselves in.
	ErrWritable = errors.New("token: the file may be written by its group or by others; use chmod go-w")
)

// A Token is what is kept of a token.
type Token struct {
	Digest  Digest
	Gateway vitals.Name // who holds it
	Rights  Rights      // at least one
	Devices vitals.Name // it covers the devices whose names begin so; zero: all
	Created time.Time   // in UTC, whole seconds
	Expires time.Time   // in UTC, whole seconds; the first moment at which it is not valid; zero: never
	Limit   Limit       // zero: what the server's settings say
}

// ID returns the token's ID.
func (t *Token) ID() ID { return t.Digest.ID() }

// Expired reports whether t is not valid any more at now.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

const (
	fileHead   = "pulsegate-tokens 1\n"
	timeLayout = "2006-01-02T15:04:05Z"
)

// AppendFile appends the token file that holds tokens. See [Parse].
func AppendFile(dst []byte, tokens []Token) []byte {
	start := len(dst)
	dst = append(dst, fileHead...)
	for i := range tokens {
		dst = tokens[i].appendLine(dst)
	}
	crc := crc32.Checksum(dst[start:], castagnoli)
	return fmt.Appendf(dst, "end %d crc32c:%08x\n", len(tokens), crc)
}

func (t *Token) appendLine(dst []byte) []byte {
	dst = append(dst, "token sha256:"...)
	dst = hex.AppendEncode(dst, t.Digest[:])
	dst = t.Gateway.AppendTo(append(dst, " gateway="...))
	dst = append(append(dst, " rights="...), t.Rights.String()...)
	dst = t.Created.AppendFormat(append(dst, " created="...), timeLayout)
	if !t.Expires.IsZero() {
		dst = t.Expires.AppendFormat(append(dst, " expires="...), timeLayout)
	}
	if !t.Devices.IsZero() {
		dst = t.Devices.AppendTo(append(dst, " devices="...))
	}
	if t.Limit != (Limit{}) {
		dst = strconv.AppendInt(append(dst, " rate="...), int64(t.Limit.PerSecond), 10)
		dst = strconv.AppendInt(append(dst, " burst="...), int64(t.Limit.Burst), 10)
	}
	return append(dst, '\n')
}

// Parse reads a token file, version 1: lines of ASCII text, each ended by one
// line feed.
//
//	pulsegate-tokens 1
//	token sha256:DIGEST gateway=NAME rights=LIST created=TIME [expires=TIME] [devices=PREFIX] [rate=N burst=N]
//	end COUNT crc32c:CRC
//
// There is one line for each token, in the order in which they were made. The
// words of a line stand in the order shown, with one space between two. DIGEST is
// 64 and CRC 8 lower-case hexadecimal digits, TIME is of the form
// 2006-01-02T15:04:05Z, LIST holds write, read and admin in this order. CRC is
// that of all bytes before the last line; it finds a file that was cut off,
// copied in part or edited by hand. No two tokens have one ID.
//
// A file is accepted if and only if [AppendFile] would write the same bytes for
// what Parse returns. Otherwise Parse returns an error that wraps [ErrFile].
func Parse(file []byte) ([]Token, error) {
	if len(file) > maxFileBytes {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrFile, maxFileBytes)
	}
	rest, ok := bytes.CutPrefix(file, []byte(fileHead))
	if !ok {
		return nil, lineError(1, fmt.Sprintf("it is not %q", strings.TrimSpace(fileHead)))
	}
	var tokens []Token
	seen := make(map[ID]bool)
	for n := 2; ; n++ {
		line, after, ok := bytes.Cut(rest, []byte{'\n'})
		if !ok {
			return nil, lineError(n, "the file is cut off: its last line begins with end")
		}
		if bytes.HasPrefix(line, []byte("end ")) {
			return tokens, checkEnd(file, tokens, n)
		}
		t, err := parseLine(line)
		switch {
		case err != nil:
			return nil, lineError(n, err.Error())
		case seen[t.ID()]:
			return nil, lineError(n, "a token with this ID stands above")
		case len(tokens) == MaxTokens:
			return nil, lineError(n, fmt.Sprintf("there are more than %d tokens", MaxTokens))
		}
		seen[t.ID()] = true
		tokens = append(tokens, t)
		rest = after
	}
}

// lineError says what is wrong with a line, without its text.
func lineError(n int, reason string) error { return fmt.Errorf("%w: line %d: %s", ErrFile, n, reason) }

// checkEnd compares file with what AppendFile makes of tokens. n is the number of
// the line that begins with end.
func checkEnd(file []byte, tokens []Token, n int) error {
	want := AppendFile(nil, tokens)
	if bytes.Equal(file, want) {
		return nil
	}
	same := 0
	for same < min(len(file), len(want)) && file[same] == want[same] {
		same++
	}
	at := 1 + bytes.Count(file[:same], []byte{'\n'})
	switch {
	case at < n:
		return lineError(at, "it is not written as pulsegate writes it")
	case at > n:
		return lineError(at, "the file goes on behind its end")
	}
	return lineError(n, "count or checksum do not match: the file was cut, damaged or edited; only pulsegate token changes it")
}

// parseLine reads the line of a token. Forms that are not those of AppendFile are
// left to checkEnd.
func parseLine(line []byte) (t Token, err error) {
	text, ok := strings.CutPrefix(string(line), "token sha256:")
	if !ok {
		return t, errors.New("it begins neither with token sha256: nor with end")
	}
	digest, text, _ := strings.Cut(text, " ")
	if !parseHex(t.Digest[:], digest) {
		return t, errors.New("the digest is not 64 hexadecimal digits, 0-9 and a-f")
	}
	given := make(map[string]bool)
	for word := range strings.SplitSeq(text, " ") {
		key, value, ok := strings.Cut(word, "=")
		if !ok || given[key] {
			return t, errors.New("it is not a list of different key=value")
		}
		given[key] = true
		if err := t.set(key, value); err != nil {
			return t, err
		}
	}
	if !given["gateway"] || !given["rights"] || !given["created"] {
		return t, errors.New("gateway, rights or created is missing")
	}
	return t, t.check()
}

// set sets one value of a line.
func (t *Token) set(key, value string) (err error) {
	switch key {
	case "gateway":
		t.Gateway, err = vitals.ParseName(value)
	case "rights":
		t.Rights, err = ParseRights(value)
	case "created":
		t.Created, err = time.Parse(timeLayout, value)
	case "expires":
		t.Expires, err = time.Parse(timeLayout, value)
	case "devices":
		t.Devices, err = vitals.ParseName(value)
	case "rate":
		t.Limit.PerSecond, err = strconv.Atoi(value)
	case "burst":
		t.Limit.Burst, err = strconv.Atoi(value)
	default:
		return errors.New("it has a key that this version does not know")
	}
	if err != nil {
		return fmt.Errorf("the value of %s is not valid", key)
	}
	return nil
}

// check reports what a token cannot have, whoever made it.
func (t *Token) check() error {
	switch {
	case t.Gateway.IsZero():
		return errors.New("the gateway is missing")
	case t.Rights == 0 || !(Write | Read | Admin).Has(t.Rights):
		return errors.New("the rights are missing")
	case t.Rights.Has(Admin) && !t.Devices.IsZero():
		return errors.New("the right admin is not limited by devices")
	case !writable(t.Created) || !t.Expires.IsZero() && !writable(t.Expires):
		return errors.New("a time lies outside the years 1970 to 9999")
	case !t.Expires.IsZero() && !t.Expires.After(t.Created):
		return errors.New("it expires before it is made")
	case !t.Limit.valid():
		return fmt.Errorf("rate and burst come together, from 1 to %d and %d", MaxPerSecond, MaxBurst)
	}
	return nil
}

func writable(t time.Time) bool {
	return t.Unix() >= 0 && t.Year() <= 9999
}

// ReadFile reads the token file at path. It refuses a file that others may write
// to, with [ErrWritable].
//
// That others may read it is no error: a digest does not help to find the token,
// and Kubernetes shows secrets with mode 0644. The commands write it with 0600.
func ReadFile(path string) ([]Token, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read token file %s: %w: it is no regular file", path, ErrFile)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("read token file %s: %w", path, ErrWritable)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	tokens, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read token file %s: %w", path, err)
	}
	return tokens, nil
}
