package profile_test

import (
	"testing"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

const module = "github.com/pulsegate/pulsegate/"

// TestParts checks the parts of real stacks, given with the innermost frame first.
func TestParts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stack string
		want  pg.Part
	}{
		{"own code", module + "vitals.(*Decoder).Decode", pg.Decoding},
		{"allocation for a caller", "runtime.mallocgc\nruntime.growslice\n" + module + "vitals.(*Batch).add", pg.Decoding},
		{"library for a caller",
			"internal/bytealg.IndexByte\nbytes.IndexByte\ngithub.com/go-json-experiment/json/jsontext.ConsumeString\n" + module +
				"vitals.decode", pg.Decoding},
		{"assist of an allocation",
			"runtime.scanObject\nruntime.gcDrainN\nruntime.gcAssistAlloc1\nruntime.systemstack\nruntime.mallocgc\n" + module +
				"vitals.(*Batch).add", pg.GarbageCollection},
		{"background marking",
			"runtime.greyobject\nruntime.scanObject\nruntime.gcDrain\nruntime.gcBgMarkWorker.func2\nruntime.systemstack\n" +
				"runtime.gcBgMarkWorker", pg.GarbageCollection},
		{"sweeping for an allocation",
			"runtime.(*sweepLocked).sweep\nruntime.(*mcentral).cacheSpan\nruntime.mallocgc\nnet/http.readRequest",
			pg.GarbageCollection},
		{"write barrier", "runtime.wbBufFlush1\nruntime.wbBufFlush\nruntime.gcWriteBarrier\nnet/http.(*conn).serve",
			pg.GarbageCollection},
		{"choosing a goroutine",
			"runtime.runqgrab\nruntime.runqsteal\nruntime.stealWork\nruntime.findRunnable\nruntime.schedule\nruntime.park_m\n" +
				"runtime.mcall", pg.Scheduler},
		{"waking by a channel",
			"runtime.ready\nruntime.goready.func1\nruntime.systemstack\nruntime.goready\nruntime.send\nruntime.chansend\n" +
				"runtime.chansend1\n" + module + "internal/storage/groupcommit.(*call).Done", pg.Scheduler},
		{"channel itself", "runtime.lock2\nruntime.selectgo\n" + module + "internal/storage/groupcommit.(*call).wait",
			pg.GroupCommit},
		{"futex of a wake-up", "runtime.futex\nruntime.futexwakeup\nruntime.notewakeup\nruntime.startm\nruntime.wakep",
			pg.Kernel},
		{"poller",
			"internal/runtime/syscall/linux.Syscall6\ninternal/runtime/syscall/linux.EpollWait\nruntime.netpoll\n" +
				"runtime.findRunnable", pg.Kernel},
		{"socket",
			"internal/runtime/syscall/linux.Syscall6\nsyscall.RawSyscall6\nsyscall.Syscall\nsyscall.write\nsyscall.Write\n" +
				"internal/poll.(*FD).Write\nnet.(*conn).Write\nnet/http.checkConnErrorWriter.Write", pg.Kernel},
		{"around a system call",
			"runtime.exitsyscall\nsyscall.Syscall\nsyscall.read\ninternal/poll.(*FD).Read\nnet/http.(*connReader).Read",
			pg.Scheduler},
		{"socket outside of the kernel",
			"internal/poll.(*fdMutex).rwlock\ninternal/poll.(*FD).Write\nnet.(*conn).Write\nnet/http.checkConnErrorWriter.Write",
			pg.Answering},
		{"reading a header", "net/textproto.(*Reader).readMIMEHeader\nnet/http.readRequest\nnet/http.(*conn).serve",
			pg.Receiving},
		{"header of a handler", "runtime.mapassign_faststr\nnet/http.Header.Set\n" + module + "reply.fieldList.put",
			pg.Answering},
		{"header of the server", "net/http.Header.Get\nnet/http.(*conn).serve", pg.Receiving},
		{"response", "bufio.(*Writer).Flush\nnet/http.(*response).finishRequest\nnet/http.(*conn).serve", pg.Answering},
		{"routing", "net/http.(*routingNode).matchPath\nnet/http.(*ServeMux).ServeHTTP", pg.Routing},
		{"our router", module + "mux.(*Router).Match\n" + module + "mux.(*Router).ServeHTTP", pg.Routing},
		{"ingest decodes", module + "internal/api/ingest.(*Job).Decode", pg.Decoding},
		{"ingest waits", module + "internal/api/ingest.(*Job).Commit", pg.GroupCommit},
		{"ingest answers", "strconv.AppendInt\n" + module + "internal/api/ingest.(*Job).batchAnswer", pg.Answering},
		{"ingest reads", "runtime.memmove\n" + module + "internal/api/ingest.(*bodyReader).fill", pg.Receiving},
		{"a lane answers", module + "internal/api/mqtt.(*loopFront).AppendAnswer\n" + module +
			"internal/api/ingest.(*Lane).answer", pg.Answering},
		{"a lane submits", module + "internal/api/ingest.(*Lane).submit", pg.GroupCommit},
		{"a publication", module + "internal/api/mqtt.(*loopFront).take", pg.Receiving},
		{"a message of HL7", module + "internal/api/hl7.(*frames).next", pg.Receiving},
		{"a message of HL7 is decoded", "bytes.IndexByte\n" + module + "internal/api/hl7.(*Message).unescape\n" + module +
			"internal/api/hl7.(*Message).part\n" + module + "internal/api/hl7.(*decoder).place", pg.Decoding},
		{"a message of HL7 is acknowledged", "bytes.Join\n" + module + "internal/api/hl7.(*Message).appendHeader",
			pg.Answering},
		{"a line", module + "internal/api/influx.(*Scanner).name", pg.Decoding},
		{"a line is answered", module + "internal/api/influx.(*input).Respond", pg.Answering},
		{"a mapping", module + "internal/api/mapping.(*mapping).read", pg.Decoding},
		{"decompression",
			"github.com/klauspost/compress/flate.(*decompressor).huffmanBlock\n" +
				"github.com/klauspost/compress/gzip.(*Reader).Read\n" + module + "internal/api/ingest.(*bodyReader).fill",
			pg.Decoding},
		{"type parameters", "runtime.mapaccess2\n" + module +
			"internal/storage/groupcommit.(*Committer[go.shape.*github.com/pulsegate/pulsegate/vitals.Reading]).Commit",
			pg.GroupCommit},
		{"store",
			"github.com/cockroachdb/swiss.(*Map[...]).Get\ngithub.com/cockroachdb/pebble/v2/internal/cache.(*shard).get\n" +
				"github.com/cockroachdb/pebble/v2.(*DB).Get", pg.StorePart},
		{"store adapter", module + "internal/storage/pebblestore.(*Store).Append", pg.StorePart},
		{"read side", "encoding/csv.(*Writer).Write\n" + module + "internal/api/query.(*Handler).Readings", pg.ReadingBack},
		{"log line", "log/slog.(*commonHandler).handle\nlog/slog.(*Logger).Info\nmain.(*server).run", pg.Logging},
		{"counting", "sync/atomic.(*Uint64).Add\n" + module + "internal/observe/metrics.(*histogram).observe\n" + module +
			"internal/observe/metrics.(*Route).Handler.func1\nnet/http.(*ServeMux).ServeHTTP", pg.Measuring},
		{"response below a counting wrapper", "net/http.(*response).write\nnet/http.(*response).Write\n" + module +
			"internal/observe/metrics.(*statusWriter).Write\n" + module + "reply.(*Answer).ServeHTTP", pg.Answering},
		{"profiling",
			"compress/flate.(*compressor).deflate\ncompress/gzip.(*Writer).Write\nruntime/pprof.(*profileBuilder).flush",
			pg.Measuring},
		{"scrape", "github.com/prometheus/client_golang/prometheus.(*Registry).Gather\nnet/http.HandlerFunc.ServeHTTP",
			pg.Measuring},
		{"a package with a similar prefix", module + "replyfoo.Do", pg.Other},
		{"unknown code", "crypto/sha256.block\nexample.com/x.F", pg.Other},
		{"runtime alone", "runtime.memmove\nruntime.goexit", pg.Other},
		{"without a name", "0x1234", pg.Other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := pg.Analyze(capture(1, cpu(t, 1, tt.stack)))
			if len(r.Parts) != 1 || r.Parts[0].Name != string(tt.want) {
				t.Errorf("got %v, want %q", r.Parts, tt.want)
			}
		})
	}
}
