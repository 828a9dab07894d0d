package pgstore_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
)

// A model is a small world of servers and a database of which any earlier state may return at any time.
// It checks the decisions of docs/adr/0022-forgetting.md and 0026-repair.md, not the code: every reachable state is
// visited.
//
// There are two devices with one time each, so a reading is a device and one of two values, which
// contradict each other. Only device 0 is erased, once.
type model struct {
	// Bounds of the world.
	commits, failovers, restarts, memory int
	oneFact                              bool // only one reading, in one lane
	late                                 bool // the first attempt of one group reaches the database late

	// Mutants, each of which must break an invariant.
	noMarks, oneLane, noRepair, noErasures, noReport, noDrop, noLearning, noEpochs, noComparing, noRecheck, noFence,
	noNumbers bool
}

const (
	modelServers = 2
	modelLanes   = 2
	modelFacts   = 4 // 2 * device + value - 1
	modelHistory = 5
)

// When a reading was received, as the clock of a server shows it.
const (
	beforeErasure = iota
	nearErasure   // clocks differ, so it may have been before or after
	afterErasure
)

type modelRow struct{ value, received int8 } // value 0: none

type modelDB struct {
	marks      [modelServers]struct{ id, number [modelLanes]int8 }
	rows       [2]modelRow
	erased     int8 // the generation of the erasure where it was made, 0: it has none
	erasedAt   int8 // its generation here: higher if a repair has repeated it
	generation int8
}

type modelGroup struct{ lane, number, fact, received, generation, epoch int8 }

// A modelLate is an attempt that its server gave up, as it was sent. It may reach any state of the database: the
// connection is to a machine that was replaced, and comes back.
type modelLate struct {
	group  modelGroup // its generation is the one that the server knew; number 0: none
	server int8
	id     int8 // of the server
	acked  [modelLanes]int8
	erased bool // the server knew the erasure
}

type modelServer struct {
	id            int8
	issued        [modelLanes]int8 // the last number, which is never used for another group
	acked         [modelLanes]int8
	evicted       [modelLanes]int8 // the last group that the memory has lost
	memory        [2]modelGroup    // oldest first; number 0: none
	erased        int8             // generation of the erasure that it remembers
	learned       int8             // its generation in the database in which the server has learned it first
	erasedEpoch   int8             // and the epoch
	epoch         int8             // number of repairs
	repairing     bool
	maxGeneration int8
	sent          int8 // groups of the memory that a repair has sent; only without comparing marks
}

// A fact is what clients know about a reading.
type modelFact struct {
	acked    bool
	erased   bool // and not acknowledged since
	reported bool // as lost or contradicted, since it was acknowledged
	holders  int8 // bits of the servers that have acknowledged it and have not restarted
	at       [modelServers]struct{ id, lane, number int8 }
}

type modelState struct {
	db                           modelDB
	history                      [modelHistory]modelDB // sorted; any may return
	commits, failovers, restarts int8
	servers                      [modelServers]modelServer
	facts                        [modelFacts]modelFact
	erased                       bool // some client knows it
	late                         modelLate
	delayed                      bool // there was a late attempt
	knowers                      int8 // bits of the servers that remember the erasure
}

func (m *model) start() modelState {
	var s modelState
	s.db.generation = 1
	for i := range s.servers {
		m.register(&s, i)
	}
	s.history[0] = s.db
	return s
}

// register gives a server an identity, which the database learns.
func (m *model) register(s *modelState, i int) {
	s.servers[i] = modelServer{id: s.servers[i].id + 1, maxGeneration: s.db.generation}
	s.db.marks[i] = struct{ id, number [modelLanes]int8 }{id: [modelLanes]int8{s.servers[i].id, s.servers[i].id}}
}

// commit notes that the database has a new state.
func (s *modelState) commit() {
	s.commits++
	for k := range s.history {
		if s.history[k] == s.db {
			return
		}
		if s.history[k] == (modelDB{}) {
			s.history[k] = s.db
			slices.SortFunc(s.history[:k+1], func(a, b modelDB) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			return
		}
	}
}

// mark returns the number of the last group of a lane that the database has.
func (s *modelState) mark(i int, lane int8) int8 {
	if m := &s.db.marks[i]; m.id[lane] == s.servers[i].id {
		return m.number[lane]
	}
	return -1
}

// forgets reports whether server i sees that the database has forgotten something.
func (m *model) forgets(s *modelState, i int, own int8) bool {
	if s.servers[i].repairing {
		return true
	}
	for lane := range int8(modelLanes) {
		if (!m.oneLane || lane == own) && s.mark(i, lane) < s.servers[i].acked[lane] {
			return !m.noMarks
		}
	}
	return s.servers[i].erased != 0 && s.db.erased == 0 && !m.noMarks && !m.noErasures
}

func (s *modelState) setMark(i int, lane, number int8) {
	s.db.marks[i].id[lane] = s.servers[i].id
	s.db.marks[i].number[lane] = number
}

// put settles a reading, and reports whether it is stored then.
func (db *modelDB) put(fact, received int8) bool {
	row := &db.rows[fact/2]
	if row.value == 0 {
		*row = modelRow{fact%2 + 1, received}
	}
	return row.value == fact%2+1
}

// remember keeps a group, in place of the oldest one.
func (m *model) remember(v *modelServer, g modelGroup) {
	n := 0
	for n < m.memory && v.memory[n].number != 0 {
		n++
	}
	if n == m.memory {
		v.evicted[v.memory[0].lane] = max(v.evicted[v.memory[0].lane], v.memory[0].number)
		copy(v.memory[:], v.memory[1:n])
		n--
	}
	v.memory[n] = g
}

// next returns the states that may follow.
func (m *model) next(s modelState) (all []modelState) {
	for i := range modelServers {
		all = append(all, m.appends(s, i)...)
		if !s.erased && int(s.commits) < m.commits && !m.forgets(&s, i, 0) {
			all = append(all, m.erase(s, i))
		}
		if v := &s.servers[i]; s.db.erased != 0 && v.erased == 0 && !m.forgets(&s, i, 0) { // it reads the changes of others
			t := s
			m.learn(&t, i)
			t.servers[i].maxGeneration = max(v.maxGeneration, s.db.generation)
			all = append(all, t)
		}
		if m.forgets(&s, i, 0) {
			t := s
			m.repairStep(&t, i)
			all = append(all, t)
		}
		if int(s.restarts) < m.restarts && int(s.commits) < m.commits {
			t := s
			t.restarts++
			for f := range t.facts {
				t.facts[f].holders &^= 1 << i
			}
			t.knowers &^= 1 << i
			m.register(&t, i)
			t.commit()
			all = append(all, t)
		}
	}
	if s.late.group.number != 0 {
		all = append(all, m.deliver(s))
	}
	if int(s.failovers) < m.failovers {
		for _, old := range s.history {
			if old != (modelDB{}) && old != s.db {
				t := s
				t.db = old
				t.failovers++
				all = append(all, t)
			}
		}
	}
	return all
}

// appends returns the states after server i has settled a reading, with the answer and without.
func (m *model) appends(s modelState, i int) (all []modelState) {
	if int(s.commits) >= m.commits {
		return nil
	}
	for fact := range int8(modelFacts) {
		for lane := range int8(modelLanes) {
			if m.oneFact && fact+lane != 0 || fact/2 != 0 && lane == 0 || m.forgets(&s, i, lane) {
				continue
			}
			clocks := []int8{beforeErasure, nearErasure}
			switch {
			case fact/2 != 0:
				clocks = clocks[:1]
			case s.erased:
				clocks = []int8{nearErasure, afterErasure}
			}
			for _, received := range clocks {
				all = append(all, m.append(s, i, fact, lane, received)...)
				if m.late && !s.delayed {
					t := s
					v := &t.servers[i]
					t.delayed = true
					t.late = modelLate{modelGroup{lane, v.issued[lane] + 1, fact, received, v.maxGeneration, v.epoch}, int8(i), v.id,
						v.acked, v.erased != 0}
					if !m.noNumbers {
						v.issued[lane]++
					}
					all = append(all, m.append(t, i, fact, lane, received)...)
				}
			}
		}
	}
	return all
}

// append returns the states after a group, with the answer and without.
func (m *model) append(t modelState, i int, fact, lane, received int8) (all []modelState) {
	v, f := &t.servers[i], &t.facts[fact]
	old := t.db.rows[fact/2]
	if !t.db.put(fact, received) {
		return nil // 409
	}
	v.issued[lane]++
	number := v.issued[lane]
	t.setMark(i, lane, number)
	t.commit()
	lost := t
	if lost.facts[fact].erased {
		lost.facts[fact] = modelFact{} // it may be there again, or not
	}
	all = append(all, lost)

	// It reads the changes of others before it answers, if there are any since its last group:
	// otherwise its repair might put back a reading that is then erased again by another's.
	if t.db.erased != 0 && !m.noLearning {
		m.learn(&t, i)
	}
	v.acked[lane] = number
	v.maxGeneration = max(v.maxGeneration, t.db.generation)
	m.remember(v, modelGroup{lane, number, fact, received, t.db.generation, v.epoch})
	if t.erased && old.value != 0 && old.received != afterErasure {
		f.erased = false // a duplicate of what is about to be erased again: nothing is promised
	} else {
		f.acked, f.erased, f.reported = true, false, false
		f.holders |= 1 << i
		f.at[i] = struct{ id, lane, number int8 }{v.id, lane, number}
	}
	return append(all, t)
}

// deliver lets the late attempt reach the database, which rolls it back unless it has what the server knew, and no
// later change.
func (m *model) deliver(t modelState) modelState {
	late := t.late
	t.late = modelLate{}
	g := late.group
	if t.db.generation < g.generation || t.db.generation > g.generation && !m.noFence || late.erased && t.db.erased == 0 {
		return t
	}
	if t.servers[late.server].id == late.id { // of others, the database may have any marks
		for lane := range int8(modelLanes) {
			if t.mark(int(late.server), lane) < late.acked[lane] {
				return t
			}
		}
		t.setMark(int(late.server), g.lane, max(t.mark(int(late.server), g.lane), g.number))
	}
	t.db.put(g.fact, g.received)
	t.commit()
	return t
}

// erase is an acknowledged erasure of device 0.
func (m *model) erase(t modelState, i int) modelState {
	v := &t.servers[i]
	t.db.rows[0] = modelRow{}
	t.db.generation++
	t.db.erased, t.db.erasedAt = t.db.generation, t.db.generation
	v.erased, v.learned, v.erasedEpoch = t.db.erased, t.db.erasedAt, v.epoch
	v.issued[0]++
	v.acked[0] = v.issued[0]
	t.setMark(i, 0, v.acked[0])
	v.maxGeneration = max(v.maxGeneration, t.db.generation)
	t.commit()
	t.erased, t.knowers = true, 1<<i
	for f := range t.facts[:2] {
		if t.facts[f].acked {
			t.facts[f] = modelFact{erased: true}
		}
	}
	return t
}

// learn notes that server i knows the erasure that the database has. If that was repeated, it may have removed a row
// with which the server took a later reading for a duplicate: then the database lacks it.
func (m *model) learn(s *modelState, i int) {
	v := &s.servers[i]
	if v.erased == 0 {
		v.erased, v.learned, v.erasedEpoch = s.db.erased, s.db.erasedAt, v.epoch
		for _, g := range v.memory {
			if v.learned != v.erased && !m.noRecheck && g.number != 0 && g.fact/2 == 0 && g.received != beforeErasure {
				s.report(g.fact, s.db.rows[0].value != g.fact%2+1)
			}
		}
	}
	s.knowers |= 1 << i
}

// isErased reports whether the erasure that a server knows removes a group of device 0, and whether that is in doubt.
func (m *model) isErased(v *modelServer, g modelGroup) (erased, doubtful bool) {
	switch {
	case m.noDrop || v.erased == 0 || v.erasedEpoch < g.epoch && !m.noEpochs:
		return false, false
	case v.erasedEpoch == g.epoch || m.noEpochs:
		if g.generation >= v.learned {
			return false, false
		}
		if v.learned == v.erased {
			return true, false
		}
	}
	// It comes from another history, where no number compares.
	return g.received != afterErasure, g.received == nearErasure
}

// isCertain reports whether all that a server remembers of a device was acknowledged before the erasure, and whether
// there is any.
func (m *model) isCertain(v *modelServer, device int8) (certain bool) {
	for _, g := range v.memory {
		if g.number == 0 || g.fact/2 != device {
			continue
		}
		if erased, doubtful := m.isErased(v, g); !erased || doubtful {
			return false
		}
		certain = true
	}
	return certain
}

// repairStep is one transaction of a repair.
func (m *model) repairStep(t *modelState, i int) {
	v := &t.servers[i]
	if !v.repairing && !m.noRepair {
		v.repairing = true
		v.epoch++
	}
	switch {
	case m.noRepair:
		for lane := range int8(modelLanes) {
			t.setMark(i, lane, v.acked[lane])
		}
		return
	case v.erased != 0 && t.db.erased == 0 && !m.noErasures:
		if row := &t.db.rows[0]; row.value != 0 && row.received != afterErasure {
			t.report(2*0+row.value-1, row.received == nearErasure && !m.isCertain(v, 0))
			*row = modelRow{}
		}
		t.db.generation = max(t.db.generation, v.maxGeneration) + 1
		t.db.erased, t.db.erasedAt = v.erased, t.db.generation
		return
	case v.erased == 0 && t.db.erased != 0 && !m.noLearning: // somebody else's; it is not a transaction
		m.learn(t, i)
	}
	for lane := range int8(modelLanes) { // what the memory has lost
		if mark := t.mark(i, lane); mark < v.evicted[lane] {
			for f := range int8(modelFacts) {
				if at := t.facts[f].at[i]; at.id == v.id && at.lane == lane && at.number > mark && at.number <= v.evicted[lane] {
					t.report(f, !m.noReport)
				}
			}
			t.setMark(i, lane, v.evicted[lane])
			return
		}
	}
	for k, g := range v.memory {
		if g.number == 0 || t.mark(i, g.lane) >= g.number || k < int(v.sent) {
			continue
		}
		if m.noComparing {
			v.sent = int8(k) + 1
		}
		if erased, doubtful := m.isErased(v, g); g.fact/2 == 0 && erased {
			t.report(g.fact, doubtful)
		} else if !t.db.put(g.fact, g.received) {
			t.report(g.fact, true) // contradicted
		}
		t.setMark(i, g.lane, g.number)
		return
	}
	for lane := range int8(modelLanes) { // its last group was an erasure
		t.setMark(i, lane, max(t.mark(i, lane), v.acked[lane]))
	}
	v.repairing, v.sent = false, 0
	t.db.generation = max(t.db.generation, v.maxGeneration) + 1
}

func (s *modelState) report(fact int8, reports bool) {
	s.facts[fact].reported = s.facts[fact].reported || reports
}

// broken returns which invariant a state breaks, or "".
func (m *model) broken(s modelState) string {
	for i := range modelServers {
		t := s
		if t.db.erased != 0 && !m.noLearning {
			m.learn(&t, i) // within a second, and before it answers
		}
		if !m.forgets(&s, i, 0) && t.lacks(1<<i) {
			return "a forgetting database is used"
		}
	}
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		t := s
		for _, i := range order {
			for m.forgets(&t, i, 0) {
				m.repairStep(&t, i)
			}
		}
		for i := range modelServers {
			if t.db.erased != 0 && !m.noLearning {
				m.learn(&t, i)
			}
		}
		if t.lacks(^0) {
			return "an acknowledged reading is lost without a report"
		}
		for f := range t.facts[:2] {
			if t.facts[f].erased && t.knowers != 0 && int(t.db.rows[0].value) == f+1 {
				return "an erased reading has come back"
			}
		}
	}
	return ""
}

// lacks reports whether the database lacks a reading that one of these servers vouches for.
func (s *modelState) lacks(servers int8) bool {
	for f := range s.facts {
		k := &s.facts[f]
		if k.acked && k.holders&servers != 0 && !k.reported && int(s.db.rows[f/2].value) != f%2+1 {
			return true
		}
	}
	return false
}

// search visits the states, nearest first, and returns how the first broken one came about.
func (m *model) search() (broken string, states int) {
	from := []modelState{m.start()}
	// states take hundreds of bytes; that two of a million have one hash is unlikelier than 1 in 10 million
	seed := maphash.MakeSeed()
	seen := map[uint64]bool{maphash.Comparable(seed, from[0]): true}
	for len(from) > 0 {
		var to []modelState
		for _, s := range from {
			if what := m.broken(s); what != "" {
				return fmt.Sprintf("%s: %+v", what, s), len(seen)
			}
			for _, t := range m.next(s) {
				if h := maphash.Comparable(seed, t); !seen[h] {
					seen[h] = true
					to = append(to, t)
				}
			}
		}
		from = to
	}
	return "", len(seen)
}

// smallModel is the world in which most mutants break an invariant.
var smallModel = model{commits: 3, failovers: 1, restarts: 1, memory: 1}

// TestForgettingModelExhaustive (make exhaustive) visits larger worlds, which only a change of the decisions concerns.
func TestForgettingModelExhaustive(t *testing.T) {
	for _, m := range []model{
		smallModel,
		{commits: 2, failovers: 3, restarts: 1, memory: 2},
		{commits: 3, failovers: 1, restarts: 1, memory: 1, oneFact: true, late: true},
		{commits: 3, failovers: 2, memory: 1, oneFact: true, late: true},
		{commits: 4, failovers: 1, memory: 1, oneFact: true, late: true},
		{commits: 3, failovers: 1, memory: 1, late: true},
	} {
		broken, states := m.search()
		t.Logf("%d states", states)
		if broken != "" {
			t.Error(broken)
		}
	}
}

func TestForgettingModel(t *testing.T) {
	t.Parallel()
	late := model{commits: 3, failovers: 1, memory: 1, oneFact: true, late: true}
	for _, m := range []model{{commits: 3, failovers: 2, memory: 1, oneFact: true}, late} {
		broken, states := m.search()
		t.Logf("%d states", states)
		if broken != "" {
			t.Error(broken)
		}
	}
	for name, change := range map[string]func(*model){
		"no marks":     func(m *model) { m.noMarks = true },
		"one lane":     func(m *model) { m.oneLane = true },
		"no repair":    func(m *model) { m.noRepair = true },
		"no erasures":  func(m *model) { m.noErasures = true },
		"no report":    func(m *model) { m.noReport = true },
		"no learning":  func(m *model) { m.noLearning = true },
		"no recheck":   func(m *model) { *m = model{commits: 3, failovers: 2, memory: 1, oneFact: true, noRecheck: true} },
		"no drop":      func(m *model) { m.noDrop = true },
		"no epochs":    func(m *model) { *m = model{commits: 3, failovers: 2, memory: 1, oneFact: true, noEpochs: true} },
		"no fence":     func(m *model) { *m = late; m.noFence = true },
		"no numbers":   func(m *model) { *m = late; m.noNumbers = true },
		"no comparing": func(m *model) { *m = model{commits: 2, failovers: 3, memory: 2, noComparing: true} },
	} {
		m := smallModel
		change(&m)
		if broken, states := m.search(); broken == "" {
			t.Errorf("%s: no invariant is broken in %d states", name, states)
		}
	}
}
