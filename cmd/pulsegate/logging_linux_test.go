package main_test

import (
	"path/filepath"
	"testing"
)

// A server survives the exit of the process that reads its standard error.
//
// Seen to fail when SIGPIPE is not ignored.
func TestBrokenPipe(t *testing.T) {
	p := start(t, program(t), filepath.Join(t.TempDir(), "data"), "--admin-addr=127.0.0.1:0", "--access-log=all")
	try(t, p.pipe.Close())
	if got := pipeline(t, p.addr, 500, goodReading); got[200] != 500 {
		t.Fatalf("statuses %v, want 500 times 200", got)
	}
	if metric(t, p, `pulsegate_log_suppressed_lines_total{reason="blocked"}`) == 0 {
		t.Error("no line was lost: the pipe is not broken")
	}
	p.stopCleanly()
}
