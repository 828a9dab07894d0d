//go:build !cgo

package pebblestore

// CacheOffHeap says that Pebble takes the memory of its cache and memtables from
// Go's heap, where Go's memory limit sees it. Builds with cgo take it from the C
// library.
const CacheOffHeap = false
