package main_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// pageBlocks returns the want command blocks of a page; its name is relative to docs.
func pageBlocks(t *testing.T, name string, want int) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name)
	try(t, err)
	found := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(found) != want {
		t.Fatalf("the page has %d blocks of commands, want %d", len(found), want)
	}
	var blocks []string
	for _, block := range found {
		blocks = append(blocks, block[1])
	}
	return blocks
}

// upkeepReader is a reader with a running server that has three readings of two devices.
func upkeepReader(t *testing.T) *reader {
	t.Helper()
	r := newReader(t)
	r.follow("pulsegate serve --audit pulsegate-audit.log\n")
	r.run(`curl -d '[{"device":"ppg-000123","time":"2026-11-21T10:00:00Z","spo2_pct":97.5},
{"device":"ppg-000123","time":"2026-11-21T10:01:00Z","heart_rate_bpm":72},
{"device":"ppg-2","time":"2026-11-21T10:00:00Z","spo2_pct":98}]' http://127.0.0.1:8080/v1/readings`)
	return r
}

// restart stops the server and starts it with a command.
func (r *reader) restart(between func(), command string) {
	r.t.Helper()
	r.stop()
	r.server = nil
	between()
	r.follow(command + "\n")
}

func (r *reader) want(texts ...string) {
	r.t.Helper()
	for _, want := range texts {
		if !strings.Contains(r.shown.String(), want) {
			r.t.Errorf("the commands do not show %q:\n%s", want, r.shown.String())
		}
	}
	r.shown.Reset()
}

// The commands of docs/assigning.md print what the page shows.
func followAssigningPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/assigning.md")
	try(t, err)
	_, shown, _ := strings.Cut(string(page), "\n```\n```\n")
	shown, _, found := strings.Cut(shown, "```\n")
	if !found {
		t.Fatal("the page does not show what the commands print")
	}
	r := upkeepReader(t)
	r.follow(pageBlocks(t, "assigning.md", 1)[0])
	r.want(strings.SplitAfter(shown, "\n")...)
	r.stop()
}

// The commands of docs/on-call.md ask a server how it is.
func followOnCallPage(t *testing.T) {
	r := upkeepReader(t)
	r.shown.Reset()
	r.follow(pageBlocks(t, "on-call.md", 1)[0])
	r.want(`{"status":"ok"}`, `{"status":"ready"}`)
	r.stop()
}

// The commands of docs/backup.md have the effects that it describes.
func followBackupPage(t *testing.T) {
	blocks := pageBlocks(t, "backup.md", 9)
	running, stopped, archive, token, withToken := blocks[0], blocks[1], blocks[2], blocks[3], blocks[4]
	restore, eraseAgain, addMissing, check := blocks[5], blocks[6], blocks[7], blocks[8]
	r := upkeepReader(t)
	r.follow(running)
	r.want("/backups/monday devices=2 readings=3 tables=1 table_bytes=")
	r.follow(archive)
	r.want("devices=2 readings=3 ", "\nok\n")
	r.follow(check)
	r.want("devices=2 readings=3 values=3 assignments=0 tables=1 table_bytes=1",
		" log_bytes=0 format=1\nspo2_pct=2\nheart_rate_bpm=1\noldest=2026-11-21T10:00:00Z newest=2026-11-21T10:01:00Z\nok\n")
	r.restart(func() {
		r.follow(stopped)
		r.want("/backups/tuesday devices=2 readings=3 ")
		r.run("mv pulsegate-data pulsegate-data.old")
		r.follow(restore)
		r.want("/pulsegate-data devices=2 readings=3 ")
		r.follow(eraseAgain)
		r.want("erased device=ppg-2 readings=1\n")
	}, "pulsegate serve --audit pulsegate-audit.log")
	r.follow(addMissing)
	r.want("sent=2 stored=0 duplicate=2 ")
	r.restart(func() { r.follow(token) }, "pulsegate serve --tokens pulsegate-tokens --audit pulsegate-audit.log")
	r.follow(withToken)
	r.want("/backups/wednesday devices=1 readings=2 ")
	r.run("cat pulsegate-audit.log")
	r.want(`"event":"backed-up","peer":"127.0.0.1","actor":"this machine"`,
		`"event":"backed-up","peer":"127.0.0.1","actor":"token:`)
	r.stop()
}

// The commands of docs/retention.md have the effects that it describes.
func followRetentionPage(t *testing.T) {
	blocks := pageBlocks(t, "retention.md", 6)
	erase, overHTTP, stopped, subject, values, retain := blocks[0], blocks[1], blocks[2], blocks[3], blocks[4],
		strings.TrimSpace(blocks[5])
	r := upkeepReader(t)
	const wrong = `{"device":"ppg-000123","time":"2026-11-21T08:10:00Z","spo2_pct":71,"gateway":"ward-3"}`
	r.run(`curl -d '` + wrong + `' http://127.0.0.1:8080/v1/readings`)
	r.follow(values)
	r.want("would erase device=ppg-000123 readings=1 first=2026-11-21T08:10:00.000Z last=2026-11-21T08:10:00.000Z\n" +
		"gateway=ward-3 readings=1 ")
	r.follow(strings.Replace(values, "--dry-run", "--yes", 1))
	r.want("erased device=ppg-000123 readings=1\n")
	r.follow(erase)
	r.want("erased device=ppg-000123 readings=2\n")
	const comes = `curl -d '{"device":"ppg-000123","time":"2026-11-21T10:00:00Z","spo2_pct":97.5}' ` +
		`http://127.0.0.1:8080/v1/readings`
	r.run(comes)
	r.want("stored")
	r.follow(overHTTP)
	r.want(`{"device":"ppg-000123","erased":1}`)
	r.run(comes)
	r.run("pulsegate subject assign --device ppg-000123 --subject P-17 --from 2026-11-21T00:00:00Z")
	r.follow(subject)
	r.want("erased subject=P-17 assignments=1 readings=1\n")
	r.run(comes)
	r.restart(func() {
		r.follow(stopped)
		r.want("erased device=ppg-000123 readings=1\n")
		r.run("grep -c '\"event\":\"erased\"' pulsegate-audit.log")
		r.want("5\n")
	}, retain)
	if code := r.server.stop(); code != 0 ||
		!strings.Contains(r.server.stderr(), `msg="old readings are removed" keep=400d every=1d`) {
		t.Errorf("the server's exit code is %d:\n%s", code, r.server.stderr())
	}
}
