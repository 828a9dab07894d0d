package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/pulsegate/pulsegate/bench/report"
	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// A contestant is a server to measure.
type contestant struct {
	name, what, stores string

	// own is set for Pulsegate's binary, postgres for a peer that inserts into
	// PostgreSQL. The others are peers without dependencies.
	own, postgres bool

	mode     string   // of the peer, if it is not the name
	flags    []string // of Pulsegate
	programs string   // directory of another Pulsegate's binary; empty means this one's
	nginx    bool     // with nginx in front
}

// contestants returns all contestants, in the order of the tables.
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

// chooseServers returns the requested contestants that can be started, and the reasons
// why others are omitted.
func chooseServers(names []string) (chosen []contestant, left []string, err error) {
	asked, err := choose(contestants(), func(c contestant) string { return c.name }, names)
	if err != nil {
		return nil, nil, fmt.Errorf("--servers: %w", err)
	}
	for _, c := range asked {
		if c.postgres {
			if _, err := pgtest.Programs(); err != nil {
				left = append(left, fmt.Sprintf("%s, because %v", c.name, err))
				continue
			}
		}
		chosen = append(chosen, c)
	}
	return chosen, left, nil
}

// A running is a running contestant with its dependencies.
type running struct {
	server   *process
	upstream *process  // server passes requests to it; nil means no other one
	database *database // nil means no database
}

// start starts c with its data in dir.
func (b *ingestRun) start(ctx context.Context, c *contestant, dir string) (_ *running, err error) {
	r := new(running)
	if c.own {
		return r, b.startPulsegate(ctx, r, c, dir)
	}
	var args []string
	if b.secure != nil {
		args = append(args, "-cert", b.secure.cert, "-key", b.secure.key)
	}
	if c.postgres {
		if r.database, err = startPostgres(ctx, dir); err != nil {
			return nil, err
		}
		args = append(args, "-dsn", r.database.dsn)
	}
	if r.server, err = b.startPeer(ctx, cmp.Or(c.mode, c.name), args...); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// startPeer starts a mode of the program peer.
func (l *loads) startPeer(ctx context.Context, mode string, flags ...string) (*process, error) {
	args := append([]string{mode, "-addr", "127.0.0.1:0"}, flags...)
	return start(ctx, exec.Command(filepath.Join(l.Programs, "peer"), args...), "public")
}

// startPulsegate starts Pulsegate, with TLS and nginx as c says.
func (b *ingestRun) startPulsegate(ctx context.Context, r *running, c *contestant, dir string) (err error) {
	flags := c.flags
	if b.secure != nil {
		flags = append(b.secure.flags(!c.nginx), flags...)
	}
	l := b.loads
	l.Programs = cmp.Or(c.programs, l.Programs)
	if r.server, err = l.startOwn(ctx, filepath.Join(dir, "data"), nil, flags...); err != nil || !c.nginx {
		return err
	}
	r.upstream = r.server
	if r.server, err = b.startNginx(ctx, dir, r.upstream.public); err != nil {
		return errors.Join(err, r.upstream.stop())
	}
	return nil
}

// pids returns the processes whose CPU time counts for the contestant, without their
// children.
func (r *running) pids() []int {
	pids := []int{r.server.pid()}
	if r.upstream != nil {
		pids = append(pids, r.upstream.pid())
	}
	if r.database != nil {
		pids = append(pids, r.database.process.pid())
	}
	return pids
}

// stop stops the server and then the database.
func (r *running) stop() error {
	var err error
	if r.server != nil {
		err = r.server.stop()
	}
	if r.upstream != nil {
		err = errors.Join(err, r.upstream.stop())
	}
	if r.database != nil {
		if e := r.database.stop(); err == nil {
			err = e
		}
	}
	return err
}
