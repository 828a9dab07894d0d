package main_test

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server is backed up under load, and the backup restored. It holds every reading that was
// acknowledged before the backup began, may hold readings that were sent before it ended, and
// holds nothing else.
//
// Seen to fail with the mutants send-previous-backup and backup-without-log.
func TestBackupUnderLoad(t *testing.T) {
	onEitherLane(t, func(t *testing.T, lane lane) {
		t.Parallel()
		b := newHarness(t, lane, "--admin-addr=127.0.0.1:0")
		b.start()
		whole := b.load("--users=8", "--posts=20", "--start=2026-01-01T00:00:00Z")
		whole.wait()
		l := b.load("--users=16", "--rate=400", "--mix=real", "--for=1h")
		for round := range 2 {
			l.awaitAcknowledged(50 * (round + 1))
			acknowledged := answersIn(t, l.ledger)
			dir := filepath.Join(b.scratch, fmt.Sprint("backup", round))
			out, errs, code := output(t, b.bin, "backup", dir, "--target=http://"+b.server.admin)
			if code != 0 || !strings.HasPrefix(out, "ok ") {
				t.Fatalf("backup: exit code %d\n%s%s", code, out, errs)
			}
			sent, err := os.ReadFile(l.ledger)
			try(t, err)
			restored := newHarness(t, lane)
			if out, errs, code := output(t, b.bin, "restore", dir, "--data="+restored.dir); code != 0 {
				t.Fatalf("restore: exit code %d\n%s%s", code, out, errs)
			}
			restored.start()
			then := &load{b: restored, ledger: filepath.Join(restored.scratch, "then"), cut: true}
			writeTo(t, then.ledger, ledgerOf(string(sent), acknowledged))
			if v := then.verify(); v.Acknowledged == 0 { // some of the answers are rejections
				t.Errorf("backup %d: %d acknowledged readings", round, v.Acknowledged)
			}
			first := &load{b: restored, ledger: whole.ledger}
			first.verify()
			restored.term()
			restored.check()
		}
		l.kill()
		b.finish()
	})
}

// answersIn returns the lines of a ledger about answers, without their checksums.
func answersIn(t *testing.T, ledger string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(ledger)
	try(t, err)
	answers := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if record, ok := ledgerRecord(line); ok && strings.HasPrefix(record, "A ") {
			answers[record] = true
		}
	}
	return answers
}

// ledgerRecord returns a line of a ledger without its checksum, if it is complete.
func ledgerRecord(line string) (record string, ok bool) {
	const sum = len(" 12345678\n")
	if len(line) <= sum || !strings.HasSuffix(line, "\n") {
		return "", false
	}
	return line[:len(line)-sum], true
}

// ledgerOf returns the ledger with only some of its answers.
func ledgerOf(text string, answers map[string]bool) []byte {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	var b []byte
	sum := uint32(0)
	add := func(s string) {
		sum = crc32.Update(sum, castagnoli, []byte(s))
		b = append(b, s...)
	}
	for line := range strings.Lines(text) {
		record, ok := ledgerRecord(line)
		if !ok || strings.HasPrefix(record, "A ") && !answers[record] || strings.HasPrefix(record, "E") {
			continue
		}
		add(record + " ")
		add(fmt.Sprintf("%08x\n", sum))
	}
	return b
}
