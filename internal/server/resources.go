package server

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"

	automemlimit "github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/sys/memlimit"
)

// maxWindowRows is the number of readings in a window of a server with ample memory. With 20,000
// devices at full bulk load, the store takes 1.0 µs of CPU and writes 29 bytes a reading; with a
// quarter of it, 1.5 µs and 49 bytes. A start reads two windows, at 0.1 µs a reading.
const maxWindowRows = 1 << 20

// maxAlertBytes bounds the states of alerts: it is enough for a million devices and ten rules.
const maxAlertBytes = 512 << 20

// maxBounds returns the bounds of a server with ample memory.
func maxBounds() memlimit.Bounds {
	return memlimit.Bounds{
		CacheBytes:    pebblestore.DefaultCacheBytes,
		MemTableBytes: pebblestore.DefaultMemTableBytes,
		WindowRows:    maxWindowRows,
		MaxBodyBytes:  ingest.DefaultMaxBodyBytes,
		MaxBatchBytes: ingest.DefaultMaxBatchBytes,
		MaxQueued:     ingest.DefaultMaxQueued,
		MaxDevices:    pebblestore.DefaultMaxDevices,
		MaxConns:      defaultMaxConns,
		AlertBytes:    maxAlertBytes,
	}
}

// A memory is the amount of memory that the process may use, and the source of that
// limit.
type memory struct {
	limitBytes  int64 // 0 means unknown
	usableBytes int64
	from        string
	setGoLimit  bool // Go's own limit must be set
}

// findMemory consults GOMEMLIMIT first, which the user has set for this process,
// then the cgroup, and then the machine, of whose memory this process may use
// half.
func findMemory(getenv func(string) string, log *slog.Logger) memory {
	if getenv("GOMEMLIMIT") != "" {
		// Go's runtime has parsed it: an invalid value would have ended the
		// process.
		bytes := debug.SetMemoryLimit(-1)
		if bytes == memlimit.NoLimit {
			return memory{usableBytes: bytes, from: "GOMEMLIMIT"} // off
		}
		return memory{limitBytes: bytes, usableBytes: bytes, from: "GOMEMLIMIT"}
	}
	machine, err := automemlimit.FromSystem()
	if err != nil || machine == 0 {
		machine = memlimit.NoLimit
	}
	group, err := automemlimit.FromCgroup()
	switch {
	case err == nil && group < machine:
		return memory{int64(group), memlimit.Usable(int64(group)), "cgroup", true}
	case err != nil && !errors.Is(err, automemlimit.ErrNoLimit) && !errors.Is(err, automemlimit.ErrNoCgroup) &&
		!errors.Is(err, automemlimit.ErrCgroupsNotSupported):
		log.Warn("the cgroup's memory limit cannot be read; set GOMEMLIMIT", "error", err)
	}
	if machine == memlimit.NoLimit {
		return memory{usableBytes: memlimit.NoLimit, from: "unknown"}
	}
	return memory{int64(machine), int64(machine) / 2, "machine", false}
}

// Fit sets the bounds that are 0 so that they fit the memory and the open files that this
// process may use. It also sets Go's memory limit unless GOMEMLIMIT is set. It logs them at
// debug level; --print-config shows them too.
func (c *Options) Fit(log *slog.Logger) {
	m := findMemory(c.Getenv, log)
	c.usableBytes = m.usableBytes
	b := memlimit.Fit(m.usableBytes, maxBounds())
	c.maxBodyBytes = b.MaxBodyBytes
	// A body too large to be ever admitted would be rejected as overload again and again, and a client may use only its
	// share.
	c.maxBatchBytes = min(b.MaxBatchBytes, b.MaxBodyBytes/4)
	c.MaxQueued = cmp.Or(c.MaxQueued, b.MaxQueued)
	c.MaxDevices = cmp.Or(c.MaxDevices, b.MaxDevices)
	c.memTableBytes, c.windowRows, c.alertBytes = b.MemTableBytes, b.WindowRows, b.AlertBytes
	if c.CacheBytes != 0 {
		c.memTableBytes = memlimit.MemTable(c.CacheBytes, maxBounds().MemTableBytes)
	}
	c.CacheBytes = cmp.Or(c.CacheBytes, b.CacheBytes)
	if m.setGoLimit {
		limit := m.usableBytes
		if pebblestore.CacheOffHeap && c.Store == "" { // what is remembered is on the heap
			limit = max(limit-c.CacheBytes, limit/4)
		}
		debug.SetMemoryLimit(limit)
	}
	attrs := []any{"cpus", runtime.GOMAXPROCS(0), "limit_from", m.from}
	if m.limitBytes > 0 {
		attrs = append(attrs, "limit_bytes", m.limitBytes)
	}
	if limit := debug.SetMemoryLimit(-1); limit != memlimit.NoLimit {
		attrs = append(attrs, "go_limit_bytes", limit)
	}
	files := filesLimit()
	room := connsFor(files, c.TLSCert != "")
	room = max(room/(1+len(frontAddrs(c))), 1)
	switch {
	case c.MaxConns > room:
		log.Warn("--max-conns leaves the store too few open files; raise their limit (ulimit -n, LimitNOFILE)", "files_limit",
			files, "max_conns", c.MaxConns, "room_for", room)
	case c.MaxConns == 0:
		if c.MaxConns = min(b.MaxConns, room); c.MaxConns < b.MaxConns {
			attrs = append(attrs, "files_limit", files)
		}
	}
	log.Debug("resources", append(attrs,
		"cache_bytes", c.CacheBytes, "max_body_bytes", c.maxBodyBytes, "max_batch_bytes", c.maxBatchBytes,
		"max_queued", c.MaxQueued, "max_devices", c.MaxDevices, "max_conns", c.MaxConns)...)
	if m.from == "cgroup" && m.limitBytes < memlimit.MinLimitBytes {
		log.Warn("the memory limit is too small: the server may exceed it", "limit_bytes", m.limitBytes, "least_bytes",
			memlimit.MinLimitBytes)
	}
}

// otherFiles is the number of descriptors for everything but public connections: up to
// 1,000 tables that Pebble keeps open (its default of MaxOpenFiles), its logs, the admin
// listener's connections, and some to spare.
const otherFiles = 1000 + maxAdminConns + 136

// connsFor returns how many connections may be open in addition to guests and the given
// number of files. A store that cannot open its files accepts no readings. If there are
// few descriptors, connections get half of them: few tables are open at a time.
func connsFor(files uint64, tls bool) int {
	n := int(min(files, math.MaxInt32))
	if tls {
		n = max(n-maxHandshakes, n/2)
	}
	return max(max(n-otherFiles, n/2)-maxGuests, 1)
}
