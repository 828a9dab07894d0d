package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// TestRandom lets several producers commit, cancel and submit in virtual time,
// with flushes of random durations and outcomes, and a Close at a random moment.
// Unlike TestModel it does not wait between events; it compares the answers with the
// flushes at the end.
//
// It was seen to fail when the code was broken in the ways that TestModel lists,
// except for answers in another order, which it cannot see, and the lost wake-up.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScript(rt)
		var broken []string
		synctest.Test(t, func(*testing.T) { broken = s.run() })
		for _, b := range broken {
			rt.Error(b)
		}
	})
}

// A script is what happens in one run.
type script struct {
	cfg       groupcommit.Options[itemID]
	producers [][]step
	flushes   []flushStep // used in turn, repeatedly
	closeAt   time.Duration
}

// A step is one call of a producer.
type step struct {
	think  time.Duration // before the call
	items  int
	submit bool          // Submit, and wait for the answer
	endAt  time.Duration // from the call to the end of its ctx; below 0: never
}

type flushStep struct {
	takes   time.Duration
	outcome outcome
}

func drawScript(rt *rapid.T) *script {
	moment := rapid.Custom(func(rt *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(0, 5).Draw(rt, "ms")) * time.Millisecond
	})
	maxGroup := rapid.IntRange(1, 5).Draw(rt, "MaxGroup")
	s := &script{
		cfg:     groupcommit.Options[itemID]{MaxGroup: maxGroup},
		closeAt: time.Duration(rapid.IntRange(0, 40).Draw(rt, "close at ms")) * time.Millisecond,
	}
	steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		st := step{
			think:  moment.Draw(rt, "think"),
			items:  rapid.IntRange(1, maxGroup).Draw(rt, "items"),
			submit: rapid.Bool().Draw(rt, "submit"),
			endAt:  -1,
		}
		if !st.submit && rapid.Bool().Draw(rt, "ends") {
			st.endAt = moment.Draw(rt, "end at")
		}
		return st
	}), 1, 8)
	s.producers = rapid.SliceOfN(steps, 1, 8).Draw(rt, "producers")
	s.flushes = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) flushStep {
		return flushStep{
			takes:   moment.Draw(rt, "takes"),
			outcome: rapid.SampledFrom([]outcome{flushOK, flushOK, flushOK, flushError, flushPanic, flushGoexit}).Draw(rt, "outcome"),
		}
	}), 1, 8).Draw(rt, "flushes")
	return s
}

// An itemID identifies an item by its producer, call and position in the call.
type itemID struct{ producer, call, index int }

func (s *script) items(producer, call int) []itemID {
	items := make([]itemID, s.producers[producer][call].items)
	for i := range items {
		items[i] = itemID{producer, call, i}
	}
	return items
}

// A flushRecord is one call of the flush function.
type flushRecord struct {
	group   []itemID
	outcome outcome
}

// run plays s and returns the rules that were broken. It must be called in a synctest
// bubble.
func (s *script) run() (broken []string) {
	report := make(chan string, 1000)
	var flushes []flushRecord
	flushing := make(chan struct{}, 1)
	var c *groupcommit.Committer[itemID]
	ready := make(chan struct{})
	c = groupcommit.New(s.cfg, func(group []itemID) error {
		<-ready
		select {
		case flushing <- struct{}{}:
		default:
			report <- "flush was called concurrently"
		}
		defer func() { <-flushing }()
		st := s.flushes[len(flushes)%len(s.flushes)]
		flushes = append(flushes, flushRecord{slices.Clone(group), st.outcome})
		if st := c.Stats(); !st.Flushing || st.QueuedItems < len(group) {
			report <- fmt.Sprintf("in a flush of %d items: %+v", len(group), st)
		}
		time.Sleep(st.takes)
		switch st.outcome {
		case flushError:
			return errFlush
		case flushPanic:
			panic("out of order")
		case flushGoexit:
			runtime.Goexit()
		}
		return nil
	})
	close(ready)

	answers := make([][]answer, len(s.producers))
	for p, steps := range s.producers {
		answers[p] = make([]answer, len(steps))
		go func() {
			for i, st := range steps {
				time.Sleep(st.think)
				answers[p][i] = s.call(c, p, i, report)
			}
		}()
	}
	time.Sleep(s.closeAt)
	err := c.Close(context.Background())
	if _, ok := errors.AsType[*groupcommit.PanicError](err); err != nil && !ok {
		report <- fmt.Sprintf("Close returned %v", err)
	}
	flushedAtClose := len(flushes)
	// Every producer ends. If a call is never answered, the bubble fails.
	time.Sleep(time.Hour)
	synctest.Wait()
	if len(flushes) != flushedAtClose {
		report <- "a flush began after Close had returned"
	}
	if st := c.Stats(); st.QueuedItems != 0 || st.QueuedCalls != 0 || st.Groups != uint64(len(flushes)) {
		report <- fmt.Sprintf("after %d flushes and Close: %+v", len(flushes), st)
	}
	close(report)
	for b := range report {
		broken = append(broken, b)
	}
	return append(broken, s.check(answers, flushes)...)
}

// call makes call i of producer p, waits for its answer and returns it.
func (s *script) call(c *groupcommit.Committer[itemID], p, i int, report chan<- string) answer {
	st := s.producers[p][i]
	if !st.submit {
		ctx := context.Background()
		if st.endAt >= 0 {
			c, cancel := context.WithCancel(ctx)
			defer cancel()
			if st.endAt == 0 {
				cancel()
			} else {
				defer time.AfterFunc(st.endAt, cancel).Stop()
			}
			ctx = c
		}
		_, err := c.Commit(ctx, s.items(p, i))
		return classOf(err)
	}
	answer := make(chan error, 1)
	err := c.Submit(s.items(p, i), waiterFunc(func(f groupcommit.Flush) {
		select {
		case answer <- f.Err:
		default:
			report <- fmt.Sprintf("call %d of producer %d was answered twice", i, p)
		}
	}))
	if err == nil {
		err = <-answer
		time.Sleep(time.Millisecond)
		if len(answer) > 0 {
			report <- fmt.Sprintf("call %d of producer %d was answered again", i, p)
		}
	}
	return classOf(err)
}

// check compares the answers with the flushes and returns the rules that were broken.
func (s *script) check(answers [][]answer, flushes []flushRecord) (broken []string) {
	// A call's items are adjacent in one group. The calls of a producer, which waits
	// for each answer, are flushed in their order, also after an abandoned call, since
	// admission is in order.
	flushOf := make(map[itemID]int) // by the call's first item
	newest := make([]int, len(s.producers))
	for p := range newest {
		newest[p] = -1
	}
	for f, rec := range flushes {
		if n := len(rec.group); n < 1 || n > s.cfg.MaxGroup {
			broken = append(broken, fmt.Sprintf("flush %d has %d items, want 1 to %d", f, n, s.cfg.MaxGroup))
		}
		for rest := rec.group; len(rest) > 0; {
			id := rest[0]
			items := s.items(id.producer, id.call)
			if len(rest) < len(items) || !slices.Equal(rest[:len(items)], items) {
				broken = append(broken, fmt.Sprintf("flush %d: %v: want all of %v", f, rest, items))
				break
			}
			if id.call <= newest[id.producer] {
				broken = append(broken, fmt.Sprintf("flush %d: %v was flushed after call %d", f, id, newest[id.producer]))
			}
			newest[id.producer] = id.call
			flushOf[id] = f
			rest = rest[len(items):]
		}
	}
	panicked := len(flushes) > 0 && flushes[len(flushes)-1].outcome >= flushPanic
	for p, calls := range answers {
		for i, a := range calls {
			f, written := flushOf[itemID{p, i, 0}]
			ok := false
			switch a {
			case answerNil:
				ok = written && flushes[f].outcome == flushOK
			case answerFlush:
				ok = written && flushes[f].outcome == flushError
			case answerPanic:
				ok = written && flushes[f].outcome >= flushPanic
			case answerQueued:
				ok = !written && panicked
			case answerClosed, answerEnded:
				ok = !written
			case answerCtx:
				// Written, or still queued at a panic.
				ok = s.producers[p][i].endAt >= 0 && (written || panicked)
			}
			if !ok {
				broken = append(broken, fmt.Sprintf("call %d of producer %d: answered %q; flushed: %v", i, p, a, written))
			}
		}
	}
	return broken
}
