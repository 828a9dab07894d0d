package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/pulsegate/pulsegate/bench/report"
)

// A contestant is a server to measure.
type contestant struct {
	name, what, stores string

	// own is set for Pulsegate's binary, postgres for a peer that inserts into
	// PostgreSQL. The others are peers that need nothing.
	own, postgres bool
}

// contestants lists all of them, in the order of the tables.
func contestants() []contestant {
	return []contestant{
		{name: report.Floor, what: "epoll loop, one read and one fixed write, nothing parsed", stores: "no"},
		{name: "fasthttp", what: "fixed answer, nothing decoded", stores: "no"},
		{name: "nethttp", what: "fixed answer, nothing decoded", stores: "no"},
		{name: "gin", what: "encoding/json in and out", stores: "no"},
		{name: "before", what: "gorilla/mux, logrus Info, Unmarshal, MarshalIndent", stores: "no"},
		{name: "ginpg", what: "gin and pgx, one INSERT into PostgreSQL per request; with PostgreSQL's CPU", stores: "durable", postgres: true},
		{name: report.Own, what: "`pulsegate serve`", stores: "durable", own: true},
	}
}

// choose returns the contestants that are asked for and can be started, and the
// reasons why others are left out.
func choose(cfg *config) (chosen []contestant, left []string, err error) {
	all := contestants()
	for _, name := range cfg.servers {
		if !slices.ContainsFunc(all, func(c contestant) bool { return c.name == name }) {
			return nil, nil, fmt.Errorf("-servers: there is no server %q", name)
		}
	}
	for _, c := range all {
		if len(cfg.servers) > 0 && !slices.Contains(cfg.servers, c.name) {
			continue
		}
		if c.postgres {
			if _, err := findPostgres(); err != nil {
				left = append(left, fmt.Sprintf("%s, because %v", c.name, err))
				continue
			}
		}
		chosen = append(chosen, c)
	}
	return chosen, left, nil
}

// build compiles what the contestants need into the directory programs.
func build(ctx context.Context, root, programs string, chosen []contestant) error {
	peer, own := false, false
	for _, c := range chosen {
		peer, own = peer || !c.own, own || c.own
	}
	for _, program := range []struct {
		needed         bool
		dir, pkg, name string
	}{
		{peer, filepath.Join(root, "bench"), "./cmd/peer", "peer"},
		{own, root, "./cmd/pulsegate", "pulsegate"},
	} {
		if !program.needed {
			continue
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(programs, program.name), program.pkg)
		cmd.Dir = program.dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program.name, err, text)
		}
	}
	return nil
}

// A running is a contestant with all that it needs.
type running struct {
	server   *process
	database *database // nil: none
}

// start starts c, whose program is in programs, with dir for its data.
func (c *contestant) start(ctx context.Context, programs, dir string) (_ *running, err error) {
	r := new(running)
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	path, args := filepath.Join(programs, "peer"), []string{c.name, "-addr", "127.0.0.1:0"}
	switch {
	case c.own:
		path, args = filepath.Join(programs, "pulsegate"), []string{"serve", "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--data", dir}
	case c.postgres:
		if r.database, err = startPostgres(ctx, dir); err != nil {
			return nil, err
		}
		args = append(args, "-dsn", r.database.dsn)
	}
	if r.server, err = startProcess(ctx, path, args); err != nil {
		return nil, err
	}
	return r, nil
}

// pids returns the processes whose CPU time is the contestant's, children aside.
func (r *running) pids() []int {
	pids := []int{r.server.pid()}
	if r.database != nil {
		pids = append(pids, r.database.process.pid())
	}
	return pids
}

// stop ends what start has started, the database last.
func (r *running) stop() error {
	var err error
	if r.server != nil {
		err = r.server.stop()
	}
	if r.database != nil {
		if e := r.database.stop(); err == nil {
			err = e
		}
	}
	return err
}
