package pgstore_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
)

// TestConfirmLoss reports losses on all servers until one of them confirms them.
func TestConfirmLoss(t *testing.T) {
	t.Parallel()
	o := options(sharedServer(t))
	a, b := open(t, o), open(t, o)
	if err := a.Degraded(); err != nil {
		t.Errorf("a new store is degraded: %v", err)
	}
	execute(t, shared,
		"INSERT INTO "+o.Schema+".losses VALUES (1, 1000, 2000, 9000, NULL), (2, 3000, 4000, 9000, NULL), (3, 1, 9000, "+
			"9000, 9000)")
	for _, s := range []*pgstore.Store{a, b} {
		polltest.Until(t, "the losses are reported", func() bool { return s.Degraded() != nil })
		lost, ok := errors.AsType[*pgstore.LossError](s.Degraded())
		if want := (pgstore.Loss{FromUnixMs: 1000, ToUnixMs: 4000}); !ok || lost.Loss != want {
			t.Errorf("Degraded returned %v, want %v", s.Degraded(), want)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("Ready returned %v: the store is to serve on", err)
		}
	}
	shown := pgstore.Loss{FromUnixMs: 1000, ToUnixMs: 4000}
	execute(t, shared, "INSERT INTO "+o.Schema+".losses VALUES (4, 5000, 6000, 9000, NULL)")
	all, err := a.ConfirmLoss(context.Background(), shown)
	if err != nil || len(all) != 2 {
		t.Errorf("ConfirmLoss returned %v, %v, want two losses", all, err)
	}
	later := pgstore.Loss{FromUnixMs: 5000, ToUnixMs: 6000}
	for _, s := range []*pgstore.Store{a, b} {
		polltest.Until(t, "only the loss that was not shown is reported", func() bool {
			lost, ok := errors.AsType[*pgstore.LossError](s.Degraded())
			return ok && lost.Loss == later
		})
	}
	if all, err = a.ConfirmLoss(context.Background(), later); err != nil || len(all) != 1 {
		t.Errorf("ConfirmLoss returned %v, %v, want the later loss", all, err)
	}
	for _, s := range []*pgstore.Store{a, b} {
		polltest.Until(t, "the losses are confirmed", func() bool { return s.Degraded() == nil })
	}
	if all, err = b.ConfirmLoss(context.Background(), pgstore.Loss{ToUnixMs: math.MaxInt64}); err != nil || len(all) != 0 {
		t.Errorf("the second ConfirmLoss returned %v, %v, want none", all, err)
	}
}
