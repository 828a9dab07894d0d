package main_test

import (
	"strings"
	"testing"
)

// resources returns the limits that a server logs at debug level.
func resources(t *testing.T, p *process) map[string]string {
	t.Helper()
	for line := range strings.Lines(p.stderr()) {
		if !strings.Contains(line, "msg=resources ") {
			continue
		}
		fields := map[string]string{}
		for _, field := range strings.Fields(line) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		return fields
	}
	t.Fatalf("the server does not log its limits:\n%s", p.stderr())
	return nil
}
