//go:build !race

// The race detector makes sync.Pool drop items, so allocations are counted only without
// it.

// Package bench_test asserts the allocations of the parts of Pulsegate together; the
// packages' own tests assert theirs. Allocations can fail a build because unlike times, they
// do not depend on the machine.
package bench_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/bench/answers"
)

// The whole path of a reading except the store: body, decoder, group commit, answer.
func TestVitalsHandlerAllocations(t *testing.T) {
	forms, stop, err := answers.Vitals()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	posts, d := answers.NewPosts(64), answers.NewDiscard()
	for _, form := range forms {
		if form.Impl == answers.Pulsegate {
			form.Handler.ServeHTTP(d, posts.Next()) // fills pools and tables
			if got := testing.AllocsPerRun(500, func() { form.Handler.ServeHTTP(d, posts.Next()) }); got != 0 {
				t.Errorf("%v allocations, want none", got)
			}
			if err := answers.Check(form.Handler, posts.Next(), "application/json", answers.VitalsAnswer); err != nil {
				t.Error(err)
			}
		}
	}
}
