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

// collect adds the candidates for the segments of the path from start on. n is
// the node for the segments before.
//
// Invariant: each node is visited at most once for a path, and a visit makes
// one lookup for the segment and one for each length of a partial literal. The
// depth of the recursion is bounded by that of the tree. TestStepsOfIndex
// counts the visits.
func (n *node) collect(path string, start int, found *candidates) {
	found.steps++
	end := indexSlash(path, start)
	if child := n.literal.get(path[start:end]); child != nil {
		child.enter(path, end, found)
	}
	if n.wild != nil {
		n.wild.enter(path, end, found)
	}
	if n.rare != nil {
		n.rare.collect(path, start, end, found)
	}
}

// enter continues after the segment that ends at end, if it is not the last.
func (n *node) enter(path string, end int, found *candidates) {
	if end == len(path) {
		found.add(&n.here)
	} else {
		n.collect(path, end+1, found)
	}
}

func (r *rareBranches) collect(path string, start, end int, found *candidates) {
	found.add(&r.below)
	rest := path[start:]
	for _, length := range r.beginnings.lengths {
		found.steps++
		if length > len(rest) {
			continue
		}
		if n := r.beginnings.get(rest[:length]); n != nil {
			found.add(&n.here)
		}
	}
	seg := path[start:end]
	for _, length := range r.affixes.lengths {
		found.steps++
		if length > len(seg) {
			continue
		}
		if n := r.affixes.get(seg[:length]); n != nil {
			n.rare.collectEnds(path, start+length, end, found)
		}
	}
}

// collectEnds adds the candidates whose segment has the same end as path[start:end].
func (r *rareBranches) collectEnds(path string, start, end int, found *candidates) {
	for _, length := range r.ends.lengths {
		found.steps++
		if length > end-start {
			continue
		}
		if n := r.ends.get(path[end-length : end]); n != nil {
			n.enter(path, end, found)
		}
	}
}

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
