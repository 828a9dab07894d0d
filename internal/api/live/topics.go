package live

import "github.com/pulsegate/pulsegate/vitals"

// A selection is the devices that a subscriber wants: those in a list, or those whose names
// begin with a prefix if the list is empty. The zero selection is all devices.
type selection struct {
	devices []vitals.Name
	prefix  vitals.Name
}

// topics find the subscribers of a device. A look-up takes one map access, and another for
// each length of the prefixes in use.
type topics struct {
	devices  map[vitals.Name]group
	prefixes map[vitals.Name]group
	lengths  [vitals.MaxNameBytes + 1]int // number of prefixes of each length
}

// A group is the subscribers of one topic.
type group map[*subscriber]struct{}

func newTopics() topics {
	return topics{devices: map[vitals.Name]group{}, prefixes: map[vitals.Name]group{}}
}

func (t *topics) add(s *subscriber) {
	for _, d := range s.want.devices {
		join(t.devices, d, s)
	}
	if len(s.want.devices) == 0 && join(t.prefixes, s.want.prefix, s) {
		t.lengths[s.want.prefix.Len()]++
	}
}

func (t *topics) remove(s *subscriber) {
	for _, d := range s.want.devices {
		leave(t.devices, d, s)
	}
	if len(s.want.devices) == 0 && leave(t.prefixes, s.want.prefix, s) {
		t.lengths[s.want.prefix.Len()]--
	}
}

// join reports whether s is the first of its group.
func join(groups map[vitals.Name]group, key vitals.Name, s *subscriber) bool {
	g := groups[key]
	if g == nil {
		groups[key] = group{s: {}}
		return true
	}
	g[s] = struct{}{}
	return false
}

// leave reports whether s was the last of its group.
func leave(groups map[vitals.Name]group, key vitals.Name, s *subscriber) bool {
	g := groups[key]
	delete(g, s)
	if len(g) == 0 {
		delete(groups, key)
		return true
	}
	return false
}

// each calls f with the groups that want a device, until it returns false. A subscriber is in
// one of them at most.
func (t *topics) each(device *vitals.Name, f func(group) bool) {
	if g := t.devices[*device]; g != nil && !f(g) {
		return
	}
	if len(t.prefixes) == 0 {
		return
	}
	var b [vitals.MaxNameBytes]byte
	text := device.AppendTo(b[:0])
	for n := 0; n <= len(text); n++ {
		if t.lengths[n] == 0 {
			continue
		}
		prefix, _ := vitals.ParseName(text[:n]) // the zero Name for none
		if g := t.prefixes[prefix]; g != nil && !f(g) {
			return
		}
	}
}

// has reports whether any subscriber wants a device.
func (t *topics) has(device *vitals.Name) (any bool) {
	t.each(device, func(group) bool { any = true; return false })
	return any
}
