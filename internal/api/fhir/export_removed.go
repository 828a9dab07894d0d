package fhir

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// events calls visit with the events since that the client may see.
func (e *export) events(ctx context.Context, visit func(*storage.Change) error) error {
	if !e.incremental() {
		return nil
	}
	changes := e.changes
	from, err := changes.PositionAt(ctx, e.sinceUnixMs+1)
	if err != nil {
		return err
	}
	to, _, err := changes.Position(ctx)
	if err != nil {
		return err
	}
	for after, more := from.Event, true; more && err == nil; {
		if err = e.renew(ctx); err != nil {
			break
		}
		var page []storage.Change
		more = false
		err = changes.VisitEvents(ctx, after, to.Event, func(c *storage.Change) bool {
			page, after = append(page, *c), c.Number
			more = len(page) == 256
			return !more
		})
		for i := 0; i < len(page) && err == nil; i++ {
			if c := &page[i]; e.concerns(c) {
				err = visit(c)
			}
		}
	}
	if err != nil || e.Lenient {
		return err
	}
	return e.known(e.r, e.exportQuery) // the store may have removed events while they were read
}

// concerns reports whether the client may see an event. It removes the subjects that he may not.
func (e *export) concerns(c *storage.Change) bool {
	if c.Kind == storage.ChangeExpired {
		return true
	}
	if !c.Device.HasPrefix(&e.group) || hides(e.may, &c.Device) {
		return false
	}
	if c.Kind == storage.ChangeUnassigned {
		return e.may.CoversSubject(string(c.Subject))
	}
	subjects := slices.DeleteFunc(slices.Clone(c.Subjects), func(s storage.Subject) bool {
		return !e.may.CoversSubject(string(s))
	})
	slices.Sort(subjects)
	c.Subjects = slices.Compact(subjects)
	return c.Kind == storage.ChangeErased && (len(subjects) > 0 || !e.may.BoundToSubjects())
}

// deleted emits a Bundle for each erasure after which a Device or a Patient is not served any more. What it says may be
// different when it is read again, so outcomes has all erasures, too.
func (e *export) deleted(ctx context.Context) error {
	return e.events(ctx, func(c *storage.Change) error {
		if c.Kind != storage.ChangeErased {
			return nil
		}
		var entries []string
		add := func(reference string) {
			entries = append(entries, `{"request":{"method":"DELETE","url":"`+reference+`"}}`)
		}
		if slices.Contains(e.types, "Device") {
			gone, err := e.gone(ctx, &c.Device)
			if err != nil {
				return err
			}
			if gone {
				add("Device/" + string(appendDeviceID(nil, &c.Device)))
			}
		}
		for _, s := range c.Subjects {
			all, err := e.SubjectAssignments(ctx, s)
			if err != nil {
				return err
			}
			if len(all) == 0 && slices.Contains(e.types, "Patient") {
				add("Patient/" + string(s))
			}
		}
		if len(entries) == 0 {
			return nil
		}
		const start = `{"resourceType":"Bundle","type":"transaction","entry":[`
		return e.emit([]byte(start + strings.Join(entries, ",") + "]}"))
	})
}

// Beginnings of issues of an export. The diagnostics of removed are a search for the Observations to remove.
const (
	removed = `{"severity":"warning","code":"deleted","details":{"text":` +
		`"Remove the Observations that this search finds, before the resources of the export are added."}`
	unknown = `{"severity":"warning","code":"incomplete"`
)

// outcomes emits an OperationOutcome for each event that removes Observations. What the store no longer knows
// comes last: it may have removed events while they were read.
func (e *export) outcomes(ctx context.Context) error {
	outcome := func(text, diagnostics string) error {
		e.line = appendIssue(append(e.line[:0], outcomeStart...), text, diagnostics, "")
		return e.emit(append(e.line, "]}"...))
	}
	if e.ignored {
		if err := outcome(information, "Parameters that are not supported were ignored."); err != nil {
			return err
		}
	}
	if slices.Contains(e.types, "Observation") {
		err := e.events(ctx, func(c *storage.Change) error { return outcome(removed, searchOf(e.Signs(), c)) })
		if err != nil {
			return err
		}
	}
	err := e.known(e.r, e.exportQuery)
	if errors.Is(err, errOldSince) {
		err = outcome(unknown, "Some of what was removed since _since is no longer known.")
	}
	return err
}

// searchOf returns a search for the Observations that an event removes.
func searchOf(signs *vitals.Signs, c *storage.Change) string {
	var params []string
	if !c.Device.IsZero() {
		params = append(params, "device=Device/"+string(appendDeviceID(nil, &c.Device)))
	}
	if c.FromUnixMs > 0 {
		params = append(params, "date=ge"+string(vitals.AppendTime(nil, c.FromUnixMs)))
	}
	if c.ToUnixMs != storage.OpenEnd {
		params = append(params, "date=lt"+string(vitals.AppendTime(nil, c.ToUnixMs)))
	}
	return "Observation?" + strings.Join(append(params, codesOf(signs, c.Signs)...), "&")
}

// codesOf returns the parameters of a search for Observations of some signs; 0 means all. Each group has a code that no
// group has that is more general, so the others are excluded by theirs.
func codesOf(signs *vitals.Signs, some uint32) []string {
	if some == 0 {
		return nil
	}
	var wanted, others []string
	var with, own groups
	for s := range vitals.InOrder(some) {
		own |= 1 << groupWith(s)
	}
	token := func(g group) string {
		m := mappingOf(signs, g)
		code := m.codes[0]
		if int(g) >= len(builtIn) {
			code = m.codes[len(m.codes)-1]
		}
		with |= withCode(signs, code.system, code.code)
		return code.system + "|" + code.code
	}
	each := func(all groups, visit func(group)) {
		for g := range group(numGroups) {
			if all&(1<<g) != 0 && mappingOf(signs, g) != nil {
				visit(g)
			}
		}
	}
	each(own, func(g group) { wanted = append(wanted, token(g)) })
	each(with&^own, func(g group) { others = append(others, token(g)) })
	params := []string{"code=" + strings.Join(wanted, ",")}
	if len(others) > 0 {
		params = append(params, "code:not="+strings.Join(others, ","))
	}
	return params
}
