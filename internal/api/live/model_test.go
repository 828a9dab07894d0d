package live_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/live"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A watcher is a client in TestModel, with what it must see.
type watcher struct {
	*stream
	target  string
	matches func(device string) bool
	prompt  bool
	base    map[string]string // newest reading of each device when it began
	changes map[string]int    // commits since then that stored something of a device
}

// Random commits, erasures and clients, prompt and slow, compared with brute force: the last
// reading that a client has got of a device is the newest one that is stored. Prompt clients
// get at most four a second, one per commit, and none that is late.
//
// Seen to fail when a completed reading was sent as it had arrived.
// for a completed reading, the event that supersedes a pending one.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) { model(t, seed) })
	}
}

func model(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	f := start(t, live.Options{Service: query.Service{PieceTimeout: time.Hour}})
	defer f.stop()
	devices := []string{"a", "a1", "a2", "a11", "b1", "b2", "c"}
	erased := map[string]bool{}
	var watchers []*watcher
	join := func() {
		w := &watcher{prompt: rng.IntN(2) == 0, base: map[string]string{}, changes: map[string]int{}}
		d := devices[rng.IntN(len(devices))]
		switch rng.IntN(3) {
		case 0:
			w.target, w.matches = "?device="+d, func(s string) bool { return s == d }
		case 1:
			w.target, w.matches = "?prefix="+d, func(s string) bool { return strings.HasPrefix(s, d) }
		default:
			w.target, w.matches = "", func(string) bool { return true }
		}
		for _, d := range devices {
			w.base[d] = f.newest(d)
		}
		var pause func()
		if !w.prompt {
			delay := time.Duration(rng.IntN(3000)) * time.Millisecond
			pause = func() { time.Sleep(delay) }
		}
		w.stream = f.open(w.target, pause)
		watchers = append(watchers, w)
	}
	for range 400 {
		switch rng.IntN(40) {
		case 0:
			if len(watchers) < 8 {
				join()
			}
		case 1:
			d := devices[rng.IntN(len(devices))]
			if _, err := f.store.Erase(name(d)); err == nil {
				f.hub.Erased(name(d))
				erased[d] = true
			}
		case 2:
			if i := rng.IntN(len(watchers) + 1); i < len(watchers) && rng.IntN(3) == 0 {
				watchers[i].close()
				watchers = slices.Delete(watchers, i, i+1)
			}
		}
		var group []*storage.Entry
		for range 1 + rng.IntN(6) {
			s := []vitals.Sign{vitals.HeartRate, vitals.SpO2}[rng.IntN(2)]
			group = append(group, entry(devices[rng.IntN(len(devices))], int64(1+rng.IntN(60)), s,
				6000+vitals.Value(rng.IntN(2))))
		}
		f.commit(group...)
		changed := map[string]bool{}
		for _, e := range group {
			if e.Outcome == storage.Stored || e.Outcome == storage.Completed {
				changed[e.Reading.Device.String()] = true
			}
		}
		for d := range changed {
			for _, w := range watchers {
				w.changes[d]++
			}
		}
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	for _, w := range watchers {
		messages := w.messages()
		select {
		case <-w.ended: // cut by an erasure while it was blocked
			if w.prompt {
				t.Errorf("seed %d: the stream of a prompt client has ended: %v", seed, w.err)
			}
			w.stream = f.open(w.target, nil, "Last-Event-ID", lastID(messages))
			settle()
			messages = append(messages, w.messages()...)
		default:
		}
		defer w.close()
		seen := map[string][]message{}
		for _, m := range messages {
			if m.event == "reading" {
				d := m.data[len(`{"device":"`):]
				d = d[:strings.IndexByte(d, '"')]
				seen[d] = append(seen[d], m)
			}
		}
		for _, d := range devices {
			got, newest := seen[d], f.newest(d)
			where := fmt.Sprintf("seed %d, %q, prompt=%v, device %s", seed, w.target, w.prompt, d)
			switch {
			case !w.matches(d):
				if len(got) > 0 {
					t.Errorf("%s: not selected, but seen", where)
				}
				continue
			case newest != "" && len(got) == 0 && newest != w.base[d], len(got) > 0 && newest != "" &&
				got[len(got)-1].data != newest:
				t.Errorf("%s: the last of %d readings is not the newest, %s", where, len(got), newest)
			}
			if !w.prompt || erased[d] {
				continue
			}
			if len(got) > w.changes[d] {
				t.Errorf("%s: %d readings after %d commits", where, len(got), w.changes[d])
			}
			timeOf := func(m message) string { return m.data[strings.Index(m.data, `"time":`):][:30] }
			for i := range got {
				if i >= 4 && got[i].at.Sub(got[i-4].at) < time.Second {
					t.Errorf("%s: five readings within %v", where, got[i].at.Sub(got[i-4].at))
				}
				if i > 0 && timeOf(got[i]) < timeOf(got[i-1]) {
					t.Errorf("%s: %s after %s", where, got[i].data, got[i-1].data)
				}
			}
		}
	}
}

// lastID returns the identifier with which a client resumes.
func lastID(messages []message) string {
	for _, m := range slices.Backward(messages) {
		if m.id != "" {
			return m.id
		}
	}
	return ""
}
