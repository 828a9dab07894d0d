package audit_test

import (
	"os"
	"testing"
)

func move(t *testing.T, from, to string) {
	t.Helper()
	try(t, os.Rename(from, to))
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	try(t, os.Mkdir(path, 0o700))
}

func remove(t *testing.T, path string) {
	t.Helper()
	try(t, os.Remove(path))
}
