package pgstore_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestConformance runs the suite, several checks at a time. A crash is one of the node: its connections break.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, fast...)
	for _, c := range storetest.Checks() {
		if testing.Short() && strings.HasSuffix(c.Name, "random") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, func(t testing.TB) storetest.Harness { return newHarness(t, server, false) })
		})
	}
}

// TestConformanceSealed runs every sixth check of the suite, from a random one on, while everything is sealed all the
// time: what was just stored, and segments of a single reading. TestConformanceSealedExhaustive (make exhaustive) runs
// all.
func TestConformanceSealed(t *testing.T) { conformSealed(t, 6) }

func TestConformanceSealedExhaustive(t *testing.T) { conformSealed(t, 1) }

func conformSealed(t *testing.T, stride int) {
	server := sharedServer(t)
	checks := slices.DeleteFunc(storetest.Checks(), func(c storetest.Check) bool { // assignments are not sealed
		return strings.HasPrefix(c.Name, "subjects/") && c.Name != "subjects/erase"
	})
	for i := rand.IntN(stride); i < len(checks); i += stride {
		c := checks[i]
		if testing.Short() && strings.HasSuffix(c.Name, "random") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, func(t testing.TB) storetest.Harness {
				return newHarness(t, server, false, func(o *pgstore.Options) {
					o.SealAfter, o.SealEvery, o.SealAtLeast = 1,
						50*time.Millisecond, 1
				})
			})
		})
	}
}

// TestConformanceServerCrash runs the checks of crashes with a server that is killed and started
// again. What was written and not synced survives that, so it shows that nothing is acknowledged
// before it is written; that commits are synced is PostgreSQL's promise. It runs one of the checks,
// and TestConformanceServerCrashExhaustive (make exhaustive) all.
func TestConformanceServerCrash(t *testing.T) {
	checks := crashChecks()
	n := rand.IntN(len(checks))
	conformAfterKills(t, checks[n:n+1])
}

func TestConformanceServerCrashExhaustive(t *testing.T) { conformAfterKills(t, crashChecks()) }

func crashChecks() []storetest.Check {
	return slices.DeleteFunc(storetest.Checks(), func(c storetest.Check) bool {
		return !strings.HasPrefix(c.Name, "crash/") && c.Name != "remove/crash"
	})
}

func conformAfterKills(t *testing.T, checks []storetest.Check) {
	if testing.Short() {
		t.Skip("restarts a server many times")
	}
	t.Parallel()
	server := pgtest.Start(t, safe...)
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, func(t testing.TB) storetest.Harness { return newHarness(t, server, true) })
		})
	}
}

// newHarness returns a harness for a new schema on server. If killing, a crash is one of the
// server.
func newHarness(t testing.TB, server *pgtest.Server, killing bool, change ...func(*pgstore.Options)) storetest.Harness {
	o := options(server)
	for _, f := range change {
		f(&o)
	}
	var net pgtest.Sockets
	o.Dial = net.Dial
	var open []*pgstore.Store
	openOne := func(o pgstore.Options, maxDevices int, own ...vitals.Definition) (storage.Store, error) {
		o.MaxDevices, o.Signs = maxDevices, own
		s, err := pgstore.Open(context.Background(), o)
		if err != nil {
			return nil, err
		}
		open = append(open, s)
		return s, nil
	}
	node := func(maxDevices int, own ...vitals.Definition) (storage.Store, error) {
		return openOne(o, maxDevices, own...)
	}
	closeAll := func() {
		for _, s := range open {
			_ = s.Close() // ErrClosed if the check has closed it
		}
		open = nil
	}
	t.Cleanup(closeAll)
	return storetest.Harness{
		Open:        func() (storage.Store, error) { return node(0) },
		OpenLimited: func(maxDevices int) (storage.Store, error) { return node(maxDevices) },
		OpenSigns:   func(own []vitals.Definition) (storage.Store, error) { return node(0, own...) },
		OpenNode:    func() (storage.Store, error) { return node(0) },
		OpenChanges: func(own []vitals.Definition) (storage.Store, error) {
			o := o
			o.ChangesKeep = time.Hour
			return openOne(o, 0, own...)
		},
		Concurrent: true,
		Disturb:    net.BreakAll,
		Crash: func(int, uint64) {
			if killing {
				server.Kill()
				server.Restart(t)
			} else {
				net.BreakAll()
			}
			closeAll()
		},
	}
}
