package eventloop_test

import (
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"pgregory.net/rapid"
)

// A wheel does what a map of deadlines does.
func TestWheelModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(0, 20).Draw(t, "start")
		slots := rapid.IntRange(1, 9).Draw(t, "slots")
		w, model := eventloop.NewWheel(slots, now), map[int32]int64{}
		id := rapid.Int32Range(0, 7)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				id, at := id.Draw(t, "id"), now+rapid.Int64Range(-3, 40).Draw(t, "in")
				at = max(at, 1)
				w.Set(id, at)
				model[id] = max(at, now+1)
			},
			"stop": func(t *rapid.T) {
				id := id.Draw(t, "id")
				w.Stop(id)
				delete(model, id)
			},
			"advance": func(t *rapid.T) {
				now += rapid.Int64Range(0, 25).Draw(t, "by")
				var want []int32
				for id, at := range model {
					if at <= now {
						want = append(want, id)
						delete(model, id)
					}
				}
				got := w.Advance(now)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("at %d: due %v, want %v", now, got, want)
				}
			},
			"": func(t *rapid.T) {
				if got := w.Count(); got != len(model) {
					t.Fatalf("%d timers set, want %d", got, len(model))
				}
			},
		})
	})
}
