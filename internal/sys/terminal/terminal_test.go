package terminal_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/pulsegate/pulsegate/internal/sys/terminal"
)

var texts = []struct{ in, want string }{
	{"plain, 97.5 %, ä, 心拍\n\t", "plain, 97.5 %, ä, 心拍\n\t"},
	{"\x1b[2J\x1b]0;title\x07", `\x1b[2J\x1b]0;title\a`},
	{"over\rwritten\b", `over\rwritten\b`},
	{"\u009b31m", `\u009b31m`},                         // CSI as one character of C1
	{"a\u202eb\u2066c\u200b", `a\u202eb\u2066c\u200b`}, // direction-changing and invisible characters
	{"\xff\x9b[", `\xff\x9b[`},
	{"\x00\x7f", `\x00\x7f`},
}

func TestAppend(t *testing.T) {
	for _, tt := range texts {
		if got := string(terminal.Append(nil, []byte(tt.in))); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.in, got, tt.want)
		}
	}
}

// A rune that is written in pieces appears like one written at once.
func TestWriterPieces(t *testing.T) {
	var in, want bytes.Buffer
	for _, tt := range texts {
		in.WriteString(tt.in + "\n")
		want.WriteString(tt.want + "\n")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "terminal"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{&terminal.Writer{File: file}}, iotest.OneByteReader(&in),
		make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("got\n%s\nwant\n%s", got, want.String())
	}
}

// Output that does not go to a terminal is not escaped.
func TestGuardFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := terminal.Guard(file); got != io.Writer(file) {
		t.Errorf("got %T, want the file", got)
	}
	if terminal.Is(file) || !terminal.Is(&terminal.Writer{File: file}) {
		t.Error("Is(file) is true, or Is(Writer) is false")
	}
}
