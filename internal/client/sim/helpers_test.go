package sim_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// noDial is for fleets that send nothing.
func noDial(context.Context) (net.Conn, error) { return nil, errors.New("no network") }

func readRequest(t testing.TB, text []byte) *http.Request {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return req
}

func readBody(t testing.TB, req *http.Request) string {
	t.Helper()
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		var err error
		body, err = gzip.NewReader(body)
		try(t, err)
	}
	text, err := io.ReadAll(body)
	try(t, err)
	return string(text)
}

var try = polltest.Try
