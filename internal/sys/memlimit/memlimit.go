// Package memlimit divides the memory that a server may use.
//
// # Promise
//
// A server with the bounds returned by [Fit] stays within the given memory under any
// load: above the bounds it rejects requests. TestMemoryLimit of cmd/pulsegate checks
// that with a limit of 128 MiB.
//
// The package only calculates: it reads no limits and sets none.
//
// # Not here
//
// Where the limit comes from, and which bounds the user has configured.
package memlimit

import "math"

// Bounds are the bounds of a server that determine its memory.
type Bounds struct {
	CacheBytes    int64 // cached blocks and memtables
	MemTableBytes int64 // one memtable; two are within CacheBytes
	WindowRows    int   // readings that are not in segments yet
	MaxBodyBytes  int   // request bodies and the readings decoded from them
	MaxBatchBytes int   // one body
	MaxQueued     int   // readings waiting for a commit
	MaxDevices    int   // devices in the store
	MaxConns      int   // connections
	AlertBytes    int64 // states of alerts
}

// Memory per item.
const (
	queuedBytes = 1 << 10 // a reading, its job and its entries in two groups
	// a reading, in two windows of package pebblestore; at most half as much again if they have few of each device
	windowBytes = 2 * 48
	deviceBytes = 240     // an entry of package pebblestore's table, with a name of 64 bytes
	connBytes   = 8 << 10 // 1 KiB in the fast lane, 20 KiB in the full lane
)

// Shares of the memory, as divisors. The remaining eighth is for the runtime, for
// decoding two batches, where short readings take six times their length, and for
// garbage.
const (
	cacheShare  = 6
	windowShare = 12
	bodyShare   = 6
	batchShare  = 128
	queueShare  = 8
	deviceShare = 8
	connShare   = 6
	alertShare  = 24

	memTableShare = 4 // of the cache
)

// Minimum bounds: with less, ordinary requests would be rejected.
const (
	minCacheBytes    = 4 << 20
	minMemTableBytes = 1 << 20
	minWindowRows    = 16 << 10
	minBodyBytes     = 1 << 20
	minBatchBytes    = 64 << 10
	minQueued        = 1 << 10
	minDevices       = 1 << 10
	minConns         = 64
	minAlertBytes    = 1 << 20
)

// Fit returns bounds that fit into the given number of bytes. None exceeds its value in
// most.
func Fit(bytes int64, most Bounds) Bounds {
	b := Bounds{
		CacheBytes:    fit(bytes/cacheShare, minCacheBytes, most.CacheBytes),
		WindowRows:    fit(int(bytes/windowShare/windowBytes), minWindowRows, most.WindowRows),
		MaxBodyBytes:  fit(int(bytes/bodyShare), minBodyBytes, most.MaxBodyBytes),
		MaxBatchBytes: fit(int(bytes/batchShare), minBatchBytes, most.MaxBatchBytes),
		MaxQueued:     fit(int(bytes/queueShare/queuedBytes), minQueued, most.MaxQueued),
		MaxDevices:    fit(int(bytes/deviceShare/deviceBytes), minDevices, most.MaxDevices),
		MaxConns:      fit(int(bytes/connShare/connBytes), minConns, most.MaxConns),
		AlertBytes:    fit(bytes/alertShare, minAlertBytes, most.AlertBytes),
	}
	b.MemTableBytes = MemTable(b.CacheBytes, most.MemTableBytes)
	return b
}

// MemTable returns the size of a memtable for a cache of the given size, at most most.
func MemTable(cacheBytes, most int64) int64 {
	return fit(cacheBytes/memTableShare, minMemTableBytes, most)
}

// fit returns n limited to the range from least to most.
func fit[T int | int64](n, least, most T) T { return min(max(n, least), most) }

// Memory that a process needs in addition to what Go's runtime counts: program pages,
// kernel memory of sockets and files, threads.
const (
	outsideBytes = 16 << 20
	outsideShare = 10 // plus a tenth of the limit
	maxOutside   = 1 << 30
)

// MinLimitBytes is the smallest limit that a server can keep.
const MinLimitBytes = 64 << 20

// Usable returns how many bytes of a limit on the process can be divided. Limits below
// MinLimitBytes count as MinLimitBytes.
func Usable(limitBytes int64) int64 {
	limitBytes = max(limitBytes, MinLimitBytes)
	return limitBytes - min(outsideBytes+limitBytes/outsideShare, maxOutside)
}

// NoLimit is the value with which Go's runtime denotes no memory limit.
const NoLimit = math.MaxInt64
