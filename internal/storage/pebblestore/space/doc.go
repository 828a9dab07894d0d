// Package space decides whether the disk has space for another group.
//
// # Promise
//
// While [Watch.Ready] returns nil, the file system had more free space at the last poll than the
// low-water mark, which is at least what the store itself may still write: see [Reserve]. After it
// was low, it must have an eighth more.
//
// # Not here
//
// Nothing is rejected here, and nothing is removed: the store asks before it accepts a group.
package space
