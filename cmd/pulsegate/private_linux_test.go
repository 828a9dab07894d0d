package main_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What a server writes is readable by its user only, whatever the umask of the shell that starts it.
//
// Seen to fail without CreatePrivately.
func TestPrivateFiles(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "data")
	cmd := serveCommand(t.Context(), program(t), dir, "--audit="+filepath.Join(root, "audit.log"))
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `umask 0; exec "$@"`, "sh"}, cmd.Args...)
	p := launch(t, 1, cmd)
	if resp, text := fetch(t, "POST", p.url("/v1/readings"),
		`{"device":"d","time":1000,"spo2_pct":97}`); resp.StatusCode != 200 {
		t.Fatal(text)
	}
	p.stopCleanly()
	files := 0
	try(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		files++
		return err
	}))
	if files < 5 {
		t.Errorf("%d files", files)
	}
}

// A directory to which every user may write is not used; one that every user may read is warned of.
func TestPublicDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	try(t, os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777))
	args := []string{"serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data=" + dir}
	if _, errs, code := output(t, program(t), args...); code != 1 ||
		!strings.Contains(errs, "every user may write to the directory") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	try(t, os.Chmod(dir, 0o755))
	p := start(t, program(t), dir)
	p.awaitLine("every user of this machine may look into the directory", 1)
	p.stopCleanly()
	try(t, os.Chmod(dir, 0o777))
	if _, errs, code := output(t, program(t), args...); code != 1 ||
		!strings.Contains(errs, "every user may write to the directory") {
		t.Errorf("with a store: exit code %d, %s", code, errs)
	}
	if _, errs, code := output(t, program(t), "check", dir); code != 0 {
		t.Errorf("check, which writes nothing: exit code %d, %s", code, errs)
	}
}

// Nor is the directory in a mount to which every user may write, if another user can have made it.
func TestPublicMount(t *testing.T) {
	root := t.TempDir()
	mountTmpfs(t, root, 64<<20)
	dir := filepath.Join(root, "pulsegate")
	try(t, os.Chmod(root, 0o777), os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777))
	for want, flags := range map[string][]string{
		"every user may write to the directory":   {"--data=" + root},
		"directory of what is remembered: " + dir: {"--store=postgres://127.0.0.1:1/none", "--remember-dir=" + root},
	} {
		args := append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr="}, flags...)
		if _, errs, code := output(t, program(t), args...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", flags, code, errs)
		}
	}
	try(t, os.Chmod(dir, 0o755))
	p := start(t, program(t), root)
	p.awaitLine("every user of this machine may look into the directory", 1)
	p.stopCleanly()
}

// A FIFO in place of a file is an error, and not a wait for ever.
func TestFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	try(t, syscall.Mkfifo(fifo, 0o600))
	for _, flags := range [][]string{
		{"--tokens=" + fifo, "--audit=" + filepath.Join(t.TempDir(), "log")}, {"--audit=" + fifo}, {"--config=" + fifo},
		{"--signs=" + fifo}, {"--mapping=" + fifo}, {"--alerts=" + fifo},
		{"--tls-cert=" + fifo, "--tls-key=" + fifo}, {"--audit=" + filepath.Join(t.TempDir(), "log"), "--audit-key=" + fifo},
	} {
		args := []string{"serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data=" + filepath.Join(t.TempDir(), "data")}
		_, errs, code := output(t, program(t), append(args, flags...)...)
		if code != 1 && code != 64 || !strings.Contains(errs, "not a regular file") {
			t.Errorf("%v: exit code %d, %s", flags, code, errs)
		}
	}
	// Any file of the data directory.
	dir := filepath.Join(t.TempDir(), "data")
	start(t, program(t), dir).stopCleanly()
	for _, name := range []string{"CHECKSUMS", "PULSEGATE", "SCRUB", "ERASING"} {
		path := filepath.Join(dir, name)
		_ = os.Rename(path, path+".kept") // not all are there
		try(t, syscall.Mkfifo(path, 0o600))
		for _, args := range [][]string{{"serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data=" + dir}, {"check", dir}} {
			if _, errs, code := output(t, program(t), args...); code != 1 || !strings.Contains(errs, "not a regular file") {
				t.Errorf("%s, %s: exit code %d, %s", name, args[0], code, errs)
			}
		}
		try(t, os.Remove(path))
		_ = os.Rename(path+".kept", path)
	}
	// In place of a directory.
	fresh := filepath.Join(t.TempDir(), "fresh")
	for _, args := range [][]string{
		{"serve", "--addr=127.0.0.1:0", "--admin-addr=", "--data=" + fifo}, {"demo", "--addr=127.0.0.1:0", "--data=" + fifo},
		{"check", fifo},
		{"restore", fifo, "--data=" + fresh}, {"restore", dir, "--data=" + fifo}, {"export", "--device=d", "--data=" + fifo},
		{"backup", fifo, "--data=" + dir}, {"migrate", "--from=" + fifo, "--to=" + fresh},
		{"migrate", "--from=" + dir, "--to=" + fifo},
	} {
		if _, errs, code := output(t, program(t), args...); code != 1 || !strings.Contains(errs, "is not a directory") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	// A client's certificate, and what an address of a database names.
	for _, args := range [][]string{
		{"devices", "--target=https://127.0.0.1:1", "--cert=" + fifo, "--key=" + fifo},
		{"serve", "--addr=127.0.0.1:0", "--store=postgres://127.0.0.1/db?sslmode=verify-full&sslrootcert=" + fifo},
		{"serve", "--addr=127.0.0.1:0", "--store=host=127.0.0.1 dbname=db sslmode=require sslcert='" + fifo +
			"' sslkey=" + fifo},
		{"migrate", "--from=" + dir, "--to=postgres://127.0.0.1/db?passfile=" + fifo},
	} {
		if _, errs, code := output(t, program(t), args...); code != 1 && code != 64 ||
			!strings.Contains(errs, "not a regular file") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}
