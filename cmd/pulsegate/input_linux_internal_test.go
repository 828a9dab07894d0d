package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// What waits for the writer of a FIFO or of a pipe ends with its context, that is at the first signal.
func TestInterruptible(t *testing.T) {
	dir := t.TempDir()
	fifo, mappings := filepath.Join(dir, "fifo.csv"), filepath.Join("..", "..", "examples", "mappings", "sim.toml")
	try(t, syscall.Mkfifo(fifo, 0o600))
	in, out, err := os.Pipe()
	try(t, err)
	defer in.Close()
	defer out.Close()
	for _, tt := range []struct {
		args    []string
		written bool // a writer has opened the FIFO
	}{
		{[]string{"import", fifo}, false}, {[]string{"import", fifo}, true}, {[]string{"import", "-"}, true},
		{[]string{"import", "-", "--format=ndjson"}, true}, {[]string{"mapping", "test", mappings}, true},
	} {
		var writer *os.File
		if tt.written { // O_RDWR does not wait for a reader
			writer, err = os.OpenFile(fifo, os.O_RDWR, 0)
			try(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var errs strings.Builder
		ended := make(chan int, 1)
		go func() { ended <- run(ctx, tt.args, stdio{in: in, out: &strings.Builder{}, err: &errs}) }()
		cancel()
		select {
		case code := <-ended:
			if code != exitFailed || !strings.Contains(errs.String(), context.Canceled.Error()) {
				t.Errorf("%v: exit code %d, %s", tt.args, code, errs.String())
			}
		case <-time.After(polltest.Patience):
			t.Errorf("%v: has not ended", tt.args)
		}
		if !tt.written { // end the open that waits
			writer, err = os.OpenFile(fifo, os.O_RDWR, 0)
			try(t, err)
		}
		writer.Close()
	}
}
