// Package memlimit shares out the memory that a server may take.
//
// # Promise
//
// What [Fit] returns fits into the memory that it is given, whatever comes: bounds
// that are reached are reached with refusals. TestUnderLimit of cmd/pulsegate
// holds it under a limit of 128 MiB and full load.
//
// Everything is arithmetic: nothing is read and nothing is set.
//
// # Not here
//
// Where the limit comes from, and which bounds the user has set by hand.
package memlimit

import "math"

// Bounds are those of a server that cost memory.
type Bounds struct {
	CacheBytes    int64 // cached blocks and memtables
	MemTableBytes int64 // one memtable; two are within CacheBytes
	MaxBodyBytes  int   // bodies of requests, and what was decoded from them
	MaxBatchBytes int   // one body
	MaxQueued     int   // readings that wait for a commit
	MaxDevices    int   // devices of the store
	MaxConns      int   // connections
}

// What one of each takes.
const (
	queuedBytes = 1 << 10 // a reading, its job and its place in two groups
	deviceBytes = 180     // package pebblestore's table
	connBytes   = 8 << 10 // in the fast lane 1 KiB, in the full lane 20 KiB
)

// Shares of the memory, as divisors. What is left, a fifth, is for the runtime, for
// the decoding of two batches, of which short readings take six times their length,
// and for garbage.
const (
	cacheShare  = 5
	bodyShare   = 6
	batchShare  = 128
	queueShare  = 8
	deviceShare = 8
	connShare   = 6

	memTableShare = 4 // of the cache
)

// Least bounds: with less, usual requests are refused.
const (
	minCacheBytes    = 4 << 20
	minMemTableBytes = 1 << 20
	minBodyBytes     = 1 << 20
	minBatchBytes    = 64 << 10
	minQueued        = 1 << 10
	minDevices       = 1 << 10
	minConns         = 64
)

// Fit returns bounds that fit into so many bytes, each at most as most has it.
func Fit(bytes int64, most Bounds) Bounds {
	b := Bounds{
		CacheBytes:    fit(bytes/cacheShare, minCacheBytes, most.CacheBytes),
		MaxBodyBytes:  fit(int(bytes/bodyShare), minBodyBytes, most.MaxBodyBytes),
		MaxBatchBytes: fit(int(bytes/batchShare), minBatchBytes, most.MaxBatchBytes),
		MaxQueued:     fit(int(bytes/queueShare/queuedBytes), minQueued, most.MaxQueued),
		MaxDevices:    fit(int(bytes/deviceShare/deviceBytes), minDevices, most.MaxDevices),
		MaxConns:      fit(int(bytes/connShare/connBytes), minConns, most.MaxConns),
	}
	b.MemTableBytes = MemTable(b.CacheBytes, most.MemTableBytes)
	return b
}

// MemTable returns the size of a memtable, at most most, for a cache of this size.
func MemTable(cacheBytes, most int64) int64 {
	return fit(cacheBytes/memTableShare, minMemTableBytes, most)
}

// fit returns n, at least least and at most most.
func fit[T int | int64](n, least, most T) T { return min(max(n, least), most) }

// What a process needs beside what Go's runtime counts: the pages of the program
// itself, the kernel's part of sockets and files, threads.
const (
	outsideBytes = 16 << 20
	outsideShare = 10 // and a tenth of the limit
	maxOutside   = 1 << 30
)

// MinLimitBytes is the least limit that a server can keep to.
const MinLimitBytes = 64 << 20

// Usable returns how many bytes of a limit on the process are there to be shared
// out. Limits below MinLimitBytes count as that much.
func Usable(limitBytes int64) int64 {
	limitBytes = max(limitBytes, MinLimitBytes)
	return limitBytes - min(outsideBytes+limitBytes/outsideShare, maxOutside)
}

// NoLimit is what Go's runtime calls no memory limit.
const NoLimit = math.MaxInt64
