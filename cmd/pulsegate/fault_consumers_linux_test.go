package main_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

var (
	consumerRounds = flag.Int("consumers.rounds", 0, "rounds of TestConsumerCampaign with each store")
	consumerSeed   = flag.Uint64("consumers.seed", 0, "seed of TestConsumerCampaign; 0: a random one, which is logged")
	consumerPage   = flag.String("consumers.page", "", "page into which TestConsumerCampaign writes its figures")
)

// A consumerKind is a store with faults of TestConsumerCampaign.
type consumerKind struct {
	name   string
	start  func(r *consumerRun)
	faults []consumerFault
}

// A consumerFault is what happens in a round.
type consumerFault struct {
	name string
	do   func(r *consumerRun)
}

var consumerKinds = []consumerKind{
	{"three servers and PostgreSQL", (*consumerRun).startThree, []consumerFault{
		{"kill -9 of a server", (*consumerRun).killServer},
		{"storm of pg_terminate_backend", func(r *consumerRun) {
			for range 1 + r.rnd.IntN(4) {
				r.query(
					"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'pulsegate'")
				time.Sleep(time.Duration(r.rnd.Int64N(int64(50 * time.Millisecond))))
			}
		}},
		{"connections to PostgreSQL are cut", func(r *consumerRun) {
			for range 1 + r.rnd.IntN(4) {
				r.net.BreakAll()
				time.Sleep(time.Duration(r.rnd.Int64N(int64(50 * time.Millisecond))))
			}
		}},
		{"kill -9 of PostgreSQL", func(r *consumerRun) {
			r.db.Kill()
			r.db.Restart(r.t)
		}},
	}},
	{"the embedded store", (*consumerRun).startOne, []consumerFault{
		{"kill -9", (*consumerRun).killServer},
		{"stop and start", func(r *consumerRun) {
			r.servers[0].term()
			r.servers[0].start()
		}},
	}},
}

func (r *consumerRun) killServer() {
	b := r.servers[r.rnd.IntN(len(r.servers))]
	b.server.kill()
	b.start()
}

// A consumerRun is servers that share a store, and consumers that copy what these store.
type consumerRun struct {
	t       *testing.T
	rnd     *rand.Rand
	db      *pgtest.Server // nil: the store is the embedded one of a server
	net     pgtest.Sockets
	servers []*harness
	admins  []string // addresses of the admin listeners
	client  http.Client

	mu           sync.Mutex // guards what follows
	acknowledged []measurement
	unanswered   []map[string]any // erasures that were neither done nor refused

	stored, late, erasures, repeated, assignments     atomic.Int64
	pages, checked, compared, wentBack, missing, many atomic.Int64
	once                                              atomic.Int64 // number of readings of onceMeasured
}

// A measurement names a value.
type measurement struct{ device, time, sign string }

// Devices of TestConsumerCampaign. Those that begin with kept are not erased. onceMeasured has at each time one reading
// that is sent once: what is left of an erased one in a copy is not hidden by another.
var consumerDevices = []string{"kept-1", "kept-2", "kept-3", "a-1", "a-2", "b-1", "b-2", onceMeasured}

const onceMeasured = "a-once"

const (
	firstMeasured   = 1_700_000_000_000
	measuredMinutes = 400
)

func measuredAt(minutes int) string { return formatMs(firstMeasured + int64(minutes)*60_000) }

func formatMs(unixMs int64) string {
	return time.UnixMilli(unixMs).UTC().Format("2006-01-02T15:04:05.000Z")
}

// TestConsumerCampaign lets consumers of changes copy what servers store, in PostgreSQL or in the embedded store, in
// rounds of readings that contradict each other, come late and complete others, transactions that stay open,
// assignments, erasures and a fault. Consumers ask any server for pages of any size, have filters, and begin again at
// an earlier state, as after a kill; one never does. Whenever an answer says that a consumer has caught up, its copy
// has what was acknowledged before the request. After a round, erasures that were not answered are repeated, and each
// copy has exactly what the store has.
func TestConsumerCampaign(t *testing.T) {
	skipIfShort(t)
	if *consumerRounds == 0 {
		t.Skip("make consumers runs it")
	}
	pgtest.Need(t)
	seed := *consumerSeed
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("SEED=%d ROUNDS=%d", seed, *consumerRounds)
	var mu sync.Mutex
	texts := make([]string, len(consumerKinds))
	t.Run("stores", func(t *testing.T) {
		for i, kind := range consumerKinds {
			t.Run(kind.name, func(t *testing.T) {
				t.Parallel()
				r := &consumerRun{t: t, rnd: rand.New(rand.NewPCG(seed, uint64(i)))}
				text := r.campaign(&kind, seed)
				t.Log("\n" + text)
				mu.Lock()
				defer mu.Unlock()
				texts[i] = text
			})
		}
	})
	if !t.Failed() {
		updatePage(t, *consumerPage, "consumers", strings.Join(texts, "\n"))
	}
}

// startThree starts three servers that share one PostgreSQL, and seal at once.
func (r *consumerRun) startThree() {
	r.db = pgtest.Start(r.t, "fsync=off", "restart_after_crash=off")
	store := "--store=postgres://" + pgtest.User + "@" + r.net.Forward(r.t, r.db.Addr) + "/postgres?sslmode=disable"
	bin, err := altered()
	try(r.t, err)
	for range 3 {
		r.start(bin, store, "--postgres-single", "--seal-after=1ms")
	}
}

// startOne starts one server.
func (r *consumerRun) startOne() { r.start(program(r.t)) }

func (r *consumerRun) start(bin string, args ...string) {
	admin := porttest.Addr(r.t)
	b := newHarness(r.t, fastLane, append(args, "--admin-addr="+admin)...)
	b.bin = bin
	b.start()
	r.admins, r.servers = append(r.admins, admin), append(r.servers, b)
}

// campaign runs rounds, and returns the figures.
func (r *consumerRun) campaign(kind *consumerKind, seed uint64) string {
	t := r.t
	r.client.Timeout = polltest.Patience
	kind.start(r)
	prefixed := func(m measurement, _ string) bool { return strings.HasPrefix(m.device, "a-") }
	of := func(subject string) func(measurement, string) bool {
		return func(_ measurement, s string) bool { return s == subject }
	}
	consumers := []*consumer{
		{name: "all"},
		{name: "all, never back", steady: true},
		{name: "a prefix", query: "prefix=a-", of: prefixed},
		{name: "a device", query: "device=kept-1", of: func(m measurement, _ string) bool { return m.device == "kept-1" }},
		{name: "a sign", query: "signs=spo2_pct", of: func(m measurement, _ string) bool { return m.sign == "spo2_pct" }},
		{name: "a subject", subject: "P-1", of: of("P-1")},
		{name: "a subject that is not erased", subject: "K", of: of("K")},
	}
	for _, c := range consumers {
		c.now, c.caughtUp = newCopy(), new(atomic.Int64)
	}
	faults := map[string]int{}
	started := time.Now()
	for round := range *consumerRounds {
		fault := kind.faults[(int(seed%97)+round)%len(kind.faults)]
		faults[fault.name]++
		r.storm(round, consumers, fault)
		r.eraseAgain()
		stored := r.read()
		for _, c := range consumers {
			r.catchUp(c)
			r.compare(round, c, stored)
		}
		if t.Failed() {
			t.Fatalf("round %d, %s", round, fault.name)
		}
		t.Logf("round %d, %s: equal, after %v", round, fault.name, time.Since(started))
	}
	for _, b := range r.servers {
		b.term()
	}
	for _, c := range consumers {
		if *consumerRounds >= 10 && c.caughtUp.Load() == 0 {
			t.Errorf("the consumer of %s has never caught up beside a storm", c.name)
		}
	}
	if r.stored.Load() == 0 || r.checked.Load() == 0 {
		t.Errorf("%d readings were acknowledged, and %d values looked for in copies", r.stored.Load(), r.checked.Load())
	}
	var text strings.Builder
	fmt.Fprintf(&text, "| %s | rounds |\n|---|--:|\n", kind.name)
	for _, f := range kind.faults {
		fmt.Fprintf(&text, "| %s | %d |\n", f.name, faults[f.name])
	}
	fmt.Fprintf(&text, "\n| | |\n|---|--:|\n| date | %s, %s |\n", time.Now().Format(time.DateOnly), runtime.Version())
	row := func(what string, n int64) { fmt.Fprintf(&text, "| %s | %d |\n", what, n) }
	row("seconds", int64(time.Since(started).Seconds()))
	row("readings acknowledged", r.stored.Load())
	row("of those, in a transaction that was held open", r.late.Load())
	row("assignments made or ended", r.assignments.Load())
	row("erasures", r.erasures.Load())
	row("of those, repeated after the round because they were not answered", r.repeated.Load())
	row("pages read", r.pages.Load())
	row("consumers that went back to an earlier state", r.wentBack.Load())
	for _, c := range consumers {
		row("answers beside a storm that the consumer of "+c.name+" has caught up", c.caughtUp.Load())
	}
	row("values looked for in a copy whose consumer had caught up", r.checked.Load())
	row("copies compared with the store after a round", r.compared.Load())
	row("values missing", r.missing.Load())
	row("values too many", r.many.Load())
	return text.String()
}

// query returns what PostgreSQL answers.
func (r *consumerRun) query(sql string) (n int64) {
	r.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, r.db.DSN())
	try(r.t, err)
	defer conn.Close(ctx)
	try(r.t, conn.QueryRow(ctx, sql).Scan(&n))
	return n
}

// storm runs writers and consumers, and injects a fault meanwhile.
func (r *consumerRun) storm(round int, consumers []*consumer, fault consumerFault) {
	r.t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(stop)
	run := func(step func(rnd *rand.Rand)) {
		rnd := rand.New(rand.NewPCG(r.rnd.Uint64(), uint64(round)))
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					step(rnd)
				}
			}
		})
	}
	for range 3 {
		run(r.write)
	}
	if r.db != nil {
		run(r.holdOpen)
	}
	for _, c := range consumers {
		run(func(rnd *rand.Rand) { r.step(c, rnd) })
	}
	before := r.stored.Load()
	polltest.Until(r.t, "readings are stored", func() bool { return r.stored.Load() > before+100 })
	fault.do(r)
	before = r.stored.Load()
	polltest.Until(r.t, "readings are stored after the fault", func() bool { return r.stored.Load() > before+100 })
}

// write sends a reading, an assignment or an erasure to any server.
func (r *consumerRun) write(rnd *rand.Rand) {
	b := rnd.IntN(len(r.servers))
	device := consumerDevices[rnd.IntN(len(consumerDevices))]
	kept := strings.HasPrefix(device, "kept")
	minutes := rnd.IntN(measuredMinutes)
	from, to := measuredAt(minutes), measuredAt(minutes+1+rnd.IntN(100))
	subject := "K"
	if !kept {
		subject = []string{"P-1", "P-2"}[rnd.IntN(2)]
	}
	switch n := rnd.IntN(200); {
	case n == 0 && !kept:
		r.erase(b, map[string]any{"device": device})
	case n == 1 && !kept:
		r.erase(b, map[string]any{"subject": subject})
	case n < 4 && !kept:
		r.erase(b, map[string]any{"device": device, "from": from, "to": to, "signs": []string{"spo2_pct"}})
	case n < 10: // it may be refused beside another assignment
		a := transfer.Assignment{Device: device, Subject: subject, From: from}
		if r.administer(b, transfer.AssignPath, a)/100 == 2 {
			r.assignments.Add(1)
		}
		if a.Subject, a.To = "", to; r.administer(b, transfer.EndPath, a)/100 == 2 {
			r.assignments.Add(1)
		}
	case device == onceMeasured:
		r.post(b, rnd, device, int(r.once.Add(1)))
	default:
		r.post(b, rnd, device, minutes)
	}
}

// post sends a reading. One in 50 contradicts others of its time.
func (r *consumerRun) post(b int, rnd *rand.Rand, device string, minutes int) {
	at, value := measuredAt(minutes), 60+minutes%40
	if rnd.IntN(50) == 0 {
		value++
	}
	var signs []string
	body := fmt.Sprintf(`{"device":%q,"time":%q`, device, at)
	for _, sign := range []string{"spo2_pct", "heart_rate_bpm"} {
		if rnd.IntN(2) == 0 || len(signs) == 0 && sign == "heart_rate_bpm" {
			body += fmt.Sprintf(`,%q:%d`, sign, value)
			signs = append(signs, sign)
		}
	}
	resp, err := r.client.Post("http://"+r.servers[b].addr+"/v1/readings", "application/json", strings.NewReader(body+"}"))
	if err != nil {
		time.Sleep(10 * time.Millisecond) // the server was killed
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 300 {
		return
	}
	r.stored.Add(1)
	if strings.HasPrefix(device, "kept") {
		r.acknowledge(device, at, signs...)
	}
}

func (r *consumerRun) acknowledge(device, at string, signs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sign := range signs {
		r.acknowledged = append(r.acknowledged, measurement{device, at, sign})
	}
}

// holdOpen stores a reading as a server would whose transaction takes long.
func (r *consumerRun) holdOpen(rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.db.DSN())
	if err != nil { // PostgreSQL was killed
		time.Sleep(10 * time.Millisecond)
		return
	}
	defer conn.Close(ctx)
	for range 5 {
		const device = "kept-1"
		atMs := firstMeasured + rnd.Int64N(measuredMinutes)*60_000 + 1 + rnd.Int64N(59_000)
		tx, err := conn.Begin(ctx)
		if err != nil {
			return
		}
		tag, err := tx.Exec(ctx,
			`INSERT INTO pulsegate.readings (device, time_ms, received_ms, changed, shared, heart_rate_bpm)
			SELECT device, $2, (extract(epoch FROM now()) * 1000)::bigint, pg_current_xact_id()::text::bigint, false, 700 FROM pulsegate.devices WHERE device = $1
				AND NOT EXISTS (SELECT FROM pulsegate.all_readings AS a WHERE a.device = $1 AND a.time_ms = $2)
			ON CONFLICT DO NOTHING`, device, atMs)
		time.Sleep(time.Duration(rnd.Int64N(int64(100 * time.Millisecond))))
		if err != nil || tag.RowsAffected() == 0 || tx.Commit(ctx) != nil {
			return
		}
		r.acknowledge(device, formatMs(atMs), "heart_rate_bpm")
		r.stored.Add(1)
		r.late.Add(1)
	}
}

// erase erases. What is not answered may have begun: it is repeated after the round.
func (r *consumerRun) erase(b int, what map[string]any) {
	switch status := r.administer(b, transfer.ErasePath, what); {
	case status == http.StatusOK:
		r.erasures.Add(1)
	case status != http.StatusNotFound:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unanswered = append(r.unanswered, what)
	}
}

// eraseAgain repeats the erasures that were not answered, until they are, or nothing is there to be erased.
func (r *consumerRun) eraseAgain() {
	r.t.Helper()
	for _, what := range r.unanswered {
		status := 0
		polltest.Until(r.t, "an erasure is done", func() bool {
			status = r.administer(r.rnd.IntN(len(r.servers)), transfer.ErasePath, what)
			return status == http.StatusOK || status == http.StatusNotFound
		})
		if status == http.StatusOK {
			r.erasures.Add(1)
			r.repeated.Add(1)
		}
	}
	r.unanswered = nil
}

// administer asks the admin listener of a server, and returns the status of its answer, 0 if there is none.
func (r *consumerRun) administer(b int, path string, request any) int {
	body, err := json.Marshal(request)
	if err != nil {
		r.t.Error(err)
		return 0
	}
	resp, err := r.client.Post("http://"+r.admins[b]+path, "application/json", strings.NewReader(string(body)))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// A consumer keeps a copy of what its filter selects.
type consumer struct {
	name, query, subject string
	of                   func(m measurement, subject string) bool // nil: everything

	cursor string
	now    *storeCopy
	next   *storeCopy // since begin; nil if no copy has begun
	seen   int        // of the acknowledged values, that were found in now

	steady   bool          // it never goes back to an earlier state
	caughtUp *atomic.Int64 // answers that it has, beside a storm

	saved *consumer // an earlier state
}

// A storeCopy is what a consumer has of a store.
type storeCopy struct {
	values map[measurement]float64
	worn   map[string][]worn // by device
}

// worn says who has worn a device from one time to another.
type worn struct{ subject, from, to string }

func newCopy() *storeCopy {
	return &storeCopy{map[measurement]float64{}, map[string][]worn{}}
}

func (s *storeCopy) clone() *storeCopy {
	if s == nil {
		return nil
	}
	c := &storeCopy{maps.Clone(s.values), map[string][]worn{}}
	for device, all := range s.worn {
		c.worn[device] = slices.Clone(all)
	}
	return c
}

// A consumedChange is one of the changes of an answer.
type consumedChange struct {
	Kind, Device, Time, Subject, From, To string
	Signs                                 json.RawMessage
}

// endless is after all times.
const endless = "~"

// apply applies a change as docs/api.md says. limited is set if the consumer sees only a subject.
func (s *storeCopy) apply(x *consumedChange, limited bool) error {
	to := x.To
	if to == "" {
		to = endless
	}
	switch x.Kind {
	case "reading":
		var signs map[string]float64
		if err := json.Unmarshal(x.Signs, &signs); err != nil {
			return err
		}
		for sign, v := range signs {
			s.values[measurement{x.Device, x.Time, sign}] = v
		}
	case "assigned":
		s.cut(x.Device, "", x.From, to)
		s.worn[x.Device] = append(s.worn[x.Device], worn{x.Subject, x.From, to})
	case "unassigned":
		if s.cut(x.Device, x.Subject, x.From, to); limited {
			s.remove(x.Device, x.From, to, nil)
		}
	case "erased":
		var signs []string
		if len(x.Signs) > 0 {
			if err := json.Unmarshal(x.Signs, &signs); err != nil {
				return err
			}
		}
		if signs == nil {
			s.cut(x.Device, "", x.From, to)
		}
		s.remove(x.Device, x.From, to, signs)
	case "sign":
	default:
		return fmt.Errorf("a change of kind %q", x.Kind)
	}
	return nil
}

// remove removes the values of some signs, or if that is nil of all.
func (s *storeCopy) remove(device, from, to string, signs []string) {
	maps.DeleteFunc(s.values, func(m measurement, _ float64) bool {
		return m.device == device && from <= m.time && m.time < to && (signs == nil || slices.Contains(signs, m.sign))
	})
}

// cut makes a subject, or if it is empty everybody, not wear a device from one time to another.
func (s *storeCopy) cut(device, subject, from, to string) {
	var left []worn
	for _, w := range s.worn[device] {
		if subject != "" && w.subject != subject {
			left = append(left, w)
			continue
		}
		for _, part := range []worn{{w.subject, w.from, min(w.to, from)}, {w.subject, max(w.from, to), w.to}} {
			if part.from < part.to {
				left = append(left, part)
			}
		}
	}
	s.worn[device] = left
}

func (s *storeCopy) subjectOf(m measurement) string {
	for _, w := range s.worn[m.device] {
		if w.from <= m.time && m.time < w.to {
			return w.subject
		}
	}
	return ""
}

// step reads a page. Sometimes the consumer keeps its state, or goes back to the one that it has kept, as if it was
// killed.
func (r *consumerRun) step(c *consumer, rnd *rand.Rand) {
	if r.page(c, rnd) {
		c.caughtUp.Add(1)
	}
	switch n := rnd.IntN(40); {
	case c.steady:
	case n < 4:
		saved := *c
		saved.now, saved.next, saved.saved = c.now.clone(), c.next.clone(), nil
		c.saved = &saved
	case n == 4 && c.saved != nil:
		saved := c.saved
		*c = *saved
		c.now, c.next, c.saved = saved.now.clone(), saved.next.clone(), saved
		r.wentBack.Add(1)
	}
}

// page reads a page, and reports whether the consumer has caught up. Then the copy must have what was acknowledged
// before.
func (r *consumerRun) page(c *consumer, rnd *rand.Rand) (caughtUp bool) {
	r.mu.Lock()
	before := r.acknowledged[:len(r.acknowledged):len(r.acknowledged)]
	r.mu.Unlock()
	query, _ := url.ParseQuery(c.query)
	query.Set("limit", strconv.Itoa([]int{1, 7, 100, 3000}[rnd.IntN(4)]))
	query.Set("wait", []string{"0s", "100ms"}[rnd.IntN(2)])
	if c.cursor != "" {
		query.Set("after", c.cursor)
	}
	method, body := http.MethodGet, ""
	if c.subject != "" {
		method, body = http.MethodPost, fmt.Sprintf(`{"subject":%q}`, c.subject)
	}
	req, err := http.NewRequest(method, "http://"+r.servers[rnd.IntN(len(r.servers))].addr+"/v1/changes?"+query.Encode(),
		strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return false
	}
	resp, err := r.client.Do(req)
	if err != nil {
		time.Sleep(10 * time.Millisecond) // the server was killed
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return false
	}
	if resp.StatusCode >= 500 {
		time.Sleep(10 * time.Millisecond)
		return false
	}
	var page struct {
		Changes  []consumedChange
		Next     string
		CaughtUp bool `json:"caught_up"`
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(text, &page) != nil {
		r.t.Errorf("consumer of %s: %d %s", c.name, resp.StatusCode, text)
		return false
	}
	r.pages.Add(1)
	for i := range page.Changes {
		if err := c.apply(&page.Changes[i]); err != nil {
			r.t.Errorf("consumer of %s: %v", c.name, err)
		}
	}
	c.cursor = page.Next
	if page.CaughtUp && c.subject == "" {
		for _, m := range before[min(c.seen, len(before)):] {
			if c.of != nil && !c.of(m, "") {
				continue
			}
			r.checked.Add(1)
			if _, ok := c.now.values[m]; !ok {
				r.missing.Add(1)
				r.t.Errorf("the consumer of %s has caught up, and lacks %v, which was acknowledged before its request", c.name, m)
			}
		}
		c.seen = len(before)
	}
	return page.CaughtUp
}

func (c *consumer) apply(x *consumedChange) error {
	switch x.Kind {
	case "begin":
		c.next = newCopy()
		return nil
	case "complete":
		if c.next == nil {
			return fmt.Errorf("complete without begin")
		}
		c.now, c.next = c.next, nil
		return nil
	}
	err := c.now.apply(x, c.subject != "")
	if c.next != nil && err == nil {
		err = c.next.apply(x, c.subject != "")
	}
	return err
}

// catchUp reads until the consumer has caught up.
func (r *consumerRun) catchUp(c *consumer) {
	r.t.Helper()
	polltest.Until(r.t, "the consumer of "+c.name+" catches up", func() bool {
		for range 1000 {
			if r.page(c, r.rnd) {
				return true
			}
		}
		return r.t.Failed()
	})
}

// A storedValue is a value with the subject that it is shown with.
type storedValue struct {
	value   float64
	subject string
}

// read returns what the store has, which nobody changes.
func (r *consumerRun) read() map[measurement]storedValue {
	r.t.Helper()
	all := map[measurement]storedValue{}
	for _, device := range consumerDevices {
		resp, text := fetch(r.t, http.MethodGet,
			r.servers[r.rnd.IntN(len(r.servers))].server.url("/v1/devices/"+device+"/readings?format=csv&from=2000-01-01"), "")
		if resp.StatusCode == http.StatusNotFound {
			continue
		}
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || resp.StatusCode != http.StatusOK {
			r.t.Fatalf("readings of %s: %s, %v", device, resp.Status, err)
		}
		column := map[string]int{}
		for i, name := range rows[0] {
			column[name] = i
		}
		for _, row := range rows[1:] {
			for _, sign := range []string{"spo2_pct", "heart_rate_bpm"} {
				if text := row[column[sign]]; text != "" {
					v, err := strconv.ParseFloat(text, 64)
					try(r.t, err)
					all[measurement{device, row[column["time"]], sign}] = storedValue{v, row[column["subject"]]}
				}
			}
		}
	}
	return all
}

// compare compares a copy with the store.
func (r *consumerRun) compare(round int, c *consumer, stored map[measurement]storedValue) {
	r.t.Helper()
	r.compared.Add(1)
	selected := func(m measurement, want storedValue) bool { return c.of == nil || c.of(m, want.subject) }
	for m, want := range stored {
		if !selected(m, want) {
			continue
		}
		if got, ok := c.now.values[m]; !ok || got != want.value || c.now.subjectOf(m) != want.subject {
			r.missing.Add(1)
			r.t.Errorf("round %d: in the copy of %s, %v is there: %t, has the value: %t, of %q; want the one of %q",
				round, c.name, m, ok, got == want.value, c.now.subjectOf(m), want.subject)
		}
	}
	for m := range c.now.values {
		if want, ok := stored[m]; !ok || !selected(m, want) {
			r.many.Add(1)
			r.t.Errorf("round %d: the copy of %s has %v, and the store does not", round, c.name, m)
		}
	}
}
