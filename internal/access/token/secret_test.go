package token_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// sample is a token with a known secret, the bytes 0 to 31. Its checksum was computed
// with another implementation of CRC-32C.
const (
	sample = "pgt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8vnZKd"
)

// A token with one byte wrong, missing or added is rejected: the checksum detects every
// error burst of up to 32 bits.
func TestTypingErrors(t *testing.T) {
	if _, err := token.DigestOf(sample); err != nil {
		t.Fatalf("DigestOf(sample) = %v", err)
	}
	for i := range len(sample) {
		for c := range 256 {
			if byte(c) == sample[i] {
				continue
			}
			if _, err := token.DigestOf(sample[:i] + string([]byte{byte(c)}) + sample[i+1:]); !errors.Is(err,
				token.ErrMalformed) {
				t.Errorf("byte %d replaced by %#x: got %v, want ErrMalformed", i, c, err)
			}
		}
		if _, err := token.DigestOf(sample[:i] + sample[i+1:]); !errors.Is(err, token.ErrMalformed) {
			t.Errorf("byte %d left out: got %v, want ErrMalformed", i, err)
		}
		if _, err := token.DigestOf(sample[:i] + "A" + sample[i:]); !errors.Is(err, token.ErrMalformed) {
			t.Errorf("a byte added before %d: got %v, want ErrMalformed", i, err)
		}
		if i > 0 && sample[i] != sample[i-1] {
			swapped := []byte(sample)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			if _, err := token.DigestOf(swapped); !errors.Is(err, token.ErrMalformed) {
				t.Errorf("bytes %d and %d swapped: got %v, want ErrMalformed", i-1, i, err)
			}
		}
	}
}

// The header parser agrees with a regular expression and DigestOf, and accepts only one
// spelling of a token.
func FuzzHeader(f *testing.F) {
	for _, value := range []string{
		"Bearer " + sample, "bearer " + sample, "bEARER   " + sample, "", " ", "Bearer", "Bearer ", "Bearer pgt_", "Bearer" +
			sample, "Bearer\t" + sample,
		" Bearer " + sample, "Bearer " + sample + " ", "Bearer " + sample + ", Bearer " + sample, "Basic " + sample,
		"Basic dXNlcjpwYXNz", "\x02earer " + sample,
		sample, "Bearer " + sample[:50] + "\r\n", "Bearer " + sample[:30] + "\n" + sample[31:], "Bearer " +
			strings.Replace(sample, "pgt_", "PGT_", 1),
	} {
		f.Add([]byte(value))
	}
	form := regexp.MustCompile(`^(?i:bearer) +(pgt_[A-Za-z0-9_-]{48})$`)
	f.Fuzz(func(t *testing.T, value []byte) {
		before := bytes.Clone(value)
		digest, err := token.DigestOfHeader(value)
		if !bytes.Equal(value, before) {
			t.Fatal("the header was changed")
		}
		match := form.FindSubmatch(value)
		if match == nil || bytes.HasSuffix(value, []byte("\n")) {
			want := token.ErrMalformed
			if len(value) == 0 {
				want = token.ErrMissing
			}
			if !errors.Is(err, want) || digest != (token.Digest{}) {
				t.Fatalf("%q: got %v and a digest: %t, want %v", value, err, digest != token.Digest{}, want)
			}
			return
		}
		want, wantErr := token.DigestOf(string(match[1]))
		if !errors.Is(err, wantErr) || digest != want {
			t.Fatalf("got %x, %v; want %x, %v", digest, err, want, wantErr)
		}
		if err == nil && digest != sha256.Sum256(match[1]) {
			t.Fatal("the digest is not that of the token")
		}
	})
}
