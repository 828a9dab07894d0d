package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// The commands of docs/operations.md for an upgrade from format 1 have the effects that it
// describes.
func TestUpgradePage(t *testing.T) {
	skipIfShort(t)
	requireFreeAddr(t, "127.0.0.1:8080")
	requireFreeAddr(t, "127.0.0.1:6060")
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n### From format 1\n")
	if !found {
		t.Fatal("docs/operations.md has no section on the upgrade from format 1")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	var blocks []string
	for _, part := range strings.Split(section, "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	if len(blocks) != 3 {
		t.Fatalf("the section has %d blocks of commands, want 3", len(blocks))
	}
	keep, progress, goBack := blocks[0], blocks[1], blocks[2]

	r := newReader(t)
	archive, err := filepath.Abs("../../internal/storage/pebblestore/testdata/format1/closed.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-xzf", archive, "-C", r.dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v, %s", err, out)
	}
	if err := os.Rename(filepath.Join(r.dir, "closed"), filepath.Join(r.dir, "pulsegate-data")); err != nil {
		t.Fatal(err)
	}
	r.follow(keep)
	r.want("backups/format-1 devices=7 readings=379 ", " format=1\n")
	r.follow("pulsegate serve\n")
	polltest.Until(t, "the end of the conversion", func() bool { return strings.Contains(r.server.stderr(), "store converted") })
	if log := r.server.stderr(); !strings.Contains(log, "readings of an earlier format are being converted in the background") {
		t.Errorf("the log does not say that a conversion begins:\n%s", log)
	}
	r.follow(progress)
	r.want("\npulsegate_store_conversion_devices_left 0\n", "\npulsegate_store_converted_readings_total 379\n")
	r.restart(func() {
		r.run("pulsegate check pulsegate-data")
		r.want("devices=7 readings=379 ", " format=2\n")
	}, "pulsegate serve")
	if code := r.server.stop(); code != 0 {
		t.Errorf("the server's exit code is %d:\n%s", code, r.server.stderr())
	}
	r.server = nil
	r.follow(goBack)
	r.run("pulsegate check pulsegate-data")
	r.want("devices=7 readings=379 ", " format=1\n")
}
