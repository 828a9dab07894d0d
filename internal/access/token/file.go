package token

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of a token file.
const (
	MaxTokens    = 65_536
	maxFileBytes = 96 << 20 // a line has at most 1,460 bytes
)

// Errors for token files. Each may be wrapped; compare with errors.Is.
var (
	// ErrFile means that a file is not a complete token file of this version. The
	// wrapping error names the line.
	ErrFile = errors.New("not a valid token file")

	// ErrWritable means that others than the file's owner may write to it, and so could
	// add tokens of their own.
	ErrWritable = errors.New("the file is writable by its group or by others; run chmod go-w")
)

// A Token is the stored form of a token.
type Token struct {
	Digest  Digest
	Gateway vitals.Name // the holder
	Rights  Rights      // at least one
	Devices vitals.Name // name prefix of the devices that it covers; zero means all devices
	Created time.Time   // in UTC, whole seconds
	Expires time.Time   // in UTC, whole seconds; the first instant at which it is not valid; zero means never
	Limit   Limit       // zero means the server's default

	// Kiosk means that people do not sign in again on a screen on a wall: a session that was begun with the token lasts
	// as long as the token. Its cookie is [KioskCookie]; Session has the digest of the cookie's secret.
	Kiosk   bool
	Session Digest

	// Subjects are those that the token is bound to. It then has only the read right, and
	// reads only their data, and only where that is asked for by subject.
	Subjects Subjects
}

// ID returns the token's ID.
func (t *Token) ID() ID { return t.Digest.ID() }

// Expired reports whether t has expired at now.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

const (
	fileHead   = "pulsegate-tokens 1\n"
	timeLayout = "2006-01-02T15:04:05Z"
)

// AppendFile appends a token file with the given tokens to dst. See [Parse].
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
	if t.Subjects != "" {
		dst = append(append(dst, " subjects="...), t.Subjects...)
	}
	if t.Kiosk {
		dst = hex.AppendEncode(append(dst, " kiosk=sha256:"...), t.Session[:])
	}
	return append(dst, '\n')
}

// Parse parses a token file, version 1: lines of ASCII text, each terminated by one
// line feed.
//
//	pulsegate-tokens 1
//	token sha256:DIGEST gateway=NAME rights=LIST created=TIME [expires=TIME] [devices=PREFIX] [rate=N burst=N]
//	    [subjects=LIST] [kiosk=sha256:DIGEST]
//	end COUNT crc32c:CRC
//
// There is one line per token, shown here as two, in order of creation. The words of a line are in the
// order shown, separated by one space. DIGEST is 64 and CRC 8 lower-case hexadecimal
// digits, TIME is of the form 2006-01-02T15:04:05Z, LIST holds write, read, admin and relay in
// this order. A program that does not know subjects rejects a file that has them: it would let
// such a token read everything. CRC covers all bytes before the last line; it detects a file that was
// truncated, partly copied or edited by hand. No two tokens have the same ID.
//
// Parse accepts a file if and only if [AppendFile] would write the same bytes for the
// tokens that it returns. Otherwise Parse returns an error that wraps [ErrFile].
func Parse(file []byte) ([]Token, error) {
	if len(file) > maxFileBytes {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrFile, maxFileBytes)
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
			return nil, lineError(n, "the file is cut off: it has no line that begins with end")
		}
		if bytes.HasPrefix(line, []byte("end ")) {
			return tokens, checkEnd(file, tokens, n)
		}
		t, err := parseLine(line)
		switch {
		case err != nil:
			return nil, lineError(n, err.Error())
		case seen[t.ID()]:
			return nil, lineError(n, "a token with this ID is already on an earlier line")
		case len(tokens) == MaxTokens:
			return nil, lineError(n, fmt.Sprintf("there are more than %d tokens", MaxTokens))
		}
		seen[t.ID()] = true
		tokens = append(tokens, t)
		rest = after
	}
}

// lineError returns an error about line n that does not repeat its text.
func lineError(n int, reason string) error { return fmt.Errorf("%w: line %d: %s", ErrFile, n, reason) }

// checkEnd compares file with what AppendFile writes for tokens. n is the number of the
// line that begins with end.
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
		return lineError(at, "it is not written as pulsegate would write it")
	case at > n:
		return lineError(at, "there is text after the end line")
	}
	return lineError(n,
		"count or checksum does not match: the file was truncated, damaged or edited; change it only with pulsegate token")
}

// parseLine parses the line of a token. It leaves spellings that AppendFile would not
// write to checkEnd.
func parseLine(line []byte) (t Token, err error) {
	text, ok := strings.CutPrefix(string(line), "token sha256:")
	if !ok {
		return t, errors.New("it begins with neither token sha256: nor end")
	}
	digest, text, _ := strings.Cut(text, " ")
	if !parseHex(t.Digest[:], digest) {
		return t, errors.New("the digest is not 64 hexadecimal digits, 0-9 and a-f")
	}
	for word := range strings.SplitSeq(text, " ") {
		key, value, _ := strings.Cut(word, "=")
		if err := t.set(key, value); err != nil {
			return t, err
		}
	}
	return t, t.check()
}

// set sets the field named by the key of one key=value.
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
	case "subjects":
		t.Subjects = Subjects(value)
	case "kiosk":
		digits, ok := strings.CutPrefix(value, "sha256:")
		if t.Kiosk = ok && parseHex(t.Session[:], digits); !t.Kiosk {
			err = errors.New("not a digest")
		}
	default:
		return errors.New("it has an unknown key, or is not a list of key=value")
	}
	if err != nil {
		return fmt.Errorf("the value of %s is invalid", key)
	}
	return nil
}

// check returns an error if t breaks a rule that holds for every token.
func (t *Token) check() error {
	switch {
	case t.Gateway.IsZero():
		return errors.New("the gateway is missing")
	case t.Rights.check() != nil:
		return t.Rights.check()
	case t.Rights.Has(Admin) && !t.Devices.IsZero():
		return errors.New("the admin right cannot be limited to devices")
	case !writable(t.Created) || !t.Expires.IsZero() && !writable(t.Expires):
		return errors.New("a time is outside the years 1970 to 9999")
	case !t.Expires.IsZero() && !t.Expires.After(t.Created):
		return errors.New("it expires before it is created")
	case t.Subjects.check() != nil:
		return t.Subjects.check()
	case t.Subjects != "" && t.Rights != Read:
		return errors.New("a token that is bound to subjects has the read right only")
	case t.Subjects != "" && !t.Devices.IsZero():
		return errors.New("a token is bound to subjects or limited to devices, not both")
	case t.Kiosk && (t.Rights != Read || t.Subjects != ""):
		return errors.New("a token of a kiosk has the read right only, and is not bound to subjects")
	case !t.Limit.valid():
		return fmt.Errorf("rate and burst must both be set, rate from 1 to %d and burst from 1 to %d", MaxPerSecond, MaxBurst)
	}
	return nil
}

func writable(t time.Time) bool {
	return t.Unix() >= 0 && t.Year() <= 9999
}

// ReadFile reads the token file at path. It rejects a file that others may write to
// with [ErrWritable].
//
// A file that others may read is accepted: a digest does not help to find the token,
// and Kubernetes mounts secrets with mode 0644. The commands write it with mode 0600.
func ReadFile(path string) ([]Token, error) {
	file, err := sharedfile.Open(path)
	if errors.Is(err, sharedfile.ErrNotRegular) {
		return nil, fmt.Errorf("read token file %s: %w: it is not a regular file", path, ErrFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
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
