package hl7

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// read returns the messages in the input of a connection, and how it ends.
func read(in io.Reader, limit int) (messages []string, end error) {
	held := 0
	f := frames{in: bufio.NewReader(in), max: limit, begun: func() {}, grow: func(n int) bool {
		if n > limit {
			panic("grown beyond the bound")
		}
		held = n
		return true
	}}
	for {
		text, err := f.next(nil)
		switch {
		case err == errTooLarge:
			messages = append(messages, "too large")
		case err != nil:
			return messages, err
		default:
			messages = append(messages, string(text))
		}
		if len(text) > held {
			panic("more than was reserved")
		}
		held = 0
	}
}

// What a client sends is divided into messages wherever the network divides it, and anything else ends the connection.
func TestFrames(t *testing.T) {
	const limit = 10_000
	long := strings.Repeat("x", limit)
	for _, tt := range []struct {
		name, in string
		want     []string
		end      error
	}{
		{"nothing", "", nil, io.EOF},
		{"a message", "\x0bMSH\rPID\r\x1c\r", []string{"MSH\rPID\r"}, io.EOF},
		{"an empty one", "\x0b\x1c\r", []string{""}, io.EOF},
		{"two", "\x0bMSH\r\x1c\r\x0bPID\r\x1c\r", []string{"MSH\r", "PID\r"}, io.EOF},
		{"line breaks between two", "\r\n\x0bMSH\r\x1c\r\r\n\x0bPID\r\x1c\r\n", []string{"MSH\r", "PID\r"}, io.EOF},
		{"as long as the bound", "\x0b" + long + "\x1c\r", []string{long}, io.EOF},
		{"a giant segment", "\x0bMSH|" + long + "\x1c\r\x0bPID\r\x1c\r", []string{"too large", "PID\r"}, io.EOF},
		{"a giant segment without an end", "\x0bMSH|" + long + long, nil, io.ErrUnexpectedEOF},
		{"many line breaks", strings.Repeat("\n", maxBetween+1) + "\x0bMSH\r\x1c\r", nil, errOutside},
		{"no start block", "MSH\r\x1c\r", nil, errOutside},
		{"another protocol", "GET / HTTP/1.1\r\n\r\n", nil, errOutside},
		{"TLS", "\x16\x03\x01", nil, errOutside},
		{"bytes between two messages", "\x0bMSH\r\x1c\rx\x0bPID\r\x1c\r", []string{"MSH\r"}, errOutside},
		{"a second end", "\x0bMSH\r\x1c\r\x1c\r", []string{"MSH\r"}, errOutside},
		{"a nested start block", "\x0bMSH\r\x0bMSH\r\x1c\r", nil, errNested},
		{"two start blocks", "\x0b\x0bMSH\r\x1c\r", nil, errNested},
		{"a nested start block in a giant segment", "\x0b" + long + long + "\x0bMSH\r\x1c\r", nil, errNested},
		{"no end block", "\x0bMSH\rPID\r", nil, io.ErrUnexpectedEOF},
		{"no end block before the next message", "\x0bMSH\r\r\x0bPID\r\x1c\r", nil, errNested},
		{"nothing after the start block", "\x0b", nil, io.ErrUnexpectedEOF},
		{"nothing after the end block", "\x0bMSH\r\x1c", nil, io.ErrUnexpectedEOF},
		{"a line feed after the end block", "\x0bMSH\r\x1c\n", nil, errEnd},
		{"an end block within a message", "\x0bMSH\x1cPID\r\x1c\r", nil, errEnd},
		{"two end blocks", "\x0bMSH\r\x1c\x1c\r", nil, errEnd},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, in := range map[string]io.Reader{
				"at once": strings.NewReader(tt.in), "in bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
				"in halves": iotest.HalfReader(strings.NewReader(tt.in)),
			} {
				if got, end := read(in, limit); !slices.Equal(got, tt.want) || end != tt.end {
					t.Errorf("%s: %q, %v; want %q, %v", name, got, end, tt.want, tt.end)
				}
			}
		})
	}
}

// A message for which there is no memory is not read further.
func TestFrameMemory(t *testing.T) {
	var asked []int
	f := frames{in: bufio.NewReader(strings.NewReader("\x0b" + strings.Repeat("x", 100_000) + "\x1c\r")), max: 1 << 20,
		begun: func() {}, grow: func(n int) bool {
			asked = append(asked, n)
			return n < 40_000
		}}
	text, err := f.next(nil)
	if want := []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10}; err != errMemory || len(text) > 32<<10 ||
		!slices.Equal(asked, want) {
		t.Errorf("%d bytes, %v, asked for %v, want %v", len(text), err, asked, want)
	}
}

// FuzzFrames divides any bytes: what comes out, in frames again, is what went in, up to where the connection ends.
func FuzzFrames(f *testing.F) {
	for _, in := range []string{"\x0bMSH\rPID\r\x1c\r\r\n\x0b\x1c\r", "\x0bMSH\x0b\x1c\r", "\x0bMSH\x1c", "\n\x0b\x1c\n",
		"GET / HTTP/1.1\r\n\r\n", "\x0b" + strings.Repeat("x", 5000) + "\x1c\r"} {
		f.Add([]byte(in), 100)
		f.Add([]byte(in), 1<<14)
	}
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		limit = min(max(limit, minMessage), 1<<14)
		got, end := read(bytes.NewReader(in), limit)
		slowly, slowEnd := read(iotest.OneByteReader(bytes.NewReader(in)), limit)
		if !slices.Equal(got, slowly) || end != slowEnd {
			t.Fatalf("at once %q, %v; in bytes %q, %v", got, end, slowly, slowEnd)
		}
		rest := in
		for _, text := range got {
			rest = bytes.TrimLeft(rest, "\r\n")
			size := bytes.IndexByte(rest, endBlock) - 1
			if len(rest) == 0 || rest[0] != startBlock || size < 0 || text != "too large" && text != string(rest[1:1+size]) ||
				(size > limit) != (text == "too large") {
				t.Fatalf("%q is not the next message in %q", text, rest)
			}
			rest = rest[1+size+2:]
		}
		switch next := bytes.TrimLeft(rest, "\r\n"); {
		case end == io.EOF && len(next) > 0, errors.Is(end, errNested) && bytes.Count(next, []byte{startBlock}) < 2:
			t.Fatalf("%v with %q left", end, next)
		}
	})
}
