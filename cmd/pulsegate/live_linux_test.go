package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkLive measures the CPU time of the whole server process for each reading, at 5,000
// readings a second of as many devices, each in a request of its own: without listeners, and
// with 1,000, each of which watches one device. Writing the events is included. Set
// PULSEGATE_BENCH_BINARY to measure another program, such as one without live readings.
//
//	go test -run '^$' -bench Live -benchtime 50000x -count 5 ./cmd/pulsegate
func BenchmarkLive(b *testing.B) {
	for _, listeners := range []int{0, 1000} {
		b.Run(fmt.Sprint("listeners=", listeners), func(b *testing.B) { benchmarkLive(b, listeners) })
	}
}

func benchmarkLive(b *testing.B, listeners int) {
	const (
		devices = 5000
		rate    = 5000 // readings per second
		conns   = 16
		tick    = 2 * time.Millisecond
	)
	bin := os.Getenv("PULSEGATE_BENCH_BINARY")
	if bin == "" {
		bin = program(b)
	}
	p := start(b, bin, filepath.Join(b.TempDir(), "data"))
	p.awaitStatus("/readyz", http.StatusOK)

	var watching, readers sync.WaitGroup
	for i := range listeners {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /v1/live?device=d-%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i)
		watching.Add(1)
		readers.Go(func() {
			in := make([]byte, 2048)
			if _, err := io.ReadFull(conn, in[:64]); err != nil {
				b.Error(err)
			}
			watching.Done()
			for {
				if _, err := conn.Read(in); err != nil {
					return
				}
			}
		})
	}
	watching.Wait()

	posts := make(chan string, rate)
	var senders sync.WaitGroup
	for range conns {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		senders.Go(func() {
			in := bufio.NewReader(conn)
			for post := range posts {
				if _, err := io.WriteString(conn, post); err != nil {
					b.Error(err)
					return
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Errorf("%v, %v", resp, err)
					return
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
	before := cpuOf(b, p.cmd.Process.Pid)
	begin := time.Now()
	b.ResetTimer()
	for sent := 0; sent < b.N; time.Sleep(tick) {
		due := min(int(time.Since(begin)*rate/time.Second), b.N)
		for ; sent < due; sent++ {
			body := fmt.Sprintf(`{"device":"d-%d","time":%d,"heart_rate_bpm":%d}`, sent%devices, time.Now().UnixMilli(), 60+sent%40)
			posts <- fmt.Sprintf("POST /v1/readings HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	}
	close(posts)
	senders.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuOf(b, p.cmd.Process.Pid)-before).Nanoseconds())/float64(b.N), "cpu-ns/reading")
	b.ReportMetric(0, "ns/op") // it is that of the rate
	p.stop()
	readers.Wait()
}

// cpuOf returns the CPU time that a process has used.
func cpuOf(b *testing.B, pid int) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { // as clock_getcpuclockid(3) computes it
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
