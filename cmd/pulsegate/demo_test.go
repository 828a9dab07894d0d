package main_test

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// The demo prints the figures that were counted by hand in its recording, and the curl commands
// that it prints work as they are.
func TestDemo(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(program(t), "demo", "--addr=127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	try(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	try(t, cmd.Start())
	var shown strings.Builder
	var commands []string
	deadline := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer deadline.Stop()
	lines := bufio.NewScanner(stdout)
	if lines.Scan(); !strings.HasPrefix(lines.Text(), "Open http://127.0.0.1:") {
		t.Errorf("the first line is %q", lines.Text())
	}
	address := strings.TrimSuffix(strings.TrimPrefix(lines.Text(), "Open "), " in a browser.")
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "Serving until") {
		shown.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "  curl ") {
			commands = append(commands, lines.Text())
		}
	}
	for _, want := range []string{
		" 1936  rows", " 772  zeros left out", " 42  rows without a vital sign", " 1894  readings sent",
		" 1893  stored", " 5339  values", " 1  rejected",
		"heart_rate_bpm: outside the accepted range 20 to 300 /min\n  This is meant: ",
	} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("the table does not show %q", want)
		}
	}
	if t.Failed() {
		t.Logf("shown:\n%s\nstandard error:\n%s", shown.String(), stderr.String())
	}
	if len(commands) != 2 {
		t.Fatalf("%d curl commands, want 2:\n%s", len(commands), shown.String())
	}

	out, err := exec.Command("sh", "-c", commands[0]+" --silent --show-error --fail").CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", commands[0], err, out)
	}
	var device struct {
		Latest map[string]struct{ Value float64 }
	}
	if err := json.Unmarshal(out, &device); err != nil || len(device.Latest) != 5 {
		t.Errorf("the last values are %s, %v; want five signs", out, err)
	}

	out, err = exec.Command("sh", "-c", commands[1]+" --silent --show-error --fail").CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", commands[1], err, out)
	}
	rows := strings.Count(string(out), "\n")
	if rows < 30 || rows > 62 || !strings.HasPrefix(string(out), "device,time,utc_offset_minutes,systolic_mmhg,") {
		t.Errorf("an hour as CSV has %d rows:\n%s", rows, out)
	}
	// The last row of the file with a heart rate has 68.5.
	table, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	try(t, err)
	heart, last := slices.Index(table[0], "heart_rate_bpm"), ""
	for _, row := range table[1:] {
		last = cmp.Or(row[heart], last)
	}
	if last != "68.5" {
		t.Errorf("the last heart rate is %q, want 68.5", last)
	}

	// The replay continues: the five devices get readings.
	polltest.Until(t, "readings of the replay", func() bool {
		_, text := fetch(t, http.MethodGet, address+"v1/devices?prefix=replay-", "")
		return strings.Count(text, `"device":"replay-`) == 4
	})

	try(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, stderr.String())
	}
}
