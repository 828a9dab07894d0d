package pebblestore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// Some failures end the process, or leave one in which nothing can be closed. Their tests
// run a scene in a child process: the test binary, with the scene's name in its
// environment.
const (
	sceneEnv = "PEBBLESTORE_TEST_SCENE"
	dirEnv   = "PEBBLESTORE_TEST_DIR"
)

// scenes has the functions of child processes. Each calls os.Exit, or returns to exit
// with 0.
var scenes = map[string]func(dir string){
	"hold the store open":    holdOpen,
	"fail the manifest":      failManifest,
	"ask a store that fails": askFailing,
	"fail the creation":      failCreation,
	"fail the replay":        failReplay,
	"fail a new log":         failNewLog,
	"fail the end of a log":  failLogEnd,
	"fail each operation":    failEach,
}

// child returns a command that runs a scene in a child process.
func child(t *testing.T, scene, dir string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), sceneEnv+"="+scene, dirEnv+"="+dir)
	return cmd
}

// holdOpen keeps a store open until its standard input ends.
func holdOpen(dir string) {
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	exitIf(err)
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	exitIf(s.Close())
}

// exitIf prints err and exits with code 1 if err is not nil.
func exitIf(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// holder opens the store in dir in a child process. end stops the process and returns its exit error.
func holder(t *testing.T, dir string) (end func() error) {
	t.Helper()
	cmd := child(t, "hold the store open", dir)
	in, err := cmd.StdinPipe()
	try(t, err)
	out, err := cmd.StdoutPipe()
	try(t, err)
	try(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "open" {
		t.Fatalf("the other process printed %q, %v", line, err)
	}
	return func() error {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		return cmd.Wait()
	}
}
