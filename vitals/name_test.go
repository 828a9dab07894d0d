package vitals_test

import (
	"cmp"
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
