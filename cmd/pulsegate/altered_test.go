package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// jumpingClock is the clock of a server with ALTERED=clock in its environment: it jumps forwards and
// backwards by milliseconds, minutes and decades each time it is read.
const jumpingClock = `package server

import (
	"os"
	"sync/atomic"
	"time"
)

func jumpingClock() func() time.Time {
	if os.Getenv("ALTERED") != "clock" {
		return time.Now
	}
	const year = 365 * 24 * time.Hour
	jumps := []time.Duration{0, 30 * year, -4 * time.Minute, time.Second, -50 * year, -time.Millisecond, -3 * time.Minute, -time.Hour, 7 * year}
	var looks atomic.Uint64
	return func() time.Time { return time.Now().Add(jumps[looks.Add(1)%uint64(len(jumps))]) }
}
`

// hang returns code before which the server hangs if ALTERED names the part.
func hang(part, code string) string {
	return fmt.Sprintf("if os.Getenv(\"ALTERED\") == %q { time.Sleep(time.Hour) }\n%s", part, code)
}

// altered builds, once for all tests, a server that ALTERED in its environment alters: its clock
// jumps, or one part of it hangs from the first reading on. With --seal-after, it seals everything that is due, ten times a
// second and not every eight hours. One program for all costs one build.
var altered = sync.OnceValues(func() (bin string, err error) {
	module, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	replaced := map[string]string{filepath.Join(module, "internal/server/jumping_clock.go"): jumpingClock}
	const loop, committer, disk = "\tfor taken < len(b) && !c.Full() {\n", "\t\tc.commit(g)\n", "\ts.settler.reset()\n"
	const after = "SealAfter:     s.opt.SealAfter,\n"
	for _, r := range []struct{ file, old, new string }{
		{"internal/server/options.go", " limits,\n", " limits, Now: jumpingClock(),\n"},
		{"internal/server/store.go", after, after + "SealEvery: 100 * time.Millisecond, SealAtLeast: 1,\n"},
		{"internal/api/ingest/http_linux.go", loop, hang("loop", loop)},
		{"internal/storage/groupcommit/run.go", committer, hang("committer", committer)},
		{"internal/storage/pebblestore/store.go", disk, hang("disk", disk)},
	} {
		file := filepath.Join(module, r.file)
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if strings.Count(string(text), r.old) != 1 {
			return "", fmt.Errorf("%s does not hold %q once", r.file, r.old)
		}
		with := strings.Replace(string(text), r.old, r.new, 1)
		for _, name := range []string{"os", "time"} {
			if strings.Contains(r.new, name+".") && !strings.Contains(with, "\t"+strconv.Quote(name)+"\n") {
				with = strings.Replace(with, "import (\n", "import (\n\t"+strconv.Quote(name)+"\n", 1)
			}
		}
		replaced[file] = with
	}
	dir := filepath.Join(built.dir, "altered")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return buildInto(dir, replaced)
})
