package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A poster sends readings on one open connection.
type poster struct {
	t      *testing.T
	conn   net.Conn
	in     *bufio.Reader
	header string // further header lines
	n      int    // readings sent so far
}

func newPoster(t *testing.T, conn net.Conn, header string) *poster {
	return &poster{t: t, conn: conn, in: bufio.NewReader(conn), header: header}
}

// post sends a reading. It returns the status and whether the connection ends.
func (p *poster) post() (status int, ends bool) {
	p.t.Helper()
	p.n++
	body := fmt.Sprintf(`{"device":"ppg-1","time":%d,"spo2_pct":97}`, p.n)
	_, err := fmt.Fprintf(p.conn, "POST /v1/readings HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s",
		p.header, len(body), body)
	try(p.t, err)
	resp, err := http.ReadResponse(p.in, nil)
	try(p.t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	try(p.t, err)
	return resp.StatusCode, resp.Close
}

// until sends readings until one is answered with a status, and reports whether the connection
// then ends.
func (p *poster) until(want int) (ends bool) {
	p.t.Helper()
	polltest.Until(p.t, fmt.Sprintf("a reading is answered %d", want), func() bool {
		var status int
		status, ends = p.post()
		return status == want
	})
	return ends
}
