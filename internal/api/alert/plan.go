package alert

// A settling is what the plans of a device's runs depend on beside the runs.
type settling struct {
	nowUnixMs int64
	read      bool // the runs were read from the store just now
	failed    bool // the last attempt to read them failed
	damaged   bool // it did, and a sweep after it succeeded: the store works but for this device
	grace     bool // no alert about silence may begin
}

// A plan is what becomes of a run's alert.
type plan struct {
	active      bool  // the alert is reported as active
	sinceUnixMs int64 // of the alert; with active
	known       bool  // run.known
	readFirst   bool  // the device's runs must be read before the alert begins or ends; until then it stays as it is
	order       order // of that read
}

// plan returns what becomes of the alert of a rule, the rule with index i. It changes nothing.
//
// An alert begins after the device's runs were read, because the store may have a reading that contradicts it. It ends
// after they were read if newer values may have been left out; see [filter].
//
// While the runs cannot be read, an alert about values ends only with a newer value or a pause. If only this device
// cannot be read, what is known begins an alert.
func (w *watched) plan(i int, rule *Rule, s *settling) plan {
	u := &w.runs[i]
	p := plan{known: u.known}
	p.sinceUnixMs, p.active = w.at(i, rule, s.nowUnixMs)
	if s.failed && u.reported && rule.Silent == 0 && u.met && !u.isOver(s.nowUnixMs) {
		p.sinceUnixMs, p.active = u.sinceUnixMs, true
	}
	begins, ends := p.active && !u.reported, !p.active && u.reported
	reason := beginning
	if rule.Silent != 0 {
		silent := w.isSilent(i, rule, s.nowUnixMs)
		p.known = silent && (u.known || s.read)
		begins = begins || silent && !p.known
		reason = silence
	}
	switch {
	case begins && p.active && rule.Silent != 0 && s.grace:
		p.active = u.reported
	case begins && !s.read && !s.damaged:
		p.active, p.readFirst, p.order = u.reported, true, reason
	case ends && w.stale>>i&1 != 0 && !s.read && !s.failed:
		p.active, p.sinceUnixMs = true, u.sinceUnixMs
		p.readFirst, p.order = true, beginning
	}
	return p
}
