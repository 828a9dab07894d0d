package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Verification compares what a server has stored with what it acknowledged. It counts
// readings, identified by device and time.
type Verification struct {
	Acknowledged uint64 `json:"acknowledged"` // according to the ledger
	Stored       uint64 `json:"stored"`       // read back for the run's devices

	Missing uint64 `json:"missing"` // acknowledged but not stored
	Altered uint64 `json:"altered"` // stored with other signs, values or an offset from UTC than were sent
	Doubled uint64 `json:"doubled"` // returned more than once
	Unknown uint64 `json:"unknown"` // stored, but never sent or rejected

	// Unsettled readings were sent but got no final answer. They may be stored or not.
	Unsettled       uint64 `json:"unsettled"`
	UnsettledStored uint64 `json:"unsettled_stored"`

	Devices  int      `json:"devices"`
	Examples []string `json:"examples,omitempty"` // the first findings, with device and time but no values
}

// maxExamples bounds the list of examples.
const maxExamples = 20

// OK reports whether the server kept its promise.
func (v *Verification) OK() bool { return v.Missing+v.Altered+v.Doubled+v.Unknown == 0 }

// VerifyOptions configure [Verify].
type VerifyOptions struct {
	Target *Target
	Token  string

	// AllowCut accepts a ledger that is cut off. Readings that were sent after the cut
	// then count as unknown if they are stored.
	AllowCut bool

	// OnProgress, if not nil, is called with the number of finished devices.
	OnProgress func(done, all int)

	shareBytes int64 // replaces ledgerBytesAtATime in tests
}

// The number of workers, and the bytes of the ledger that are compared at a time. A byte of
// the ledger takes about two bytes of memory.
const (
	verifyWorkers      = 4
	ledgerBytesAtATime = 128 << 20
)

// Verify reads back all stored readings of a ledger's devices through the API and
// compares them with the ledger.
//
// A *LedgerError means that the ledger is cut off or corrupt; the Verification covers
// the part before that line. After any other error it covers what was read until then.
//
// If the ledger cannot be opened, or the target cannot be reached or is not Pulsegate, the
// Verification is nil.
func Verify(ctx context.Context, ledger string, opt VerifyOptions) (*Verification, error) {
	v := &verifier{opt: opt, result: &Verification{}}
	file, err := sharedfile.Open(ledger)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return v.result, fmt.Errorf("open ledger: %w", err)
	}
	first, err := newLedgerReader(file)
	if err != nil {
		return v.result, err
	}
	if v.client, err = newReadClient(opt.Target, opt.Token, first.signs); err != nil {
		return v.result, err
	}
	defer v.client.Close()
	var (
		reader    *ledgerReader
		entries   []ledgerEntry
		ledgerErr error
	)
	// A long ledger is read once per share of its devices, to bound memory.
	shares := int32(info.Size()/cmp.Or(opt.shareBytes, ledgerBytesAtATime)) + 1
	for share := range shares {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return v.result, fmt.Errorf("read ledger: %w", err)
		}
		if reader, err = newLedgerReader(file); err != nil {
			return v.result, err
		}
		if share == 0 {
			// Without this check, another program as the target would look like lost readings.
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
	err = v.findUnknownDevices(ctx, reader)
	slices.Sort(v.result.Examples)
	return v.result, errors.Join(err, ledgerErr)
}

// A verifier is the state of Verify. Its workers share result.
type verifier struct {
	opt     VerifyOptions
	client  readClient
	devices []string // by number

	mu     sync.Mutex // guards the following fields
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

// compareDevice compares one device. entries are all entries of the device, sorted by
// time.
func (v *verifier) compareDevice(ctx context.Context, entries []ledgerEntry) error {
	var found Verification
	name := v.devices[entries[0].device]
	note := func(what string, timeMs int64) {
		if len(found.Examples) < maxExamples {
			found.Examples = append(found.Examples, what+" "+name+" "+string(vitals.AppendTime(nil, timeMs)))
		}
	}
	rest := entries
	// upTo compares the entries before a time, for which nothing is stored.
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
			return fmt.Errorf("the readings of device %s are not in the order of their times", name)
		}
		last, any = r.TimeUnixMs, true
		upTo(last)
		if len(rest) > 0 && rest[0].timeMs == last {
			group := sameTime(rest)
			rest = rest[len(group):]
			found.compare(group, r, note)
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

// sameTime returns the leading entries that have the same time.
func sameTime(entries []ledgerEntry) []ledgerEntry {
	n := 1
	for n < len(entries) && entries[n].timeMs == entries[0].timeMs {
		n++
	}
	return entries[:n]
}

// compare compares what was sent for one device and time with what is stored, which may
// be nil.
func (v *Verification) compare(sent []ledgerEntry, stored *vitals.Reading, note func(what string, timeMs int64)) {
	acked, open := false, false
	for i := range sent {
		acked = acked || sent[i].outcome == acknowledged
		open = open || sent[i].outcome == unsettled
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
	case acked && !preserved(sent, &stored.Values):
		v.Altered++
		note("altered", timeMs)
	case !wasSent(sent, stored):
		// The stored reading has signs or an offset that the server never accepted.
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

// preserved reports whether every acknowledged sign is stored as it was sent.
func preserved(sent []ledgerEntry, stored *vitals.Values) bool {
	for i := range sent {
		if sent[i].outcome != acknowledged {
			continue
		}
		for sign, want := range sent[i].values.All() {
			if got, there := stored.Get(sign); !there || got != want {
				return false
			}
		}
	}
	return true
}

// wasSent reports whether every stored sign was sent with that value, and some reading with
// the stored offset from UTC, in a request that was not rejected.
func wasSent(sent []ledgerEntry, stored *vitals.Reading) bool {
	if !slices.ContainsFunc(sent, func(e ledgerEntry) bool {
		return e.outcome != refused &&
			e.offset == stored.UTCOffset
	}) {
		return false
	}
	for sign, got := range stored.Values.All() {
		if !slices.ContainsFunc(sent, func(e ledgerEntry) bool {
			want, ok := e.values.Get(sign)
			return e.outcome != refused && ok && want == got
		}) {
			return false
		}
	}
	return true
}

// add adds the findings about one device.
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
	left := maxExamples - len(r.Examples)
	r.Examples = append(r.Examples, found.Examples[:min(left, len(found.Examples))]...)
	v.done++
	if v.opt.OnProgress != nil {
		v.opt.OnProgress(v.done, r.Devices)
	}
}

// findUnknownDevices counts stored readings of devices that have the run's prefix but
// are not in the ledger.
func (v *verifier) findUnknownDevices(ctx context.Context, reader *ledgerReader) error {
	prefix := "sim-" + reader.run + "-"
	var unknown []string
	err := v.client.Retry(ctx, func() error {
		unknown = unknown[:0]
		return v.client.Devices(ctx, 0, func(page []transfer.Device) error {
			for _, d := range page {
				if _, known := reader.numbers[d.Name]; !known && strings.HasPrefix(d.Name, prefix) {
					unknown = append(unknown, d.Name)
				}
			}
			return nil
		})
	})
	for _, name := range unknown {
		if err != nil {
			break
		}
		err = v.client.readings(ctx, name, func(r *vitals.Reading) error {
			v.result.Stored++
			v.result.Unknown++
			if len(v.result.Examples) < maxExamples {
				v.result.Examples = append(v.result.Examples, "unknown "+name+" "+string(vitals.AppendTime(nil, r.TimeUnixMs)))
			}
			return nil
		})
	}
	return err
}
