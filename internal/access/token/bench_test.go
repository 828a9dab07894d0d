package token_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// fileOf writes a file of n tokens and returns its path and one of the tokens.
func fileOf(b *testing.B, n int) (path, text string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "tokens")
	all := make([]token.Token, n)
	for i := range all {
		text = token.NewText()
		digest, err := token.DigestOf(text)
		if err != nil {
			b.Fatal(err)
		}
		all[i] = token.Token{Digest: digest, Gateway: name(b, fmt.Sprintf("bed-%d", i)), Rights: token.Write, Created: epoch}
	}
	if err := os.WriteFile(path, token.AppendFile(nil, all), 0o600); err != nil {
		b.Fatal(err)
	}
	return path, text
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("tokens=%d", n), func(b *testing.B) {
			path, text := fileOf(b, n)
			s := open(b, path, token.Options{DefaultLimit: token.Limit{PerSecond: 1, Burst: token.MaxBurst}})
			value := "Bearer " + text
			b.ReportAllocs()
			for b.Loop() {
				g, err := find(s, value, epoch.UnixMilli())
				if err != nil {
					b.Fatal(err)
				}
				if ok, _ := g.Allow(0, epoch); !ok {
					b.Fatal("limited")
				}
			}
		})
	}
}

func BenchmarkReload(b *testing.B) {
	path, _ := fileOf(b, 10_000)
	s := open(b, path, token.Options{})
	for b.Loop() {
		if err := s.Reload(); err != nil {
			b.Fatal(err)
		}
	}
}
