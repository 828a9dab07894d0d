package main_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// kill -9 instead of a sync: of the first ones, which create a store, and of later ones, which
// readings wait for.
//
// Seen to fail with the mutants answer-before-commit and reject-interrupted-creation.
func TestKillAtSync(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane)
		b.measureMore()
		acknowledged := uint64(0)
		for n := 1; acknowledged < 50; n += 1 + n/2 {
			if n > 1000 {
				t.Fatalf("only %d readings were acknowledged", acknowledged)
			}
			wrapper := strace(t, filepath.Join(b.scratch, "trace"), "fdatasync,fsync:signal=SIGKILL:when="+strconv.Itoa(n))
			line := append(wrapper, b.serveCommand()...)
			p, err := tryLaunch(t, 1, exec.Command(line[0], line[1:]...))
			if err != nil { // killed before it listened
				continue
			}
			b.server = p
			l := b.load("--users=8", "--for=1h")
			b.ended()
			l.settle()
			if state := p.cmd.ProcessState.Sys().(syscall.WaitStatus); state.Signal() != syscall.SIGKILL {
				t.Fatalf("the server ended with %v, want SIGKILL:\n%s", p.cmd.ProcessState, p.stderr())
			}
			b.start()
			acknowledged = b.verify()
			b.server.kill()
		}
		b.start()
		b.verify()
		b.term()
		b.check()
	})
}
