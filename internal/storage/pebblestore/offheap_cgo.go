//go:build cgo

package pebblestore

// CacheOffHeap says that Pebble takes the memory of its cache and memtables from
// the C library, so that Go's memory limit does not see it. Builds without cgo take
// it from Go's heap.
const CacheOffHeap = true
