package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Correction says which values of a device are wrong, for example because of a wrong import, and are to be erased. It
// is a part of the body of a request.
type Correction struct {
	From    string   `json:"from"`             // first time of measurement, in RFC 3339
	To      string   `json:"to"`               // time of measurement before which it ends, in RFC 3339
	Signs   []string `json:"signs,omitempty"`  // fields; empty means all
	Gateway string   `json:"gateway,omitzero"` // only readings that it has sent alone; empty means all
	Shared  bool     `json:"shared,omitzero"`  // with Gateway, also those that another gateway has completed
}

// A FieldError says which field of a request is not valid, and why.
type FieldError struct{ Field, Reason string }

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Erasure returns the erasure of the values that c names, or a *FieldError.
func (c *Correction) Erasure(device vitals.Name, signs *vitals.Signs) (e storage.Erasure, err error) {
	e = storage.Erasure{Device: device, Shared: c.Shared}
	if e.FromUnixMs, _, err = vitals.ParseRFC3339(c.From); err != nil || e.FromUnixMs < 0 {
		return e, &FieldError{"from", "it is not a time after 1970 in RFC 3339 with a zone"}
	}
	if e.ToUnixMs, _, err = vitals.ParseRFC3339(c.To); err != nil {
		return e, &FieldError{"to", "it is not a time in RFC 3339 with a zone"}
	}
	e.FromUnixMs, e.ToUnixMs = localtime.Bound(c.From, e.FromUnixMs), localtime.Bound(c.To, e.ToUnixMs)
	if e.ToUnixMs <= e.FromUnixMs {
		return e, &FieldError{"to", "it is not after from"}
	}
	for _, field := range c.Signs {
		s, ok := signs.Named(field)
		if !ok {
			return e, &FieldError{"signs", "one of them is not a sign that this server knows"}
		}
		e.Signs |= 1 << s
	}
	for _, p := range vitals.Pairs { // a reading has both or none
		if pair := uint32(1<<p.High | 1<<p.Low); e.Signs&pair != 0 && e.Signs&pair != pair {
			return e, &FieldError{"signs", signs.Of(p.High).Field + " and " + signs.Of(p.Low).Field + " go together"}
		}
	}
	if c.Gateway == "" && c.Shared {
		return e, &FieldError{"shared", "it needs a gateway"}
	}
	if c.Gateway != "" {
		if e.Gateway, err = vitals.ParseName(c.Gateway); err != nil {
			return e, &FieldError{"gateway", "it is not a valid name"}
		}
	}
	return e, nil
}

// A Preview is what an erasure of values would remove.
type Preview struct {
	span
	Shared   int64            `json:"shared,omitzero"` // readings that stay, because other gateways have completed them
	Gateways []GatewayPreview `json:"gateways"`        // by name
}

// A GatewayPreview is what an erasure of values would remove of a gateway's readings.
type GatewayPreview struct {
	Gateway string `json:"gateway,omitzero"` // empty: readings without one
	span
}

// A span is a number of readings, with the times of the first and the last one.
type span struct {
	Readings int64  `json:"readings"`
	First    string `json:"first,omitzero"` // RFC 3339
	Last     string `json:"last,omitzero"`

	firstUnixMs, lastUnixMs int64
}

func (s *span) add(unixMs int64) {
	if s.Readings == 0 {
		s.firstUnixMs = unixMs
	}
	s.Readings++
	s.lastUnixMs = unixMs
}

// show sets the texts.
func (s *span) show() {
	if s.Readings > 0 {
		s.First, s.Last = formatTime(s.firstUnixMs), formatTime(s.lastUnixMs)
	}
}

// previewRecords is the number of readings that NewPreview reads at once.
const previewRecords = 4096

// NewPreview reads what an erasure of values would remove. latest and scan are methods of a store.
func NewPreview(ctx context.Context, latest func(context.Context, vitals.Name) (storage.Device, error),
	scan func(context.Context, storage.Range, []storage.Record) (int, error), e *storage.Erasure) (p Preview, err error) {
	if _, err = latest(ctx, e.Device); err != nil {
		return p, err
	}
	scanner := storage.Scanner{Range: storage.Range{Device: e.Device, FromUnixMs: e.FromUnixMs, ToUnixMs: e.ToUnixMs}}
	buffer := make([]storage.Record, previewRecords)
	found := map[vitals.Name]*span{}
	for more := true; more; {
		var records []storage.Record
		if records, more, err = scanner.Next(ctx, scan, buffer); err != nil {
			return p, err
		}
		for i := range records {
			r := &records[i]
			removed, shared := e.Selects(r)
			if shared {
				p.Shared++
			}
			if !removed {
				continue
			}
			var gateway vitals.Name
			if r.Gateway != nil {
				gateway = *r.Gateway
			}
			if found[gateway] == nil {
				found[gateway] = &span{}
			}
			found[gateway].add(r.TimeUnixMs)
			p.add(r.TimeUnixMs)
		}
	}
	p.show()
	p.Gateways = []GatewayPreview{}
	for gateway, s := range found {
		s.show()
		p.Gateways = append(p.Gateways, GatewayPreview{gateway.String(), *s})
	}
	slices.SortFunc(p.Gateways, func(a, b GatewayPreview) int { return strings.Compare(a.Gateway, b.Gateway) })
	return p, nil
}

// eraseValues answers a request to erase values of a device.
func (h *Handler) eraseValues(w http.ResponseWriter, r *http.Request, device vitals.Name, asked *eraseRequest) {
	e, err := asked.Erasure(device, h.opt.Signs)
	if field, ok := errors.AsType[*FieldError](err); ok {
		h.badField(w, r, field.Field, field.Reason)
		return
	}
	if asked.DryRun {
		h.preview(w, r, &e)
		return
	}
	record := audit.Record{Actor: h.opt.Actor(r.Context()), Peer: gate.PeerOf(r).PeerAddr()}
	begun := time.Now()
	var recordErr error
	e, err = h.opt.EraseValues(e, func(e storage.Erasure) error {
		recordErr = h.opt.Record(ErasedRecord(e, h.opt.Signs, record))
		return recordErr
	})
	if recordErr != nil {
		h.notRecorded(w, r, e, recordErr)
		return
	}
	if err != nil {
		h.refuse(w, r, "erasure of values", err)
		return
	}
	h.opt.Log.Info("values erased", "device", device, "readings", e.Readings, "took", time.Since(begun))
	from, to := formatTime(e.FromUnixMs), formatTime(e.ToUnixMs)
	h.answer(w, eraseAnswer{Device: device.String(), From: from, To: to, Erased: e.Readings})
}

// preview answers with what an erasure of values would remove.
func (h *Handler) preview(w http.ResponseWriter, r *http.Request, e *storage.Erasure) {
	p, err := NewPreview(r.Context(), h.opt.Latest, h.opt.Scan, e)
	if err != nil {
		h.refuse(w, r, "preview of an erasure", err)
		return
	}
	h.answer(w, struct {
		Device string `json:"device"`
		Preview
	}{e.Device.String(), p})
}

// notRecorded answers a request whose erasure could not be recorded.
func (h *Handler) notRecorded(w http.ResponseWriter, r *http.Request, e storage.Erasure, err error) {
	h.opt.Log.Error("an erasure cannot be recorded in the audit log", "device", e.Device, "readings", e.Readings,
		"error", err)
	what := "The device is"
	if e.OfValues() {
		what = "The values are"
	}
	h.opt.Problems.ErasureUnfinished.Write(w, r, what+" erased, but that could not be recorded in the audit log. "+
		"Repeat the request, which records it.")
}
