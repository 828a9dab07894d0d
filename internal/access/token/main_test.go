package token_test

import (
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// epoch is when the tests' tokens are created.
var epoch = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func name(tb testing.TB, text string) vitals.Name {
	tb.Helper()
	if text == "" {
		return vitals.Name{}
	}
	n, err := vitals.ParseName(text)
	if err != nil {
		tb.Fatalf("ParseName(%q) = %v", text, err)
	}
	return n
}

// create adds a token to the file at path.
func create(tb testing.TB, path string, spec token.Token) (string, token.Token) {
	tb.Helper()
	keeper, text := token.Keeper{Path: path}, ""
	made, err := keeper.Create(tb.Context(), spec, epoch, func(made string) error { text = made; return nil })
	try(tb, err)
	return text, made
}

func writer(tb testing.TB, gateway string) token.Token {
	return token.Token{Gateway: name(tb, gateway), Rights: token.Write}
}
