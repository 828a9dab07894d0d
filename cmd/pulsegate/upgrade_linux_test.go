package main_test

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

var upgradeFrom = flag.String("upgrade.from", "", "pulsegate of schema version 5, which make upgrade builds; without it, TestRollingUpgrade is skipped")

// TestRollingUpgrade runs servers of schema version 5, which do not know segments, and of this one on the same database. Both read and write until
// readings are sealed, which waits for the earlier ones. Then an earlier one that was cut off is refused: it finds nothing less than what it
// acknowledged, it just does not answer.
func TestRollingUpgrade(t *testing.T) {
	if *upgradeFrom == "" {
		t.Skip("make upgrade runs it")
	}
	db := pgtest.Start(t, "fsync=off")
	serve := func(bin, name string, args ...string) *process {
		return start(t, bin, filepath.Join(t.TempDir(), name), append([]string{"--store=" + db.DSN(), "--postgres-single"}, args...)...)
	}
	stayed, cutOff := serve(*upgradeFrom, "stayed", "--admin-addr=127.0.0.1:0"), serve(*upgradeFrom, "cut-off")
	stored := map[string]int{}
	// post stores readings of a device in February of a year, one a minute.
	post := func(p *process, device string, year, from, n int) {
		t.Helper()
		var lines strings.Builder
		for i := from; i < from+n; i++ {
			fmt.Fprintf(&lines, `{"device":%q,"time":"%d-02-01T%02d:%02d:00Z","heart_rate_bpm":%d.5}`+"\n", device, year, i/60, i%60, 60+i%40)
		}
		if resp, text := fetch(t, "POST", p.url("/v1/readings"), lines.String(), "Content-Type", "application/x-ndjson"); resp.StatusCode != http.StatusOK || !strings.Contains(text, fmt.Sprintf(`"stored":%d,"duplicate":0}`, n)) {
			t.Errorf("%d readings are answered %s %.500s", n, resp.Status, text)
		}
		stored[device] += n
	}
	check := func(p *process) {
		t.Helper()
		for device, n := range stored {
			if resp, text := fetch(t, "GET", p.url("/v1/devices/"+device+"/readings?limit=1000"), ""); resp.StatusCode != http.StatusOK || strings.Count(text, `"heart_rate_bpm"`) != n {
				t.Errorf("%d readings of %s are answered %s, %d", n, device, resp.Status, strings.Count(text, `"heart_rate_bpm"`))
			}
		}
	}
	post(stayed, "d-1", 2024, 0, 200)
	post(cutOff, "d-2", 2024, 0, 200)

	first := serve(program(t), "first", "--seal-after=1s", "--admin-addr=127.0.0.1:0")
	first.awaitLine("a server of an earlier release is connected", 1)
	// Partitions, devices and erasures of each, which the others see.
	for i, p := range []*process{stayed, first, cutOff} {
		post(p, fmt.Sprint("d-", 3+i), 2020+i, 0, 100)
		post(p, "d-1", 2024, 200+50*i, 50)
	}
	for _, p := range []*process{stayed, first, cutOff} {
		check(p)
	}
	if out, errs, code := output(t, *upgradeFrom, "erase", "--yes", "--device=d-3", "--target=http://"+stayed.admin); code != 0 {
		t.Errorf("erase: exit code %d, %s%s", code, out, errs)
	}
	delete(stored, "d-3")
	for _, p := range []*process{stayed, first, cutOff} {
		check(p)
	}
	if n := metric(t, first, "pulsegate_postgres_sealed_readings_total"); n != 0 {
		t.Errorf("%d readings were sealed beside earlier servers", n)
	}

	// One is stopped, and one loses its connections, as by a partition, and comes back when readings have been sealed.
	stayed.stopCleanly()
	cutOff.signal(syscall.SIGSTOP)
	db.Execute(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pulsegate' AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' GROUP BY pid HAVING count(*) > 1)")
	first.awaitLine("readings sealed", 1)
	check(first)
	cutOff.signal(syscall.SIGCONT)
	const advice = "stop it, and start one of the release that the others have"
	cutOff.awaitStatus("/readyz", http.StatusServiceUnavailable)
	cutOff.awaitLine(advice, 1)
	for range 3 {
		if resp, text := fetch(t, "GET", cutOff.url("/v1/devices/d-1/readings?limit=1000"), ""); resp.StatusCode < 500 {
			t.Fatalf("the earlier server answers %s, with %d readings", resp.Status, strings.Count(text, `"heart_rate_bpm"`))
		}
		if resp, text := fetch(t, "POST", cutOff.url("/v1/readings"), `{"device":"d-1","time":"2024-02-01T20:00:00Z","heart_rate_bpm":60}`); resp.StatusCode < 500 {
			t.Fatalf("the earlier server answers %s %s", resp.Status, text)
		}
	}
	cutOff.stopCleanly()
	if _, errs, code := output(t, *upgradeFrom, "serve", "--addr=127.0.0.1:0", "--admin-addr=", "--store="+db.DSN(), "--postgres-single"); code == 0 || !strings.Contains(errs, advice) {
		t.Errorf("an earlier server exits with code %d: %s", code, errs)
	}
	second := serve(program(t), "second")
	post(second, "d-1", 2024, 350, 50)
	check(second)
	check(first)
}
