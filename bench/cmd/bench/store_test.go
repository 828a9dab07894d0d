package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// TestStore runs one small round and writes the page. Peers that are not installed are
// left out.
func TestStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // PostgreSQL's user needs search permission
		t.Fatal(err)
	}
	_, text := runPage(t, []string{"bench-store"}, "store", "--rounds=1", "--seconds=1", "--readings=20000", "--devices=2500", "--year=3000",
		"--parts=load,year,peers", "--settled=200ms", "--programs="+built(t), "--dir="+dir)
	for _, want := range []string{
		"make bench-store READINGS=20000 DEVICES=2500", "\n| " + report.Own + " | ", "\n| " + ownTenth + " | ", "\n| " + ownAllSigns + " | ", "\n| " + ownTenSigns + " | ",
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

func TestWrittenBytes(t *testing.T) {
	if _, err := writtenBytes(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestDiskBytes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "log/b"} {
		path := filepath.Join(dir, name)
		try(t, os.MkdirAll(filepath.Dir(path), 0o700))
		try(t, os.WriteFile(path, make([]byte, 64<<10), 0o600))
	}
	all, err := diskBytes(dir, "")
	try(t, err)
	some, err := diskBytes(dir, "log")
	if err != nil || some >= all {
		t.Errorf("%d bytes without the log, %v; with it %d", some, err, all)
	}
}

func TestBusySince(t *testing.T) {
	at := time.Now()
	idle := keeperState{at: at, cpu: time.Second, size: 10, work: [len(workMetrics)]float64{5, 7}}
	for name, tt := range map[string]struct {
		change func(*keeperState)
		busy   bool
	}{
		"nothing":    {func(*keeperState) {}, false},
		"some ticks": {func(s *keeperState) { s.cpu += 2 * tick }, false},
		"CPU":        {func(s *keeperState) { s.cpu += 10 * tick }, true},
		"size":       {func(s *keeperState) { s.size-- }, true},
		"debt":       {func(s *keeperState) { s.work[0] = 0 }, true},
	} {
		now := idle
		now.at = at.Add(500 * time.Millisecond)
		tt.change(&now)
		if busy := now.busySince(idle); busy != tt.busy {
			t.Errorf("%s: busy %v, want %v", name, busy, tt.busy)
		}
	}
}
