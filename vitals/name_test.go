package vitals_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestNameHasPrefix(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := nameTexts().Draw(rt, "name")
		prefix := nameTexts().Draw(rt, "prefix")
		if rapid.Bool().Draw(rt, "cut") {
			prefix = text[:rapid.IntRange(1, len(text)).Draw(rt, "bytes")]
		}
		n, p := name(rt, text), name(rt, prefix)
		if got := n.HasPrefix(&p); got != strings.HasPrefix(text, prefix) || !n.HasPrefix(&vitals.Name{}) {
			rt.Fatalf("HasPrefix(%q, %q) = %v", text, prefix, got)
		}
	})
}

const nameBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"

// nameTexts generates the texts of names.
func nameTexts() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.SampledFrom([]rune(nameBytes)), 1, vitals.MaxNameBytes, -1)
}

// names generates names.
func names() *rapid.Generator[vitals.Name] {
	return rapid.Custom(func(t *rapid.T) vitals.Name { return name(t, nameTexts().Draw(t, "name")) })
}

func name(tb interface {
	Helper()
	Fatalf(string, ...any)
}, text string) vitals.Name {
	tb.Helper()
	n, err := vitals.ParseName(text)
	if err != nil {
		tb.Fatalf("ParseName(%q) = %v", text, err)
	}
	return n
}

func TestParseName(t *testing.T) {
	for _, tt := range []struct {
		text string
		ok   bool
	}{
		{"ppg-000123", true},
		{"a", true},
		{nameBytes[:64], true},
		{nameBytes[2:], true},
		{strings.Repeat("x", 64), true},
		{"", false},
		{strings.Repeat("x", 65), false},
		{"a b", false},
		{"a\x00", false},
		{"\x00", false},
		{"ppg/1", false},
		{"gerät", false},
		{"a\n", false},
	} {
		n, err := vitals.ParseName(tt.text)
		if tt.ok {
			if err != nil || n.String() != tt.text || n.Len() != len(tt.text) || n.IsZero() {
				t.Errorf("ParseName(%q) = %q, %v; want the same text", tt.text, n, err)
			}
			continue
		}
		if !errors.Is(err, vitals.ErrName) || !n.IsZero() || n != (vitals.Name{}) {
			t.Errorf("ParseName(%q) = %q, %v; want the zero Name and ErrName", tt.text, n, err)
		}
	}
}

// TestParseNameEveryByte tests every byte at the start, in the middle and at the end.
func TestParseNameEveryByte(t *testing.T) {
	for c := range 256 {
		want := strings.IndexByte(nameBytes, byte(c)) >= 0
		for _, text := range [][]byte{{byte(c)}, {byte(c), 'a'}, {'a', byte(c)}, {'a', byte(c), 'b'}} {
			if _, err := vitals.ParseName(text); (err == nil) != want {
				t.Errorf("ParseName(%q) = %v, want accepted: %v", text, err, want)
			}
		}
	}
}

func TestZeroName(t *testing.T) {
	var n vitals.Name
	if !n.IsZero() || n.Len() != 0 || n.String() != "" || len(n.AppendTo(nil)) != 0 {
		t.Errorf("zero Name: IsZero %v, Len %d, String %q", n.IsZero(), n.Len(), n.String())
	}
}

// TestNameOrder checks that == and Compare agree with the texts.
func TestNameOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := nameTexts().Draw(t, "a")
		b := nameTexts().Draw(t, "b")
		if rapid.Bool().Draw(t, "common prefix") {
			b = (a[:rapid.IntRange(0, len(a)).Draw(t, "prefix")] + b)
			b = b[:min(len(b), vitals.MaxNameBytes)]
		}
		n, m := name(t, a), name(t, b)
		if got, want := n.Compare(&m), cmp.Compare(a, b); got != want {
			t.Errorf("Compare(%q, %q) = %d, want %d", a, b, got, want)
		}
		if got, want := n == m, a == b; got != want {
			t.Errorf("%q == %q is %v, want %v", a, b, got, want)
		}
		var zero vitals.Name
		if zero.Compare(&n) != -1 {
			t.Errorf("the zero Name does not sort before %q", a)
		}
		if got := string(n.AppendTo([]byte("x"))); got != "x"+a {
			t.Errorf("AppendTo = %q, want %q", got, "x"+a)
		}
	})
}
