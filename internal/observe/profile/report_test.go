package profile_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/pprof/profile"
	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		try(t, os.WriteFile(path, []byte(got), 0o666))
	}
	want, err := os.ReadFile(path)
	try(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// example returns a capture of 1,000 requests that fills every table. decodeSamples is
// the number of CPU samples in decoding.
func example(t *testing.T, decodeSamples int64) *pg.Capture {
	t.Helper()
	const (
		serve   = "\nnet/http.(*conn).serve net/http/server.go:2000"
		handler = "\n" + module + "internal/api/ingest.(*handler).ServeHTTP /src/internal/api/ingest/handler.go:47" + serve
		decode  = "\n" + module + "internal/api/ingest.(*Job).Decode /src/internal/api/ingest/job.go:86" + handler
		write   = "internal/runtime/syscall/linux.Syscall6 asm.s:1\nsyscall.Syscall syscall.go:1\nsyscall.write z.go:1"
	)
	c := capture(1000, build(t, cpuTypes, 1e7,
		sample{stack: module + "vitals.(*Decoder).Decode /src/vitals/decode.go:87" + decode,
			values: []int64{decodeSamples, decodeSamples * 1e7}},
		sample{stack: "runtime.mallocgc malloc.go:1\n" + module + "vitals.(*Batch).add /src/vitals/batch.go:20" + decode,
			values: []int64{25, 25e7}},
		sample{stack: write + "\nnet/http.checkConnErrorWriter.Write s.go:3" + serve, values: []int64{100, 100e7}},
		sample{stack: "runtime.gcDrain mgc.go:1\nruntime.gcBgMarkWorker mgc.go:2", values: []int64{4, 4e7}},
	))
	c.After.CPU = c.Before.CPU + 2.5
	c.After.Readings["duplicate"] = 20
	c.Before.Bytes, c.Before.Objects = 1e6, 2e4
	c.After.Bytes, c.After.Objects = 3.5e6, 2.6e4
	c.Allocs = build(t, heapTypes, 512<<10,
		sample{stack: module + "vitals.(*Batch).add /src/vitals/batch.go:20" + decode, values: []int64{4000, 256000}},
		sample{stack: "net/textproto.(*Reader).ReadLine r.go:1\nnet/http.readRequest r.go:1" + serve,
			values: []int64{2, 2 << 20}},
	)
	c.Heap = build(t, []*profile.ValueType{{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"}},
		512<<10,
		sample{stack: module + "internal/storage/pebblestore.Open /src/open.go:1", values: []int64{1, 8 << 20}},
		sample{stack: "bufio.NewWriterSize b.go:1", values: []int64{100, 400 << 10}},
	)
	contention := []*profile.ValueType{{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"}}
	c.Mutex = build(t, contention, 1,
		sample{stack: "sync.(*Mutex).Unlock m.go:1\n" + module +
			"internal/storage/groupcommit.(*Committer[go.shape.*uint8]).Submit /src/c.go:1", values: []int64{50, 5e6}})
	c.Block = build(t, contention, 1,
		sample{stack: "runtime.selectgo s.go:1\n" + module + "internal/storage/groupcommit.(*call).wait /src/call.go:1",
			values: []int64{1000, 3e9}},
		sample{stack: "runtime.selectgo s.go:1\n" + module + "internal/observe/profile.(*Contention).ServeHTTP /src/c.go:1",
			values: []int64{1, 9e9}})
	c.Goroutine = build(t, []*profile.ValueType{{Type: "goroutine", Unit: "count"}}, 1,
		sample{stack: "runtime.gopark p.go:1\ninternal/poll.runtime_pollWait p.go:1\nnet.(*netFD).Read n.go:1" + serve,
			values: []int64{64}})
	return c
}

func TestReportText(t *testing.T) {
	var text bytes.Buffer
	try(t, pg.Analyze(example(t, 50)).WriteText(&text, 4))
	golden(t, "report.txt", text.String())
}
