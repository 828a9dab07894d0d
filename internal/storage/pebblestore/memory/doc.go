// Package memory is what the embedded store keeps in memory: the table of its devices, their activity, and
// the windows of readings that are in no segment yet.
//
// # Promise
//
// A device or a reading takes a known number of bytes: TestDeviceBytes asserts how many. Tables and windows
// contain no pointers for each device or row, so the garbage collector does not scan them, and growing
// copies neither devices nor rows. What a [View] of a window shows does not change while rows are added.
//
// # Not here
//
// Locks of a [Table]: its owner serializes all calls. When a window is full, frozen or sealed, and how rows
// are stored: package pebblestore. No Pebble, no files.
package memory
