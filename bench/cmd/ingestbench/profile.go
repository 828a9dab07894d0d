package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// profileLead is how long before a profile the load begins, and how long behind
// it the load ends.
const profileLead = 2 * time.Second

// profileOwn returns what pulsegate profile says of a request under the load with
// the most connections: the parts of its cost and the system calls. The load is
// one of its own, because profiling costs a little.
func (b *bench) profileOwn(ctx context.Context) (_ string, err error) {
	i := slices.IndexFunc(b.contestants, func(c contestant) bool { return c.own })
	if i < 0 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, perStart+b.cfg.duration)
	defer cancel()
	server, remove, err := b.startFresh(ctx, &b.contestants[i], "profile")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.stop(), remove()) }()
	loaded := make(chan error, 1)
	go func() {
		l, err := b.loader.run(ctx, server.server.addr, slices.Max(b.cfg.connections), b.cfg.duration+2*profileLead, time.Now().Add(-baseAge).UnixMilli())
		if err == nil {
			err = l.check()
		}
		loaded <- err
	}()
	time.Sleep(profileLead)
	cmd := exec.CommandContext(ctx, filepath.Join(b.cfg.programs, report.Own), "profile", "http://"+server.server.admin(), "--for", b.cfg.duration.String())
	text, profileErr := cmd.CombinedOutput()
	if err := <-loaded; err != nil {
		return "", fmt.Errorf("load for a profile: %w", err)
	}
	if profileErr != nil {
		return "", fmt.Errorf("profile: %w\n%s", profileErr, text)
	}
	return cutProfile(string(text)), nil
}

// cutProfile returns the parts and the system calls of a profile's report, without
// the address and the time in its first line, and without what follows.
func cutProfile(text string) string {
	_, text, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "\nFunctions by their own cost")
	return strings.TrimRight(text, "\n")
}
