package query

import (
	"context"

	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An Assigner returns assignments of devices to subjects. Package storage documents its contract.
type Assigner interface {
	SubjectAssignments(ctx context.Context, subject storage.Subject) ([]storage.Assignment, error)
	DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error)
	VisitAssignments(ctx context.Context, devices []vitals.Name, visit func(*storage.Assignment)) error
}

// assignments returns the assignments of a device.
func (s *Service) assignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error) {
	if s.Subjects == nil {
		return nil, nil
	}
	return s.Subjects.DeviceAssignments(ctx, device)
}

// SpansAt returns, for each of the devices, the span around the time unixMs(i): see [storage.SpanAt].
func (s *Service) SpansAt(ctx context.Context, devices []vitals.Name, unixMs func(i int) int64) ([]storage.Assignment,
	error) {
	spans, of := make([]storage.Assignment, len(devices)), make(map[vitals.Name][]int, len(devices))
	for i, d := range devices {
		spans[i].ToUnixMs, of[d] = storage.OpenEnd, append(of[d], i)
	}
	if s.Subjects == nil || len(devices) == 0 {
		return spans, nil
	}
	return spans, s.Subjects.VisitAssignments(ctx, devices, func(a *storage.Assignment) {
		for _, i := range of[a.Device] {
			spans[i].Narrow(a, unixMs(i))
		}
	})
}

// assignedToRanged returns the assignments to subjects that have ranges of their own, by device.
func (s *Service) assignedToRanged(ctx context.Context, named *roster.Roster) (map[vitals.Name][]storage.Assignment,
	error) {
	if s.Subjects == nil || !named.HasSubjectRanges() {
		return nil, nil
	}
	by := map[vitals.Name][]storage.Assignment{}
	for subject := range named.Subjects() {
		all, err := s.Subjects.SubjectAssignments(ctx, subject)
		if err != nil {
			return nil, err
		}
		for i := range all {
			by[all[i].Device] = append(by[all[i].Device], all[i])
		}
	}
	return by, nil
}

// assignedTo returns the assignments that a list of devices needs: those that cover the time of a latest value, or
// now.
func (s *Service) assignedTo(ctx context.Context, devices []storage.Device,
	nowUnixMs int64) (map[vitals.Name][]storage.Assignment, error) {
	if s.Subjects == nil || len(devices) == 0 {
		return nil, nil
	}
	names, of := make([]vitals.Name, len(devices)), make(map[vitals.Name]*storage.Device, len(devices))
	for i := range devices {
		names[i], of[devices[i].Name] = devices[i].Name, &devices[i]
	}
	shown := map[vitals.Name][]storage.Assignment{}
	return shown, s.Subjects.VisitAssignments(ctx, names, func(a *storage.Assignment) {
		show := a.Covers(nowUnixMs)
		for i := range of[a.Device].Latest {
			l := &of[a.Device].Latest[i]
			show = show || l.Known && a.Covers(l.TimeUnixMs)
		}
		if show {
			shown[a.Device] = append(shown[a.Device], *a)
		}
	})
}

// appendAssignments appends the members assigned_since, the beginning of the present span, and assignments.
func appendAssignments(dst []byte, all []storage.Assignment, nowUnixMs int64) []byte {
	if span := storage.SpanAt(all, nowUnixMs); span.FromUnixMs > 0 {
		dst = append(vitals.AppendTime(append(dst, `,"assigned_since":"`...), span.FromUnixMs), '"')
	}
	before := `,"assignments":[`
	for i := range all {
		dst = append(append(append(dst, before...), `{"subject":"`...), all[i].Subject...)
		dst, before = appendPeriod(dst, &all[i]), ","
	}
	if len(all) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

// appendPeriod appends the times of an assignment as the last members of an object, after a text.
func appendPeriod(dst []byte, a *storage.Assignment) []byte {
	dst = vitals.AppendTime(append(dst, `","from":"`...), a.FromUnixMs)
	if a.ToUnixMs != storage.OpenEnd {
		dst = vitals.AppendTime(append(dst, `","to":"`...), a.ToUnixMs)
	}
	return append(dst, `"}`...)
}

// A wearing is the span around the time of the record that was encoded last.
type wearing struct {
	all []storage.Assignment // of the device
	now storage.Assignment   // the zero value covers no time
}

// seek moves to the span around a time, and reports whether the subject has changed.
func (w *wearing) seek(unixMs int64) (changed bool) {
	if w.now.Covers(unixMs) {
		return false
	}
	before := w.now.Subject
	w.now = storage.SpanAt(w.all, unixMs)
	return w.now.Subject != before
}

// appendSubject appends a member with a subject, which needs no escapes, unless it is nobody.
func appendSubject(dst []byte, member string, subject storage.Subject) []byte {
	if subject == "" {
		return dst
	}
	return append(append(append(append(append(dst, `,"`...), member...), `":"`...), subject...), '"')
}
