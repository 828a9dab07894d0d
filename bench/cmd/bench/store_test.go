package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

// TestStore runs one small round and writes the results. Peers that are not installed are
// left out.
func TestStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // PostgreSQL's user needs search permission
		t.Fatal(err)
	}
	_, text := runResults(t, []string{"store"}, "store", "--rounds=1", "--seconds=1", "--readings=20000", "--devices=2500",
		"--year=3000",
		"--parts=load,year,peers", "--settled=200ms", "--programs="+built(t), "--dir="+dir)
	for _, want := range []string{
		"make bench-store READINGS=20000 DEVICES=2500", "\n| " + report.Own + " | ", "\n| " + ownTenth + " | ", "\n| " +
			ownAllSigns + " | ", "\n| " + ownTenSigns + " | ",
		"Starts after kill -9", "\n| NDJSON | ", "\n| CSV | ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	for _, peer := range []struct{ name, program string }{{victoriaMetrics, "victoria-metrics"}, {"postgres", "initdb"}} {
		_, err := exec.LookPath(peer.program)
		if measured := strings.Contains(text, "\n| "+peer.name+" | "); err == nil && !measured {
			t.Errorf("no figures of %s:\n%s", peer.name, text)
		} else if !measured && !strings.Contains(text, "Left out: "+peer.name+" in round 1, because ") {
			t.Errorf("%s is neither measured nor left out:\n%s", peer.name, text)
		}
	}
}
