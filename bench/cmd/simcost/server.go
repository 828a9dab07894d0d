package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// A server answers readings as if they were stored, and the question that
// pulsegate sim asks first. Its generators end before it does, so that none of
// its connections is left when it is stopped.
type server struct {
	target   string // base URL
	listener net.Listener
	running  sync.WaitGroup
}

func serve() (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &server{target: "http://" + listener.Addr().String(), listener: listener}
	s.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // stopped
			}
			s.running.Go(func() { answer(conn) })
		}
	})
	return s, nil
}

// stop waits for the clients to have gone.
func (s *server) stop() {
	s.listener.Close()
	s.running.Wait()
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
