// Package terminal protects a terminal from control characters in the output of
// programs.
//
// # Promise
//
// Everything written through a [Writer] appears on the terminal as plain text: control
// characters, including escape sequences, and invisible or direction-changing
// characters are written as Go escapes such as \x1b. So the data of a server or a file
// can neither move the cursor nor hide or forge lines.
//
// # Not here
//
// No colours and no progress bars: code that draws on a terminal writes to its File.
package terminal

import (
	"io"
	"os"
	"strconv"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Writer escapes text written to a terminal. It is not safe for concurrent use.
type Writer struct {
	// File is the terminal.
	File *os.File

	pending []byte // beginning of an incomplete rune
}

// Guard returns a Writer for f if f is a terminal. Otherwise it returns f itself:
// output to files and other programs is not escaped.
func Guard(f *os.File) io.Writer {
	if !Is(f) {
		return f
	}
	return &Writer{File: f}
}

// Is reports whether w is a terminal or a Writer to one.
func Is(w any) bool {
	switch w := w.(type) {
	case *Writer:
		return true
	case *os.File:
		return term.IsTerminal(int(w.Fd()))
	}
	return false
}

// Write writes p with escapes. It returns len(p) unless writing to the terminal fails.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.pending, p...)
	keep := 0
	if n := len(text); n > 0 {
		for keep = 1; keep < min(utf8.UTFMax, n) && !utf8.RuneStart(text[n-keep]); keep++ {
		}
		if utf8.FullRune(text[n-keep:]) {
			keep = 0
		}
	}
	_, err := w.File.Write(Append(nil, text[:len(text)-keep]))
	w.pending = append([]byte(nil), text[len(text)-keep:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Append appends text to dst. It writes everything except printable characters, line
// feeds and tabs as Go escapes.
func Append(dst, text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, `\x`...)
			dst = append(dst, "0123456789abcdef"[text[0]>>4], "0123456789abcdef"[text[0]&15])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			dst = append(dst, text[:size]...)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		text = text[size:]
	}
	return dst
}
