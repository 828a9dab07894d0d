package main_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// A legacyStore is what a data directory of format 1 had when a life began. Its conversion takes
// longer than a round, so that servers are killed in the middle of it.
type legacyStore struct {
	devices, each int
}

// The readings of a legacyStore: heart rates, one each second.
const (
	legacyFromMs     = 1_700_000_000_000
	legacyReceivedMs = 1_800_000_000_000
)

func (s *legacyStore) device(i int) string { return fmt.Sprintf("earlier-%d", i) }

// rate returns the heart rate of a reading in hundredths.
func (s *legacyStore) rate(device, n int) int { return 3000 + (device*131+n*7)%9000 }

// writeLegacyStore makes a store of format 1 in dir, as internal/storage/pebblestore/legacy.go
// describes it, as after a crash.
func writeLegacyStore(t testing.TB, dir string, rnd *rand.Rand) *legacyStore {
	t.Helper()
	s := &legacyStore{devices: 5 + rnd.IntN(50), each: 2000 + rnd.IntN(10_000)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: 24, Logger: silentPebble{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.devices {
		b := db.NewBatch()
		for n := range s.each {
			key := binary.BigEndian.AppendUint64(append([]byte(s.device(i)), 0), uint64(legacyFromMs+1000*n))
			value := binary.BigEndian.AppendUint16([]byte{1, 1 << 3}, uint16(s.rate(i, n)))
			if err := b.Set(key, binary.BigEndian.AppendUint64(value, legacyReceivedMs), nil); err != nil {
				t.Fatal(err)
			}
		}
		last := s.each - 1 - rnd.IntN(60) // the record lacks the newest readings
		record := binary.BigEndian.AppendUint64([]byte{1}, uint64(legacyFromMs+1000*last))
		record = binary.BigEndian.AppendUint64(append(record, 1<<3), uint64(legacyFromMs+1000*last))
		record = binary.BigEndian.AppendUint16(record, uint16(s.rate(i, last)))
		if err := b.Set(append([]byte{1}, s.device(i)...), record, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	text := "pulsegate store, format 1\nThe files beside this one belong together. Please change none of them by hand.\n"
	if err := os.WriteFile(filepath.Join(dir, "PULSEGATE"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sync").CombinedOutput(); err != nil {
		t.Fatalf("sync: %v, %s", err, out)
	}
	return s
}

// verify compares the readings in a stopped store with those that it had.
func (s *legacyStore) verify(t testing.TB, bin, dir string) {
	t.Helper()
	for i := range s.devices {
		out, err := exec.Command(bin, "export", "--data", dir, "--device", s.device(i), "--format=csv", "--audit=").Output()
		if err != nil {
			t.Fatalf("export of %s: %v", s.device(i), err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) != 1+s.each {
			t.Errorf("device %s has %d readings, want %d", s.device(i), len(lines)-1, s.each)
			continue
		}
		for n, line := range lines[1:] {
			rate := s.rate(i, n)
			want := strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%02d", rate/100, rate%100), "0"), ".")
			if !strings.Contains(line, ","+want+",") {
				t.Errorf("device %s, reading %d is %q, want the heart rate %s", s.device(i), n, line, want)
				break
			}
		}
	}
}

// silentPebble is a logger that logs nothing.
type silentPebble struct{}

func (silentPebble) Infof(string, ...any)           {}
func (silentPebble) Errorf(string, ...any)          {}
func (silentPebble) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
