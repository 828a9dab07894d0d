//go:build !linux

package deploy_test

// runContainer returns false, because containers need Linux.
func runContainer() bool { return false }
