package main_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A token that is revoked while the server has no file descriptor to read the file is rejected as
// soon as there is one, although the file then looks unchanged.
//
// Seen to fail when a file is read only once for each change.
func TestRevokeWithoutDescriptors(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	bin, dir := program(t), t.TempDir()
	file := filepath.Join(dir, "tokens")
	token := createToken(t, bin, file, "--gateway", "bed-7")
	p := start(t, bin, filepath.Join(dir, "data"), "--tokens="+file)
	poster := newPoster(t, connect(t, p.addr), "Authorization: Bearer "+token+"\r\n")
	if status, _ := poster.post(); status != 200 {
		t.Fatalf("a valid token: %d", status)
	}
	var was unix.Rlimit
	try(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &was))
	try(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}, nil))
	if _, errs, code := output(t, bin, "token", "revoke", "--file", file, "--audit", "", "--all"); code != 0 {
		t.Fatal(errs)
	}
	p.awaitLine("too many open files", 1)
	try(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &was, nil))
	poster.until(401)
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.stderr())
	}
}
