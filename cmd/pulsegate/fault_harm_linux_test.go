package main_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A harm is what happens to one file of a closed store.
type harm string

// The harms of the campaign.
const (
	harmRemoved harm = "a file is removed"
	harmEmptied harm = "a file is emptied"
	harmCut     harm = "a file is truncated"
	harmOlder   harm = "a file is replaced by an older copy"
	harmZeroed  harm = "a sector of a file is zeroed"
	harmFlipped harm = "a bit of a file is flipped"
)

// harmFaults are a stop followed by a harm.
var harmFaults = []crashFault{
	"kill -9, then a file is removed", "kill -9, then a file is emptied", "kill -9, then a file is truncated",
	"kill -9, then a file is replaced by an older copy",
	"kill -9, then a sector of a file is zeroed", "kill -9, then a bit of a file is flipped",
	"SIGTERM, then a file is removed", "SIGTERM, then a file is emptied", "SIGTERM, then a file is truncated",
	"SIGTERM, then a file is replaced by an older copy",
	"SIGTERM, then a sector of a file is zeroed", "SIGTERM, then a bit of a file is flipped",
}

// harmOf returns the stop and the harm of a fault.
func harmOf(fault crashFault) (stop crashFault, h harm, ok bool) {
	if !slices.Contains(harmFaults, fault) {
		return fault, "", false
	}
	first, rest, _ := strings.Cut(string(fault), ", then ")
	return crashFault(first), harm(rest), true
}

// files returns the files of the data directory by name.
func (b *harness) files() map[string]string {
	b.Helper()
	entries, err := os.ReadDir(b.dir)
	try(b, err)
	all := map[string]string{}
	for _, e := range entries {
		if e.Name() == "LOCK" || !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(b.dir, e.Name()))
		try(b, err)
		all[e.Name()] = string(text)
	}
	return all
}

// harm damages a file of the closed store. The next start loses nothing, or names and rejects the
// file, which is then restored.
//
// Seen to fail with the mutant ignore-list.
func (l *life) harm(h harm, stop crashFault) {
	have := l.b.files()
	defer func() { l.older = have }()
	file, text, ok := l.draw(h, stop, have)
	if !ok {
		l.t.Logf("there is no file for: %s", h)
		return
	}
	full := filepath.Join(l.b.dir, file)
	if h == harmRemoved {
		try(l.t, os.Remove(full))
	} else {
		writeSynced(l.t, full, []byte(text))
	}
	out, errs, code := output(l.t, l.b.bin, "check", l.b.dir)

	l.c.mu.Lock()
	l.tally.starts++
	l.c.mu.Unlock()
	line := l.b.serveCommand()
	p, err := tryLaunch(l.t, 1, exec.Command(line[0], line[1:]...))
	if err != nil {
		l.c.mu.Lock()
		l.tally.refused++
		l.c.mu.Unlock()
		// The numbers of markers grow.
		named, _, _ := strings.Cut(file, ".0")
		if !strings.HasPrefix(file, "marker") {
			named = file
		}
		if text := err.Error(); file != "CHECKSUMS" && !strings.Contains(text, named) ||
			!strings.Contains(text, "corrupt") && file != "PULSEGATE" || strings.Contains(text, "goroutine ") {
			l.t.Errorf("%s: %s: the server exits with %v", h, file, err)
		}
		if code != 1 {
			l.t.Errorf("%s: %s: pulsegate check exits with %d:\n%s%s, and the server does not start: %v", h, file, code,
				out, errs, err)
		}
		writeSynced(l.t, full, []byte(have[file]))
		return
	}
	l.b.server = p
	watchLog(l.t, p)
	for _, load := range l.b.loads {
		load.verify()
	}
	p.kill()
	// The server has continued, and may have removed the file by itself.
	have = l.b.files()
}

func writeTo(t testing.TB, name string, text []byte) {
	t.Helper()
	try(t, os.WriteFile(name, text, 0o600))
}

// writeSynced writes a file that survives a power loss, which may be the next fault.
func writeSynced(t testing.TB, name string, text []byte) {
	t.Helper()
	writeTo(t, name, text)
	for _, name := range []string{name, filepath.Dir(name)} {
		f, err := os.Open(name)
		try(t, err)
		try(t, f.Sync(), f.Close())
	}
}

// draw returns a file and its new contents, or false if there is none for h.
func (l *life) draw(h harm, stop crashFault, have map[string]string) (file, text string, ok bool) {
	names := slices.Sorted(maps.Keys(have))
	if h == harmZeroed || h == harmFlipped {
		// A start does not read the contents of tables; see TestDamage and TestEveryByte of package pebblestore.
		names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".sst") })
	}
	if stop == faultKill && h != harmRemoved && h != harmEmptied {
		// A kill may tear off the end of the newest log.
		newest, _ := l.b.log()
		names = slices.DeleteFunc(names, func(name string) bool { return name == filepath.Base(newest) })
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		switch h {
		case harmRemoved:
			return false
		case harmOlder:
			older, ok := l.older[name]
			return !ok || older == have[name]
		}
		return have[name] == ""
	})
	if len(names) == 0 {
		return "", "", false
	}
	file = names[l.rnd.IntN(len(names))]
	switch h {
	case harmCut:
		text = have[file][:l.rnd.IntN(len(have[file]))]
	case harmOlder:
		text = l.older[file]
	case harmZeroed:
		text = zeroSector(have[file])
	case harmFlipped:
		text = flip(have[file], l.rnd.IntN(len(have[file])))
	}
	return file, text, true
}
