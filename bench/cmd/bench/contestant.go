package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// A contestant is what is measured: one or more servers, with what they need.
type contestant struct {
	name, what, stores string

	peer     string   // mode of the program peer; empty means Pulsegate
	flags    []string // of Pulsegate
	env      []string // of Pulsegate, beside this program's
	servers  int      // number of Pulsegates; 0 means one
	postgres bool     // readings are stored in PostgreSQL
	standbys int      // of PostgreSQL
	settings []string // of PostgreSQL, beside the default ones
	tls      bool     // connections use TLS, and requests have a token
	nginx    bool     // nginx is in front, and has the certificate
}

// row returns the name and the first cell of the contestant's row.
func (c *contestant) row() (name, label string) {
	if c.what == "" {
		return c.name, ""
	}
	return c.name, fmt.Sprintf("**%s**: %s", c.name, c.what)
}

// missing returns why c cannot be started on this machine, or nil.
func (c *contestant) missing() (err error) {
	switch {
	case c.postgres:
		_, err = pgtest.Programs()
	case c.nginx:
		_, err = exec.LookPath("nginx")
	}
	return err
}

// available returns the contestants with the requested names that can be started, and the
// reasons why others are left out. Without names it returns all that can be started.
func available(all []contestant, names []string) (chosen []contestant, left []string) {
	for _, c := range all {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		if err := c.missing(); err != nil {
			left = append(left, fmt.Sprintf("%s, because %v", c.name, err))
			continue
		}
		chosen = append(chosen, c)
	}
	return chosen, left
}

// A cluster is a running contestant.
type cluster struct {
	*contestant
	nodes     []*process  // among which a load is divided
	proxied   *process    // the server behind nginx, which is the only node
	databases []*database // the primary first
	secure    *secure     // nil means no TLS
	dirs      []string
	verified  uint64 // readings that were sent to check the answer
}

// start starts a contestant with empty directories, and checks one answer.
func (l *loads) start(ctx context.Context, c *contestant) (_ *cluster, err error) {
	s := &cluster{contestant: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if c.tls {
		if l.secure == nil {
			if l.secure, err = newSecure(ctx, l.work, l.own()); err != nil {
				return nil, err
			}
		}
		s.secure = l.secure
	}
	if c.postgres {
		if err := l.startDatabases(ctx, s); err != nil {
			return nil, err
		}
	}
	for range max(c.servers, 1) {
		p, err := l.startNode(ctx, s)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, p)
	}
	if c.nginx {
		proxy, err := l.startNginx(ctx, s, s.nodes[0].public)
		if err != nil {
			return nil, err
		}
		s.proxied, s.nodes[0] = s.nodes[0], proxy
	}
	if c.peer == shaking {
		return s, nil // it answers no request
	}
	s.verified = 1
	return s, verify(ctx, s.nodes[0].public, s.secure)
}

// newDir creates a directory, which stop removes.
func (l *loads) newDir(s *cluster) (string, error) {
	dir, err := os.MkdirTemp(l.work, "data-")
	if err == nil {
		s.dirs = append(s.dirs, dir)
	}
	return dir, err
}

func (l *loads) startDatabases(ctx context.Context, s *cluster) error {
	settings := slices.Clone(s.settings)
	if s.standbys > 0 {
		settings = append(settings, "synchronous_standby_names=ANY 1 (s1, s2)")
	}
	for n := range 1 + s.standbys {
		dir, err := l.newDir(s)
		if err != nil {
			return err
		}
		var db *database
		if n == 0 {
			db, err = startPostgres(ctx, dir, settings...)
		} else {
			db, err = startStandby(ctx, s.databases[0], dir, fmt.Sprintf("s%d", n), settings...)
		}
		if err != nil {
			return err
		}
		s.databases = append(s.databases, db)
	}
	return nil
}

// startNode starts one server.
func (l *loads) startNode(ctx context.Context, s *cluster) (*process, error) {
	dir, err := l.newDir(s)
	switch {
	case err != nil:
		return nil, err
	case s.peer != "":
		var flags []string
		if s.secure != nil {
			flags = append(flags, "-cert", s.secure.cert, "-key", s.secure.key)
		}
		if s.postgres {
			flags = append(flags, "-dsn", s.databases[0].dsn)
		}
		return l.startPeer(ctx, s.peer, flags...)
	}
	flags := slices.Clone(s.flags)
	if s.secure != nil {
		flags = append(flags, s.secure.flags(!s.nginx)...)
	}
	if s.postgres {
		flags = append(flags, "--store="+s.databases[0].dsn)
		if s.standbys == 0 {
			flags = append(flags, "--postgres-single")
		}
	}
	return startOwn(ctx, l.Programs, filepath.Join(dir, "data"), s.env, flags...)
}

// startPeer starts a mode of the program peer.
func (l *loads) startPeer(ctx context.Context, mode string, flags ...string) (*process, error) {
	args := append([]string{mode, "-addr", "127.0.0.1:0"}, flags...)
	return start(ctx, exec.Command(filepath.Join(l.Programs, "peer"), args...), "public")
}

// startNginx starts nginx with TLS in front of a server.
func (l *loads) startNginx(ctx context.Context, s *cluster, upstream string) (*process, error) {
	dir, err := l.newDir(s)
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	const connections = 4096
	config :=
		fmt.Sprintf(
			`daemon off; pid %[1]s/nginx.pid; error_log stderr warn; worker_processes auto; worker_rlimit_nofile %[2]d;
events { worker_connections %[3]d; }
http {
  access_log off; keepalive_requests 1000000000; proxy_buffering on; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  upstream pulsegate { server %[4]s; keepalive 1024; keepalive_requests 1000000000; }
  server {
    listen %[5]s ssl backlog=4096; ssl_certificate %[6]s; ssl_certificate_key %[7]s; ssl_protocols TLSv1.3;
    location / { proxy_pass http://pulsegate; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; }
  }
}`, dir, 2*connections, connections, upstream, addr, s.secure.cert, s.secure.key)
	return startConfigured(ctx, addr, dir, config, "nginx", "-p", dir, "-c")
}

// startConfigured starts a program that listens at addr. Its last argument is a file in dir with
// the configuration.
func startConfigured(ctx context.Context, addr, dir, config, program string, args ...string) (*process, error) {
	file := filepath.Join(dir, program+".conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", program, err)
	}
	return startOn(ctx, addr, exec.Command(program, append(args, file)...))
}

// pids returns the processes whose CPU time counts, without their children.
func (s *cluster) pids() (nodes, databases []int) {
	for _, p := range s.nodes {
		nodes = append(nodes, p.pid())
	}
	if s.proxied != nil {
		nodes = append(nodes, s.proxied.pid())
	}
	for _, db := range s.databases {
		databases = append(databases, db.process.pid())
	}
	return nodes, databases
}

// stop stops everything, the servers first, and removes their data.
func (s *cluster) stop() (err error) {
	for _, p := range append(s.nodes, s.proxied) {
		if p != nil {
			err = errors.Join(err, p.stop())
		}
	}
	for _, db := range slices.Backward(s.databases) {
		err = errors.Join(err, db.stop())
	}
	for _, dir := range s.dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// ownTable is Pulsegate's table in PostgreSQL.
const ownTable = "pulsegate.readings"

// end stops the cluster. If it stores readings, all that were acknowledged must be stored, and
// at most inFlight more.
func (s *cluster) end(ctx context.Context, acknowledged, inFlight uint64) (err error) {
	stored, known := uint64(0), s.postgres
	if s.postgres {
		table := ownTable
		if s.peer != "" {
			table = "readings"
		}
		stored, err = s.databases[0].count(ctx, table)
	}
	if err = errors.Join(err, s.stop()); err != nil {
		return err
	}
	if !s.postgres && s.peer == "" {
		p := cmp.Or(s.proxied, s.nodes[0])
		if stored, known = p.stored(); !known {
			return fmt.Errorf("%s did not log how many readings it has stored: %s", s.name, p.text())
		}
	}
	acknowledged += s.verified
	if known && (stored < acknowledged || stored > acknowledged+inFlight) {
		return fmt.Errorf("%s answered %d readings as stored and has %d, with at most %d unanswered", s.name, acknowledged,
			stored, inFlight)
	}
	return nil
}

// A secure is what TLS and tokens need: files for servers, and a token for clients.
type secure struct{ cert, key, tokens, token string }

// newSecure creates the files in dir. The certificate has a key on the curve P-256.
func newSecure(ctx context.Context, dir, own string) (*secure, error) {
	s := &secure{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"),
		tokens: filepath.Join(dir, "tokens")}
	pair := certtest.New("bench").Server(2)
	if err := errors.Join(os.WriteFile(s.cert, pair.Cert, 0o600), os.WriteFile(s.key, pair.Key, 0o600)); err != nil {
		return nil, fmt.Errorf("write certificate: %w", err)
	}
	text, err := exec.CommandContext(ctx, own, "token", "create", "--file", s.tokens, "--audit=", "--gateway",
		"bench").Output()
	if err != nil {
		return nil, fmt.Errorf("create token: %w", err)
	}
	s.token = strings.TrimSpace(string(text))
	return s, nil
}

// flags returns the flags of a Pulsegate. All clients have one address here, whose share
// must not matter.
func (s *secure) flags(withTLS bool) []string {
	flags := []string{"--tokens=" + s.tokens, "--audit=", "--trusted-proxies=127.0.0.0/8"}
	if withTLS {
		flags = append(flags, "--tls-cert="+s.cert, "--tls-key="+s.key)
	}
	return flags
}
