package mux

import "sync/atomic"

// A node represents the segments on the path to it. In the index's other tables
// it represents a whole path, a host, or a part of a segment.
type node struct {
	key  string
	next *node // in a nodeSet

	literal nodeSet // by the next segment
	wild    *node   // any next segment
	rare    *rareBranches

	// here holds the routes whose template ends at this node.
	here list

	// direct caches the routes for a path in the exact table.
	direct atomic.Pointer[directRoutes]
}

// rareBranches are those that few nodes have.
type rareBranches struct {
	// below holds the routes that match any continuation.
	below list

	// beginnings holds, by key, the routes that match any continuation that
	// begins with the key.
	beginnings keysByLength

	// affixes maps the beginning of the next segment to nodes. Their ends map
	// the end of that segment to the nodes for the segments after it.
	affixes keysByLength
	ends    keysByLength
}

func (n *node) rareBranches() *rareBranches {
	if n.rare == nil {
		n.rare = &rareBranches{}
	}
	return n.rare
}

// add inserts a route under the segments of its template.
func (n *node) add(segments []segment, open bool, route *compiledRoute) {
	for i, seg := range segments {
		if open && i == len(segments)-1 {
			n.addOpen(seg.prefix, route)
			return
		}
		n = n.child(seg)
	}
	n.here.add(route)
}

func (n *node) addOpen(beginning string, route *compiledRoute) {
	if beginning == "" {
		n.rareBranches().below.add(route)
		return
	}
	n.rareBranches().beginnings.add(beginning).here.add(route)
}

func (n *node) child(seg segment) *node {
	switch {
	case !seg.wild:
		return n.literal.add(seg.literal())
	case seg.prefix == "" && seg.suffix == "":
		if n.wild == nil {
			n.wild = &node{}
		}
		return n.wild
	default:
		return n.rareBranches().affixes.add(seg.prefix).rareBranches().ends.add(seg.suffix)
	}
}

// collect adds the candidates for the segments of p from position i on. n is
// the node for the segments before.
//
// Invariant: each node is visited at most once for a path, and a visit makes
// one lookup for the segment and one for each length of a partial literal. The
// depth of the recursion is bounded by that of the tree. TestStepsOfIndex
// counts the visits.
func (n *node) collect(p *splitPath, i int, found *candidates) {
	found.steps++
	seg, last := p.segment(i)
	if child := n.literal.get(seg); child != nil {
		child.enter(p, i, last, found)
	}
	if n.wild != nil {
		n.wild.enter(p, i, last, found)
	}
	if n.rare != nil {
		n.rare.collect(p, i, seg, last, found)
	}
}

// enter continues with the segment after i, if there is one.
func (n *node) enter(p *splitPath, i int, last bool, found *candidates) {
	if last {
		found.add(&n.here)
	} else {
		n.collect(p, i+1, found)
	}
}

func (r *rareBranches) collect(p *splitPath, i int, seg string, last bool, found *candidates) {
	found.add(&r.below)
	rest := p.from(i)
	for _, length := range r.beginnings.lengths {
		found.steps++
		if length > len(rest) {
			continue
		}
		if n := r.beginnings.get(rest[:length]); n != nil {
			found.add(&n.here)
		}
	}
	for _, length := range r.affixes.lengths {
		found.steps++
		if length > len(seg) {
			continue
		}
		if n := r.affixes.get(seg[:length]); n != nil {
			n.rare.collectEnds(p, i, seg[length:], last, found)
		}
	}
}

// collectEnds adds the candidates whose segment has the same end as rest.
func (r *rareBranches) collectEnds(p *splitPath, i int, rest string, last bool, found *candidates) {
	for _, length := range r.ends.lengths {
		found.steps++
		if length > len(rest) {
			continue
		}
		if n := r.ends.get(rest[len(rest)-length:]); n != nil {
			n.enter(p, i, last, found)
		}
	}
}

// A splitPath is a request's path, split at its slashes. The first segment
// begins after the leading slash.
type splitPath struct {
	text string

	// ends are the ends of the first n segments, those in more included.
	// Segments that no template reaches are not recorded.
	ends [14]int32
	n    int
	more []int32

	// noEmpty is set if no segment is empty.
	noEmpty bool
}

// split records the first segments, as many as depth, and reports whether the
// path is clean. It reads each byte once.
//
// Invariant: its result is that of isClean; TestCleanPath checks it.
func (p *splitPath) split(text string, depth int) (clean bool) {
	p.text, p.n, p.more, p.noEmpty = text, 0, nil, false
	if text == "" || text[0] != '/' {
		return false
	}
	clean, p.noEmpty = true, true
	for start := 1; ; {
		end := indexSlash(text, start)
		last := end == len(text)
		if n := end - start; n <= 2 && (n == 0 || text[start] == '.') {
			seg := text[start:end]
			p.noEmpty = p.noEmpty && n > 0
			clean = clean && (n > 0 || last) && seg != "." && seg != ".."
		}
		if p.n < depth {
			p.note(end)
		}
		if last {
			return clean
		}
		start = end + 1
	}
}

func (p *splitPath) note(end int) {
	if p.n < len(p.ends) {
		p.ends[p.n] = int32(end)
	} else {
		p.more = append(p.more, int32(end))
	}
	p.n++
}

func (p *splitPath) end(i int) int {
	if i < len(p.ends) {
		return int(p.ends[i])
	}
	return int(p.more[i-len(p.ends)])
}

// start returns where segment i begins.
func (p *splitPath) start(i int) int {
	if i == 0 {
		return 1
	}
	return p.end(i-1) + 1
}

// segment returns segment i and whether it is the path's last.
func (p *splitPath) segment(i int) (seg string, last bool) {
	end := p.end(i)
	return p.text[p.start(i):end], end == len(p.text)
}

// from returns the path from segment i on.
func (p *splitPath) from(i int) string { return p.text[p.start(i):] }

// indexSlash returns the position of the next slash, or the length of the text.
// Segments are short, so a loop is faster than a call.
func indexSlash(text string, from int) int {
	for i := from; i < len(text); i++ {
		if text[i] == '/' {
			return i
		}
	}
	return len(text)
}
