package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// alterations is a file of package server. ALTERED in the environment of a server says which it has: a clock that jumps
// forwards and backwards by milliseconds, minutes and decades each time it is read, or a part that hangs from the first
// reading on: the event loop, where it looks at the clock, the committer, after a group is stored, or the disk.
const alterations = `package server

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

func hang(part string) {
	if os.Getenv("ALTERED") == part {
		time.Sleep(time.Hour)
	}
}

type hangingDisk struct{ ingest.Appender }

func (d hangingDisk) Append(group []*storage.Entry) error {
	hang("disk")
	return d.Appender.Append(group)
}

func alteredClock() func() time.Time {
	if os.Getenv("ALTERED") != "clock" {
		return func() time.Time { hang("loop"); return time.Now() }
	}
	const year = 365 * 24 * time.Hour
	jumps := []time.Duration{0, 30 * year, -4 * time.Minute, time.Second, -50 * year, -time.Millisecond, -3 * time.Minute, -time.Hour, 7 * year}
	var looks atomic.Uint64
	return func() time.Time { return time.Now().Add(jumps[looks.Add(1)%uint64(len(jumps))]) }
}
`

// linesInput is what the input of package lines adds to the files of package server, and what it stands before.
var linesInput = []struct{ file, before, text string }{
	{"fronts.go", "\t\"github.com/pulsegate/pulsegate/internal/api/hl7\"\n",
		`	"github.com/pulsegate/pulsegate/internal/api/fronttest/lines"
`},
	{"fronts.go", "\t}\n}\n\n// frontAddrs ",
		`		{"lines", func(c *Options) *string { return &c.LinesAddr }, nil, false, (*server).serveLines},
`},
	{"fronts.go", "// serveMLLP ", `func (s *server) serveLines(l net.Listener, opt front.Options) (runningFront, error) {
	return lines.Serve(l, opt, s.parsed.limits.Signs), nil
}
`},
	{"options.go", "\tData      string",
		"\tLinesAddr string `name:\"lines-addr\" group:\"inputs\" help:\"Address on which gateways send lines.\"`\n"},
}

// altered builds, once for all tests, a server that ALTERED in its environment alters, and that has the input of lines.
// With --seal-after, it seals everything that is due, ten times a second and not every eight hours. Only package server
// is altered, so that little else is compiled.
var altered = sync.OnceValues(func() (bin string, err error) {
	dir, err := filepath.Abs("../../internal/server")
	if err != nil {
		return "", err
	}
	replaced := map[string]string{filepath.Join(dir, "altered.go"): alterations}
	const after, committed, store = " s.opt.SealAfter,\n", "cfg.OnCommitted = func(group []*storage.Entry) {\n",
		"ingest.New(s.store, "
	type replacement struct{ file, old, new string }
	replacements := []replacement{
		{"options.go", " limits,\n", " limits, Now: alteredClock(),\n"},
		{"store.go", after, after + "SealEvery: 100 * time.Millisecond, SealAtLeast: 1,\n"},
		{"server.go", committed, committed + "hang(\"committer\")\n"},
		{"server.go", store, "ingest.New(hangingDisk{s.store}, "},
	}
	for _, added := range linesInput {
		replacements = append(replacements, replacement{added.file, added.before, added.text + added.before})
	}
	for _, r := range replacements {
		file := filepath.Join(dir, r.file)
		if replaced[file] == "" {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			replaced[file] = string(text)
		}
		if strings.Count(replaced[file], r.old) != 1 {
			return "", fmt.Errorf("%s does not hold %q once", r.file, r.old)
		}
		replaced[file] = strings.Replace(replaced[file], r.old, r.new, 1)
	}
	dir = filepath.Join(built.dir, "altered")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return buildInto(dir, replaced)
})
