//go:build unix

package server

import (
	"log/slog"
	"math"

	"golang.org/x/sys/unix"
)

// fitConns lowers the bound on connections, unless it was set by hand, so that they leave
// the store the descriptors that it needs: a store that cannot open its files takes no
// readings. It returns the limit of open files if that has lowered the bound, otherwise 0.
func fitConns(c *Options, byHand bool, log *slog.Logger) (files uint64) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0 // nobody knows
	}
	// Go's runtime has raised the limit as far as it may.
	files = uint64(limit.Cur)
	room := connsFor(files)
	switch {
	case c.MaxConns <= room:
		return 0
	case byHand:
		log.Warn("--max-conns leaves the store too few open files; raise their limit (ulimit -n, LimitNOFILE)", "files_limit", files, "max_conns", c.MaxConns, "room_for", room)
		return 0
	}
	c.MaxConns = room
	return files
}

// otherFiles is how many descriptors are for other things than public connections: up to
// 1,000 tables that Pebble keeps open (its default of MaxOpenFiles), its logs, the admin
// listener's connections, and some to spare.
const otherFiles = 1000 + maxAdminConns + 136

// connsFor returns how many connections may be open beside guests and files. Where there
// are few descriptors, connections get half of them: few tables are open at a time.
func connsFor(files uint64) int {
	n := int(min(files, math.MaxInt32))
	return max(max(n-otherFiles, n/2)-maxGuests, 1)
}
