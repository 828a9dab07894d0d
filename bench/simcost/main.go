// Command simcost compares what a request costs the load generator: pulsegate
// sim against wrk with a Lua script that builds unique readings.
//
// Both load the same server, which answers every request with the same bytes and
// stores nothing, in turns, A B A B. The figure is the CPU time of the load
// generator's process, user and system, per request that was answered.
//
//	(cd .. && go build -o bench/pulsegate ./cmd/pulsegate)
//	go run ./simcost -pulsegate ./pulsegate
//
// wrk must be installed. It runs on Unix systems only.
package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed readings.lua
var readings string

func main() {
	pulsegate := flag.String("pulsegate", "pulsegate", "path of the pulsegate binary")
	connections := flag.Int("connections", 1000, "connections")
	length := flag.Duration("for", 5*time.Second, "length of one run")
	rounds := flag.Int("rounds", 5, "runs of each")
	ledger := flag.Bool("ledger", false, "measure pulsegate sim with a ledger, too")
	flag.Parse()
	if err := compare(*pulsegate, *connections, *length, *rounds, *ledger); err != nil {
		fmt.Fprintln(os.Stderr, "simcost:", err)
		os.Exit(1)
	}
}

// A generator is one way to make load.
type generator struct {
	name string
	run  func() (cost, error)
}

// A cost is what one run cost the load generator.
type cost struct {
	requests uint64
	cpu      time.Duration
	elapsed  time.Duration
}

func (c cost) perRequestUs() float64 {
	return float64(c.cpu.Nanoseconds()) / 1000 / float64(c.requests)
}

func compare(pulsegate string, connections int, length time.Duration, rounds int, ledger bool) error {
	target, stop, err := serve()
	if err != nil {
		return err
	}
	defer stop()
	dir, err := os.MkdirTemp("", "simcost-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "readings.lua")
	if err := os.WriteFile(script, []byte(readings), 0o644); err != nil {
		return err
	}
	seconds := strconv.Itoa(int(length.Seconds()))
	users := strconv.Itoa(connections)
	sim := []string{"sim", "--target", target, "--users", users, "--for", length.String(), "--threads", "1", "--json"}
	generators := []generator{
		{"wrk with Lua", func() (cost, error) {
			return measure(wrkRequests, "wrk", "-t1", "-c"+users, "-d"+seconds+"s", "-s", script, target)
		}},
		{"pulsegate sim", func() (cost, error) { return measure(simRequests, pulsegate, sim...) }},
	}
	if ledger {
		n := 0
		generators = append(generators, generator{"pulsegate sim, ledger", func() (cost, error) {
			n++
			path := filepath.Join(dir, "ledger-"+strconv.Itoa(n))
			defer os.Remove(path)
			return measure(simRequests, pulsegate, append(slices.Clone(sim), "--ledger", path)...)
		}})
	}
	figures := make([][]float64, len(generators))
	for round := range rounds {
		for i, g := range generators {
			c, err := g.run()
			if err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
			figures[i] = append(figures[i], c.perRequestUs())
			fmt.Printf("round %d  %-22s %8.0f requests/s  %6.2f µs CPU per request\n",
				round+1, g.name, float64(c.requests)/c.elapsed.Seconds(), c.perRequestUs())
		}
	}
	fmt.Printf("\n%d connections, %d rounds of %v\n", connections, rounds, length)
	for i, g := range generators {
		slices.Sort(figures[i])
		fmt.Printf("%-22s median %6.2f µs (%.2f to %.2f), ratio to wrk %.2f\n", g.name,
			median(figures[i]), figures[i][0], figures[i][rounds-1], median(figures[i])/median(figures[0]))
	}
	return nil
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// measure runs a load generator and returns its cost.
func measure(count func(output string) (uint64, error), name string, args ...string) (cost, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	start := time.Now()
	output, err := cmd.Output()
	if err != nil {
		return cost{}, err
	}
	elapsed := time.Since(start)
	requests, err := count(string(output))
	if err != nil {
		return cost{}, err
	}
	state := cmd.ProcessState
	return cost{requests, state.UserTime() + state.SystemTime(), elapsed}, nil
}

var wrkLine = regexp.MustCompile(`(\d+) requests in `)

func wrkRequests(output string) (uint64, error) {
	m := wrkLine.FindStringSubmatch(output)
	if m == nil || strings.Contains(output, "Non-2xx") || strings.Contains(output, "Socket errors") {
		return 0, fmt.Errorf("the run was not clean:\n%s", output)
	}
	return strconv.ParseUint(m[1], 10, 64)
}

func simRequests(output string) (uint64, error) {
	var report struct{ Sent, Stored, Requests uint64 }
	if err := json.Unmarshal([]byte(output), &report); err != nil {
		return 0, err
	}
	if report.Stored != report.Sent {
		return 0, errors.New("the run was not clean: " + output)
	}
	return report.Requests, nil
}

// serve starts the server. It answers readings as if they were stored, and the
// question that pulsegate sim asks first.
func serve() (target string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // stopped
			}
			go answer(conn)
		}
	}()
	return "http://" + listener.Addr().String(), func() { listener.Close() }, nil
}

// answer answers all requests of a connection.
func answer(conn net.Conn) {
	defer conn.Close()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\n"
	stored := []byte(head + "Content-Length: 19\r\n\r\n{\"status\":\"stored\"}")
	devices := []byte(head + "Content-Length: 14\r\n\r\n{\"devices\":[]}")
	in := bufio.NewReaderSize(conn, 4<<10)
	for {
		reply, length := stored, 0
		for first := true; ; first = false {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return // the client has gone
			}
			if first && line[0] == 'G' {
				reply = devices
			}
			if name, value, ok := strings.Cut(string(line), ":"); ok && strings.EqualFold(name, "Content-Length") {
				if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
					return
				}
			}
			if len(line) <= 2 {
				break
			}
		}
		if _, err := io.CopyN(io.Discard, in, int64(length)); err != nil {
			return
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}
