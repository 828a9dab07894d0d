package main_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/certtest"
)

// The labels of a running server are those of the file of --devices: after a change, and after SIGHUP. A file that
// cannot be used leaves them in use; the log, a metric and the answer to SIGHUP say so. Alerts have them, too.
func TestDevicesFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, rules := filepath.Join(dir, "devices.toml"), filepath.Join(dir, "alerts.toml")
	write := func(text string) { t.Helper(); certtest.Write(t, file, []byte(text)) }
	named := func(label string) string {
		return fmt.Sprintf("[[device]]\ndevice = \"a\"\nlabel = %q\ngroup = \"ward 3\"\n", label)
	}
	write(named("Bed 12"))
	certtest.Write(t, rules, []byte(rule("Low", 90)))
	p := start(t, program(t), filepath.Join(dir, "data"), "--admin-addr=127.0.0.1:0",
		"--devices="+file, "--alerts="+rules)
	send(p, "a", 85.25)
	send(p, "b", 97)
	await := func(path, want string) {
		t.Helper()
		p.await(path+" has "+want, func() bool {
			_, text := fetch(t, http.MethodGet, p.url(path), "")
			return strings.Contains(text, want)
		})
	}
	await("/v1/devices?match=BED&group=ward+3", `{"device":"a","label":"Bed 12","group":"ward 3",`)
	await("/v1/alerts", `"device":"a","label":"Bed 12","group":"ward 3",`)

	write(named("Bed 13"))
	await("/v1/devices?match=bed+13", `"label":"Bed 13"`)

	write(named("Bed 13") + "usual = { spo2_pct = \"80..\" }\n")
	await("/v1/devices/a", `"ranges":{"spo2_pct":{"usual":{"min":80,"of":"device"}}}`)
	if _, text := fetch(t, http.MethodGet, p.url("/v1/devices/a/readings"), ""); strings.Contains(text, `"flags"`) {
		t.Errorf("a value within the range of its device is flagged: %s", text)
	}

	write(named("Bed 14") + "lable = \"x\"\n")
	p.await("the metric says that the file cannot be used",
		func() bool { return metric(t, p, "pulsegate_devices_file_stale") == 1 })
	p.awaitLine("devices.toml:5: lable: unknown key; did you mean label?", 1)
	p.awaitLine("the file of devices cannot be used; the labels and ranges before stay in use", 1)
	p.signal(syscall.SIGHUP)
	p.awaitLine("reload failed in part", 1)
	await("/v1/devices/a", `"label":"Bed 13"`)

	write(named("Bed 15"))
	p.signal(syscall.SIGHUP)
	await("/v1/devices/a", `"label":"Bed 15"`)
	p.await("the metric says that the file is in use", func() bool {
		return metric(t, p, "pulsegate_devices_file_stale") == 0
	})
	p.stopCleanly()
}
