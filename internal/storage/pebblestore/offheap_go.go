//go:build !cgo

package pebblestore

// CacheOffHeap reports whether Pebble allocates its cache and memtables with the C
// library, where Go's memory limit does not include them. Builds without cgo allocate
// them on Go's heap.
const CacheOffHeap = false
