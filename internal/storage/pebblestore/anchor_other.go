//go:build !linux

package pebblestore

func (*anchor) lockDirectory() error { return nil }

func (*anchor) unlockDirectory() {}

func (*anchor) descriptorPath() string { return "" }
