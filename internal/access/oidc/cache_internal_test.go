package oidc

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

func newCache() *cache { return &cache{seed: maphash.MakeSeed()} }

// The cache is bounded under 100,000 distinct tokens, which its type ensures; what it returns is what was put, and the
// newest tokens are mostly there.
func TestCacheBound(t *testing.T) {
	c := newCache()
	const n = 100_000
	filler := strings.Repeat("x", 800)
	text := func(i int) string { return fmt.Sprintf("%09d", i) + filler }
	for i := range n {
		c.put(&verified{text: text(i), untilUnixMs: int64(i)})
	}
	entries, newest := 0, 0
	for s := range c.sets {
		for w := range c.sets[s] {
			if c.sets[s][w].Load() != nil {
				entries++
			}
		}
	}
	for i := n - 1000; i < n; i++ {
		if v := cached(c, text(i)); v != nil && v.untilUnixMs != int64(i) {
			t.Fatalf("token %d is taken for %d", i, v.untilUnixMs)
		} else if v != nil {
			newest++
		}
	}
	if entries != MaxCached || newest < 990 {
		t.Errorf("%d entries, %d of the 1,000 newest tokens", entries, newest)
	}
}

// People beyond the bound share one allowance, until others have been away for long.
func TestPeopleBound(t *testing.T) {
	p := people{opt: &token.Options{}, byID: map[token.ID]person{}}
	now := time.Unix(1_800_000_000, 0)
	of := func(subject string) *token.Principal {
		return p.principal(token.Identity{Issuer: "i", Subject: subject}, nil, now)
	}
	for i := range maxPeople + 1000 {
		of(fmt.Sprint(i))
	}
	if len(p.byID) != maxPeople+1 {
		t.Errorf("%d people", len(p.byID))
	}
	a := of("a")
	if b := of("b"); a.Budgets() != b.Budgets() || a.ID() == b.ID() {
		t.Error("people beyond the bound do not share an allowance, or are the same")
	}
	first := of("0")
	if first.Budgets() == a.Budgets() {
		t.Error("the first person has lost the own allowance")
	}
	now = now.Add(forgetAfter)
	of("0")
	now = now.Add(time.Second)
	if c := of("c"); c.Budgets() == a.Budgets() || len(p.byID) > 2 {
		t.Errorf("%d people are known although nearly all were away", len(p.byID))
	}
	if again := of("0"); again.Budgets() != first.Budgets() {
		t.Error("somebody who is here has lost the allowance")
	}
}
