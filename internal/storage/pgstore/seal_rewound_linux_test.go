package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestSealedRewound brings earlier states of a database back in which other readings are sealed than were afterwards.
// Two servers repair it while they seal: it has all that was acknowledged, once, and nothing that was erased.
func TestSealedRewound(t *testing.T) {
	t.Parallel()
	rewind(t, 1)
}

// TestSealedRewoundExhaustive (make exhaustive) does so more often.
func TestSealedRewoundExhaustive(t *testing.T) {
	t.Parallel()
	for range 5 * *sealBouts {
		rewind(t, 3)
	}
}

func rewind(t *testing.T, times int) {
	seed := *sealSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("-seal.seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	primary := startReturning(t)
	primary.opt.SealAtLeast = 1
	w := &sealWorld{schema: primary.opt.Schema, stores: []*pgstore.Store{open(t, primary.opt), open(t, primary.opt)}}
	model := storetest.NewMemory()
	ctx, expired := context.Background(), false
	works := func() {
		for range 3 + r.IntN(8) {
			switch r.IntN(3) {
			case 0:
				if _, err := pgstore.Seal(w.some(r), w.nextHorizon(r)); err != nil {
					t.Fatalf("Seal: %v", err)
				}
			default:
				appendBoth(t, w.some(r), model, randomGroup(r))
			}
		}
	}
	for n := range times {
		// What is erased later is not stored again.
		erased, part := modelNames(fmt.Sprintf("erased-%d", n))[0], modelNames(fmt.Sprintf("part-%d", n))[0]
		for i := range int64(12) {
			var group []*storage.Entry
			for k := range int64(25) {
				group = append(group, randomEntry(r, erased, modelMs+(25*i+k)*minuteMs),
					randomEntry(r, part, modelMs+(25*i+k)*minuteMs))
			}
			if appendBoth(t, w.some(r), model, group); i%5 == 2 {
				works()
			}
		}
		earlier := primary.backup(t)
		works()
		beforeMs := int64(0)
		if r.IntN(2) == 0 {
			expired = true
			beforeMs = modelMs + r.Int64N(100)*minuteMs
			if _, err := w.some(r).Expire(ctx, beforeMs, 1<<40); err != nil {
				t.Fatalf("Expire: %v", err)
			}
			_, err := model.Expire(ctx, beforeMs, math.MaxInt64)
			try(t, err)
		}
		works()
		if r.IntN(2) == 0 {
			if _, err := w.some(r).Erase(erased); err != nil {
				t.Fatalf("Erase: %v", err)
			}
			_, err := model.Erase(erased)
			try(t, err)
		}
		a := storage.Assignment{Device: part, Subject: "P", FromUnixMs: modelMs + 100*minuteMs,
			ToUnixMs: modelMs + (110+r.Int64N(200))*minuteMs}
		for _, s := range []storage.Subjects{w.some(r), model} {
			if err := s.Assign(ctx, a); err != nil {
				t.Fatalf("Assign: %v", err)
			}
		}
		got, err := w.some(r).EraseAssignment(a)
		if want, wantErr := model.EraseAssignment(a); err != nil || wantErr != nil || got != want {
			t.Fatalf("EraseAssignment returned %+v, %v, want %+v, %v", got, err, want, wantErr)
		}
		works()
		for i, s := range w.stores { // each has something to put back
			appendBoth(t, s, model, []*storage.Entry{randomEntry(r, modelDevices[i], modelMs+1000*dayMs/4+int64(n))})
		}
		primary.restore(t, earlier)
		var ended atomic.Bool
		var beside sync.WaitGroup
		for _, s := range w.stores {
			own := rand.New(rand.NewPCG(r.Uint64(), 4))
			beside.Go(func() {
				for !ended.Load() {
					if _, err := pgstore.Seal(s, w.nextHorizon(own)); errors.Is(err, storage.ErrCorrupt) {
						t.Errorf("Seal: %v", err)
					}
					time.Sleep(time.Duration(own.IntN(50)) * time.Millisecond)
				}
			})
		}
		for _, s := range w.stores {
			awaitRepairs(t, s, float64(n+1))
		}
		ended.Store(true)
		beside.Wait()
		if beforeMs > 0 { // a repair leaves it to retention
			if _, err := w.some(r).Expire(ctx, beforeMs, 1<<40); err != nil {
				t.Fatalf("Expire: %v", err)
			}
			_, err := model.Expire(ctx, beforeMs, math.MaxInt64)
			try(t, err)
		}
		mustHaveValues(t, r, w, model)
		w.conn = connect(t, primary.now)
		w.mustHold(t)
		works()
		w.mustHold(t)
		_ = w.conn.Close(ctx)
		mustHaveValues(t, r, w, model)
		for _, s := range w.stores {
			mustNotLose(t, s)
			// What was stored again after retention had removed it may contradict the earlier state.
			if n := metric(t, s, "pulsegate_postgres_contradicted_total", ""); n != 0 && !expired {
				t.Errorf("%v readings were contradicted", n)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// mustHaveValues compares the values of all readings with a model. Two servers put parts of a record back in any order,
// so the gateway and the time of receipt may be those of the other part.
func mustHaveValues(t *testing.T, r *rand.Rand, w *sealWorld, model storage.Store) {
	t.Helper()
	ctx := context.Background()
	devices := make([]storage.Device, 100)
	n, err := model.Devices(ctx, vitals.Name{}, devices)
	try(t, err)
	got := make([]storage.Device, 100)
	m, err := w.some(r).Devices(ctx, vitals.Name{}, got)
	try(t, err)
	var names, want []string
	for _, d := range got[:m] {
		names = append(names, fmt.Sprint(d.Name, " ", d.NewestUnixMs))
	}
	for _, d := range devices[:n] {
		want = append(want, fmt.Sprint(d.Name, " ", d.NewestUnixMs))
	}
	mustEqual(t, "devices", names, want)
	for _, d := range devices[:n] {
		values := func(s storage.Store) (all []string) {
			for _, rec := range scanned(t, s, storage.Range{Device: d.Name, ToUnixMs: math.MaxInt64}, 300) {
				all = append(all, asViewed(d.Name, storage.Record{TimeUnixMs: rec.TimeUnixMs, Values: rec.Values}))
			}
			return all
		}
		mustEqual(t, "values of "+d.Name.String(), values(w.some(r)), values(model))
	}
}
