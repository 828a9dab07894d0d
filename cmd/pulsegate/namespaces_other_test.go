//go:build !linux

package main_test

import (
	"os/exec"
	"testing"
)

// ownNamespaces does nothing: this platform has no namespaces.
func ownNamespaces() error { return nil }

// followScalingPage needs PostgreSQL, which the tests start on Linux only.
func followScalingPage(t *testing.T) { t.Skip("docs/scaling.md is followed on Linux") }

// endWithTest does nothing: this platform cannot end a process with its parent.
func endWithTest(*exec.Cmd) {}
