package token_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// tokens generates the tokens for a file.
func tokens() *rapid.Generator[[]token.Token] {
	const letters = "ABCXYZabcxyz0189._:-"
	names := rapid.Custom(func(t *rapid.T) vitals.Name {
		n, err := vitals.ParseName(rapid.StringOfN(rapid.SampledFrom([]rune(letters)), 1, 64, -1).Draw(t, "name"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
	one := rapid.Custom(func(t *rapid.T) token.Token {
		tok := token.Token{
			Digest:  sha256.Sum256(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "digest")),
			Gateway: names.Draw(t, "gateway"),
			Rights:  token.Rights(rapid.IntRange(1, 7).Draw(t, "rights")),
			Created: time.Unix(rapid.Int64Range(0, 253402300700).Draw(t, "created"), 0).UTC(),
		}
		if rapid.Bool().Draw(t, "expires") {
			tok.Expires = time.Unix(rapid.Int64Range(tok.Created.Unix()+1, 253402300799).Draw(t, "expires"), 0).UTC()
		}
		if !tok.Rights.Has(token.Admin) && rapid.Bool().Draw(t, "limited") {
			tok.Devices = names.Draw(t, "devices")
		}
		if rapid.Bool().Draw(t, "bound") {
			tok.Rights, tok.Devices = token.Read, vitals.Name{}
			var err error
			if tok.Subjects, err = token.MakeSubjects(rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9.-]{1,64}`), 1,
				token.MaxSubjects, rapid.ID).Draw(t, "subjects")); err != nil {
				t.Fatal(err)
			}
		}
		if tok.Rights == token.Read && tok.Subjects == "" && rapid.Bool().Draw(t, "kiosk") {
			tok.Kiosk, tok.Session = true, sha256.Sum256(tok.Digest[:])
		}
		if rapid.Bool().Draw(t, "rate") {
			tok.Limit.PerSecond = rapid.IntRange(1, token.MaxPerSecond).Draw(t, "rate")
			tok.Limit.Burst = rapid.IntRange(1, token.MaxBurst).Draw(t, "burst")
		}
		return tok
	})
	return rapid.SliceOfNDistinct(one, 0, 5, func(t token.Token) token.ID { return t.ID() })
}

// Parse returns what AppendFile was given, and rejects a file that is truncated or has
// a bit flipped or a byte added.
func TestFileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := tokens().Draw(t, "tokens")
		text := token.AppendFile(nil, want)
		got, err := token.Parse(text)
		if err != nil || len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("read again: %v, %v; want %v", got, err, want)
		}
		flipped := bytes.Clone(text)
		bit := rapid.IntRange(0, 8*len(text)-1).Draw(t, "bit")
		flipped[bit/8] ^= 1 << (bit % 8)
		for what, damaged := range map[string][]byte{
			"a bit flipped": flipped,
			"cut off":       text[:rapid.IntRange(0, len(text)-1).Draw(t, "cut")],
			"a line more":   append(bytes.Clone(text), "\n"...),
			"twice":         append(bytes.Clone(text), text...),
		} {
			if _, err := token.Parse(damaged); !errors.Is(err, token.ErrFile) {
				t.Errorf("%s: got %v, want ErrFile", what, err)
			}
		}
	})
}

// sealed returns a file with the given lines and a valid end line.
func sealed(lines ...string) string {
	text := "pulsegate-tokens 1\n"
	for _, l := range lines {
		text += l + "\n"
	}
	return text + fmt.Sprintf("end %d crc32c:%08x\n", len(lines),
		crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// The example in docs/tokens.md is a valid file.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/tokens.md")
	try(t, err)
	_, example, ok := strings.Cut(string(text), "```\npulsegate-tokens ")
	example, _, ok2 := strings.Cut(example, "```")
	got, err := token.Parse([]byte("pulsegate-tokens " + example))
	if err != nil || len(got) != 1 || !ok || !ok2 {
		t.Errorf("the example: %v, %v", got, err)
	}
}

func TestFileForm(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	line := "token sha256:" + digest +
		" gateway=bed-7 rights=write,read created=2026-11-21T10:00:00Z expires=2027-02-19T10:00:00Z devices=ppg- " +
		"rate=100 burst=6000"
	got, err := token.Parse([]byte(sealed(line)))
	try(t, err)
	want := token.Token{
		Digest:  token.Digest(bytes.Repeat([]byte{0xab}, 32)),
		Gateway: name(t, "bed-7"),
		Rights:  token.Write | token.Read,
		Devices: name(t, "ppg-"),
		Created: epoch,
		Expires: epoch.AddDate(0, 0, 90),
		Limit:   token.Limit{PerSecond: 100, Burst: 6000},
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	minimal := "token sha256:" + digest + " gateway=g rights=read created=2026-11-21T10:00:00Z"
	if _, err := token.Parse([]byte(sealed(minimal))); err != nil {
		t.Errorf("a line without optional keys: %v", err)
	}
	wall := minimal + " kiosk=sha256:" + strings.Repeat("cd", 32)
	got, err = token.Parse([]byte(sealed(wall)))
	try(t, err)
	want = token.Token{
		Digest: want.Digest, Gateway: name(t, "g"), Rights: token.Read, Created: epoch,
		Kiosk: true, Session: token.Digest(bytes.Repeat([]byte{0xcd}, 32)),
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("a kiosk's: got %+v, want %+v", got, want)
	}

	for _, tt := range []struct{ name, file, reason string }{
		{"nothing", "", "line 1"},
		{"another version", strings.Replace(sealed(), "tokens 1", "tokens 2", 1), "line 1"},
		{"carriage returns", strings.ReplaceAll(sealed(minimal), "\n", "\r\n"), "line 1"},
		{"no end", "pulsegate-tokens 1\n" + minimal + "\n", "line 3: the file is cut off"},
		{"an empty line", sealed(minimal, ""), "line 3"},
		{"a comment", sealed("# bed 7", minimal), "line 2"},
		{"a wrong count", strings.Replace(sealed(minimal), "end 1", "end 2", 1), "line 3: count or checksum"},
		{"edited", strings.Replace(sealed(minimal), "gateway=g", "gateway=h", 1), "line 3: count or checksum"},
		{"two of one ID", sealed(minimal, minimal), "line 3: a token with this ID"},
		{"a short digest", sealed(minimal[:20]), "line 2: the digest"},
		{"digest in capitals", sealed(strings.ReplaceAll(minimal, "ab", "AB")), "line 2: the digest"},
		{"two spaces", sealed(strings.Replace(minimal, " rights", "  rights", 1)), "line 2"},
		{"a space at the end", sealed(minimal + " "), "line 2"},
		{"another order", sealed("token sha256:" + digest + " rights=read gateway=g created=2026-11-21T10:00:00Z"),
			"line 2: it is not written as"},
		{"rights in another order", sealed(strings.Replace(line, "write,read", "read,write", 1)),
			"line 2: it is not written as"},
		{"rights twice", sealed(strings.Replace(line, "write,read", "read,read", 1)), "line 2: the value of rights"},
		{"an unknown right", sealed(strings.Replace(line, "write,read", "root", 1)), "line 2: the value of rights"},
		{"an unknown key", sealed(minimal + " color=red"), "line 2: it has an unknown key"},
		{"a key twice", sealed(minimal + " gateway=h"), "line 2: it is not written as"},
		{"no gateway", sealed(strings.Replace(minimal, " gateway=g", "", 1)), "line 2: the gateway is missing"},
		{"a bad gateway", sealed(strings.Replace(minimal, "gateway=g", "gateway=g/h", 1)), "line 2: the value of gateway"},
		{"a fraction of a second", sealed(strings.Replace(minimal, "00Z", "00.5Z", 1)), "line 2"},
		{"another zone", sealed(strings.Replace(minimal, "00Z", "00+01:00", 1)), "line 2: the value of created"},
		{"expires before it is created", sealed(minimal + " expires=2026-11-21T10:00:00Z"), "line 2: it expires before"},
		{"a rate alone", sealed(minimal + " rate=10"), "line 2: rate and burst"},
		{"a rate of zero", sealed(minimal + " rate=0 burst=0"), "line 2: it is not written as"},
		{"a rate with a zero in front", sealed(minimal + " rate=010 burst=1"), "line 2: it is not written as"},
		{"a huge burst", sealed(minimal + " rate=1 burst=100000001"), "line 2: rate and burst"},
		{"a rate that does not fit", sealed(minimal + " rate=99999999999999999999 burst=1"), "line 2: the value of rate"},
		{"a kiosk that writes", sealed(strings.Replace(wall, "=read", "=write,read", 1)), "line 2: a token of a kiosk"},
		{"a kiosk of subjects", sealed(strings.Replace(wall, " kiosk", " subjects=P-1 kiosk", 1)),
			"line 2: a token of a kiosk"},
		{"a kiosk before subjects", sealed(minimal + " kiosk=sha256:" + digest + " subjects=P-1"),
			"line 2: a token of a kiosk"},
		{"a kiosk without a digest", sealed(minimal + " kiosk="), "line 2: the value of kiosk"},
		{"a kiosk of another hash", sealed(minimal + " kiosk=sha512:" + digest), "line 2: the value of kiosk"},
		{"a short digest of a kiosk", sealed(wall[:len(wall)-1]), "line 2: the value of kiosk"},
		{"admin and devices", sealed(strings.Replace(line, "write,read", "admin", 1)), "line 2: the admin right"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := token.Parse([]byte(tt.file))
			if !errors.Is(err, token.ErrFile) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("got %v, %v; want an ErrFile with %q", got, err, tt.reason)
			}
			if err != nil && (strings.Contains(err.Error(), digest[:12]) || strings.Contains(err.Error(), "g/h")) {
				t.Errorf("the error repeats the file: %v", err)
			}
		})
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	if _, err := token.ReadFile(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: got %v, want ErrNotExist", err)
	}
	try(t, os.WriteFile(path, []byte(sealed()), 0o600))
	for _, tt := range []struct {
		mode os.FileMode
		want error
	}{
		{0o600, nil}, {0o400, nil}, {0o640, nil}, {0o644, nil},
		{0o620, token.ErrWritable}, {0o602, token.ErrWritable}, {0o666, token.ErrWritable},
	} {
		try(t, os.Chmod(path, tt.mode))
		if _, err := token.ReadFile(path); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("mode %v: got %v, want %v", tt.mode, err, tt.want)
		}
	}
	if _, err := token.ReadFile(dir); !errors.Is(err, token.ErrFile) {
		t.Errorf("a directory: got %v, want ErrFile", err)
	}
}

// Parse accepts only what AppendFile would write, so a list of tokens has only one
// spelling.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sealed()))
	f.Add([]byte(sealed("token sha256:" + strings.Repeat("ab", 32) +
		" gateway=g rights=read created=2026-11-21T10:00:00Z")))
	f.Add([]byte(
		sealed("token sha256:"+strings.Repeat("01",
			32)+" gateway=bed-7 rights=write,read,admin created=2026-11-21T10:00:00Z expires=2027-02-19T10:00:00Z "+
			"rate=100 burst=6000",
			"token sha256:"+strings.Repeat("23", 32)+" gateway=w rights=read created=1970-01-01T00:00:00Z devices=ppg-")))
	f.Fuzz(func(t *testing.T, file []byte) {
		// Correct the checksum, so that the fuzzer gets past it.
		if i := bytes.LastIndex(bytes.TrimSuffix(file, []byte("\n")), []byte("\n")); i >= 0 {
			head := file[:i+1]
			file = fmt.Appendf(bytes.Clone(head), "end %d crc32c:%08x\n", max(bytes.Count(head, []byte("\n"))-1, 0),
				crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli)))
		}
		got, err := token.Parse(file)
		if err != nil {
			if !errors.Is(err, token.ErrFile) {
				t.Fatalf("got %v, want an ErrFile", err)
			}
			return
		}
		if again := token.AppendFile(nil, got); !bytes.Equal(again, file) {
			t.Fatalf("%q is written as %q", file, again)
		}
		for i := range got {
			if got[i].Gateway.IsZero() || got[i].Rights == 0 || got[i].Rights > 7 || got[i].Created.IsZero() {
				t.Fatalf("token %d: %+v", i, got[i])
			}
		}
	})
}
