package oidc

import (
	"fmt"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// The cache is bounded. A token is in it once, and gives way to another if it expires first, or if the keys or the rules have
// changed.
func TestCacheBound(t *testing.T) {
	c := new(cache)
	const n = MaxCached + 1000
	for i := range n {
		for until := range int64(2) {
			c.put(&verified{text: fmt.Sprint(i), untilUnixMs: int64(i) + until, generation: 1})
		}
	}
	for i := range n {
		if v := cached(c, fmt.Sprint(i)); (v != nil) != (i >= 1000) || v != nil && v.untilUnixMs != int64(i)+1 {
			t.Fatalf("token %d: %+v", i, v)
		}
	}
	for _, text := range []string{"new", "newer"} {
		c.put(&verified{text: text, generation: 2})
	}
	if all := *c.current.Load(); len(all) != 2 || cached(c, []byte("new")) == nil {
		t.Errorf("%d entries after a change of the rules, want 2", len(all))
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
