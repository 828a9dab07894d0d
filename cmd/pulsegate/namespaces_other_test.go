//go:build !linux

package main_test

// ownNamespaces does nothing: this platform has no namespaces.
func ownNamespaces() error { return nil }
