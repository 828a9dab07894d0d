package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Verification is what a server holds compared with what it acknowledged. It
// counts readings, told apart by device and time.
type Verification struct {
	Acknowledged uint64 `json:"acknowledged"` // by the ledger
	Stored       uint64 `json:"stored"`       // read back, of the run's devices

	Missing uint64 `json:"missing"` // acknowledged and not there
	Altered uint64 `json:"altered"` // there with other signs or values than were sent
	Doubled uint64 `json:"doubled"` // there once more
	Unknown uint64 `json:"unknown"` // there, and never sent, or sent and refused

	// Unsettled readings were sent and never answered for good. They may be there
	// or not.
	Unsettled       uint64 `json:"unsettled"`
	UnsettledStored uint64 `json:"unsettled_stored"`

	Devices  int      `json:"devices"`
	Examples []string `json:"examples,omitempty"` // the first findings: device and time, never a value
}

// maxExamples bounds the list of examples.
const maxExamples = 20

// OK reports whether the server kept its promise.
func (v *Verification) OK() bool { return v.Missing+v.Altered+v.Doubled+v.Unknown == 0 }

// VerifyOptions say how to verify.
type VerifyOptions struct {
	Target *Target
	Token  string

	// AllowCut takes a ledger that is cut off for a whole one. What was sent after
	// the cut then counts as unknown if it is stored.
	AllowCut bool

	// Progress is told, from time to time, how many devices are done. May be nil.
	Progress func(done, all int)

	shareBytes int64 // instead of ledgerBytesAtATime, in tests
}

// Workers of a verification, and the bytes of a ledger that are compared together.
// Seven bytes of it take about three of memory.
const (
	verifyWorkers      = 4
	ledgerBytesAtATime = 512 << 20
)

// Verify reads everything that the devices of a ledger have stored back through
// the API, and compares.
//
// A *LedgerError means that the ledger is cut off or corrupt; the Verification
// covers what stands before that place. After any other error it covers what had
// been read by then.
//
// When the target cannot be asked, or is no Pulsegate, there is nothing to compare
// and the Verification is nil.
func Verify(ctx context.Context, ledger string, opt VerifyOptions) (*Verification, error) {
	v := &verifier{opt: opt, result: &Verification{}}
	file, err := os.Open(ledger)
	if err != nil {
		return v.result, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return v.result, fmt.Errorf("open ledger: %w", err)
	}
	if v.client, err = newReadClient(opt.Target, opt.Token); err != nil {
		return v.result, err
	}
	defer v.client.Close()
	var (
		reader    *ledgerReader
		entries   []ledgerEntry
		ledgerErr error
	)
	// A long ledger is read once for each share of its devices, so that memory is
	// bounded.
	shares := int32(info.Size()/cmp.Or(opt.shareBytes, ledgerBytesAtATime)) + 1
	for share := range shares {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return v.result, fmt.Errorf("read ledger: %w", err)
		}
		if reader, err = newLedgerReader(file); err != nil {
			return v.result, err
		}
		if share == 0 {
			// A target that is no Pulsegate has lost nothing.
			if err := probe(ctx, opt.Target, opt.Token); err != nil {
				return nil, err
			}
		}
		entries = entries[:0]
		ledgerErr = reader.each(func(e *ledgerEntry) {
			if e.device%shares == share {
				entries = append(entries, *e)
			}
		})
		where, known := errors.AsType[*LedgerError](ledgerErr)
		if ledgerErr != nil && !known {
			return v.result, ledgerErr
		}
		if known && where.CutOff && opt.AllowCut {
			ledgerErr = nil
		}
		slices.SortFunc(entries, func(a, b ledgerEntry) int {
			return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.timeMs, b.timeMs))
		})
		v.devices = reader.devices
		v.result.Devices = len(reader.devices)
		if err := v.compareAll(ctx, entries); err != nil {
			return v.result, errors.Join(err, ledgerErr)
		}
	}
	err = v.findStrangers(ctx, reader)
	slices.Sort(v.result.Examples)
	return v.result, errors.Join(err, ledgerErr)
}

// A verifier compares. Its workers share result.
type verifier struct {
	opt     VerifyOptions
	client  readClient
	devices []string // by number

	mu     sync.Mutex // guards what follows
	result *Verification
	done   int
}

// compareAll compares the devices of entries, which are sorted by device and
// time.
func (v *verifier) compareAll(ctx context.Context, entries []ledgerEntry) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan []ledgerEntry)
	var workers sync.WaitGroup
	for range verifyWorkers {
		workers.Go(func() {
			for of := range work {
				if err := v.compareDevice(ctx, of); err != nil {
					cancel(err)
				}
			}
		})
	}
	for len(entries) > 0 && ctx.Err() == nil {
		n := len(entries)
		for i := range entries {
			if entries[i].device != entries[0].device {
				n = i
				break
			}
		}
		select {
		case work <- entries[:n]:
			entries = entries[n:]
		case <-ctx.Done():
		}
	}
	close(work)
	workers.Wait()
	return context.Cause(ctx)
}

// compareDevice compares one device. entries are all of its, sorted by time.
func (v *verifier) compareDevice(ctx context.Context, entries []ledgerEntry) error {
	var found Verification
	name := v.devices[entries[0].device]
	note := func(what string, timeMs int64) {
		if len(found.Examples) < maxExamples {
			found.Examples = append(found.Examples, what+" "+name+" "+string(vitals.AppendTime(nil, timeMs)))
		}
	}
	rest := entries
	// upTo settles the entries before a time, of which nothing is stored.
	upTo := func(timeMs int64) {
		for len(rest) > 0 && rest[0].timeMs < timeMs {
			found.compare(sameTime(rest), nil, note)
			rest = rest[len(sameTime(rest)):]
		}
	}
	last, any := int64(0), false
	err := v.client.readings(ctx, name, func(r *vitals.Reading) error {
		found.Stored++
		switch {
		case any && r.TimeUnixMs == last:
			found.Doubled++
			note("doubled", last)
			return nil
		case any && r.TimeUnixMs < last:
			return fmt.Errorf("sim: the readings of device %s are not in the order of their times", name)
		}
		last, any = r.TimeUnixMs, true
		upTo(last)
		if len(rest) > 0 && rest[0].timeMs == last {
			group := sameTime(rest)
			rest = rest[len(group):]
			found.compare(group, &r.Values, note)
			return nil
		}
		found.Unknown++
		note("unknown", last)
		return nil
	})
	if err != nil {
		return err
	}
	for len(rest) > 0 {
		upTo(rest[len(rest)-1].timeMs + 1)
	}
	v.add(&found)
	return nil
}

// sameTime returns the entries at the start that are of one time.
func sameTime(entries []ledgerEntry) []ledgerEntry {
	n := 1
	for n < len(entries) && entries[n].timeMs == entries[0].timeMs {
		n++
	}
	return entries[:n]
}

// compare compares what was sent of one device and time with what is stored,
// which may be nil.
func (v *Verification) compare(sent []ledgerEntry, stored *vitals.Values, note func(what string, timeMs int64)) {
	acked, open := false, false
	for i := range sent {
		acked = acked || sent[i].fate == acknowledged
		open = open || sent[i].fate == unsettled
	}
	if acked {
		v.Acknowledged++
	} else if open {
		v.Unsettled++
	}
	timeMs := sent[0].timeMs
	switch {
	case stored == nil:
		if acked {
			v.Missing++
			note("missing", timeMs)
		}
	case acked && !kept(sent, stored):
		v.Altered++
		note("altered", timeMs)
	case !explained(sent, stored):
		// Something is there that the server never took over from anybody.
		if acked {
			v.Altered++
			note("altered", timeMs)
		} else {
			v.Unknown++
			note("unknown", timeMs)
		}
	case !acked:
		v.UnsettledStored++
	}
}

// kept reports whether every sign that was acknowledged is stored as it was
// sent.
func kept(sent []ledgerEntry, stored *vitals.Values) bool {
	for i := range sent {
		if sent[i].fate != acknowledged {
			continue
		}
		for sign := range vitals.Sign(vitals.NumSigns) {
			want, ok := sent[i].values.Get(sign)
			if got, there := stored.Get(sign); ok && (!there || got != want) {
				return false
			}
		}
	}
	return true
}

// explained reports whether every stored sign was sent with that value, in a
// request that was not refused for good.
func explained(sent []ledgerEntry, stored *vitals.Values) bool {
	for sign := range vitals.Sign(vitals.NumSigns) {
		got, there := stored.Get(sign)
		if !there {
			continue
		}
		if !slices.ContainsFunc(sent, func(e ledgerEntry) bool {
			want, ok := e.values.Get(sign)
			return e.fate != refused && ok && want == got
		}) {
			return false
		}
	}
	return true
}

// add takes over what was found about one device.
func (v *verifier) add(found *Verification) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.result
	r.Acknowledged += found.Acknowledged
	r.Stored += found.Stored
	r.Missing += found.Missing
	r.Altered += found.Altered
	r.Doubled += found.Doubled
	r.Unknown += found.Unknown
	r.Unsettled += found.Unsettled
	r.UnsettledStored += found.UnsettledStored
	room := maxExamples - len(r.Examples)
	r.Examples = append(r.Examples, found.Examples[:min(room, len(found.Examples))]...)
	v.done++
	if v.opt.Progress != nil {
		v.opt.Progress(v.done, r.Devices)
	}
}

// findStrangers counts the readings of devices that bear the run's name and were
// never sent.
func (v *verifier) findStrangers(ctx context.Context, reader *ledgerReader) error {
	prefix := "sim-" + reader.run + "-"
	return v.client.eachDevice(ctx, func(name string) error {
		if _, known := reader.numbers[name]; known || !strings.HasPrefix(name, prefix) {
			return nil
		}
		return v.client.readings(ctx, name, func(r *vitals.Reading) error {
			v.result.Stored++
			v.result.Unknown++
			if len(v.result.Examples) < maxExamples {
				v.result.Examples = append(v.result.Examples, "unknown "+name+" "+string(vitals.AppendTime(nil, r.TimeUnixMs)))
			}
			return nil
		})
	})
}
