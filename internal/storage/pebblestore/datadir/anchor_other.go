//go:build !linux

package datadir

func (*anchor) lockDirectory() error { return nil }

func (*anchor) unlockDirectory() {}
