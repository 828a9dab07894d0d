package ingest_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

// smuggled is a request that an attacker hides in the body that another server sees.
var smuggled = request(reading("smuggled", 9))

// shapesOfSmuggling are requests on whose length two servers in a row may disagree
// (CWE-444; RFC 9112, section 11.2). The test sends each with another request after
// it. status is the answer of net/http, which closes the connection if it is not 200.
func shapesOfSmuggling() []struct {
	name, fields, body string
	status             int
} {
	short := reading("d", 1)
	n := fmt.Sprint(len(short))
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(short), short)
	return []struct {
		name, fields, body string
		status             int
	}{
		{"two lengths, the first short", "Content-Length: " + n + "\r\nContent-Length: " + fmt.Sprint(len(short)+len(smuggled)), short, 400},
		{"two lengths, the last short", "Content-Length: " + fmt.Sprint(len(short)+len(smuggled)) + "\r\nContent-Length: " + n, short, 400},
		{"one length twice", "Content-Length: " + n + "\r\nContent-Length: " + n, short, 200},
		{"a list of lengths", "Content-Length: " + n + ", " + n, short, 400},
		{"a length with a sign", "Content-Length: +" + n, short, 400},
		{"a negative length", "Content-Length: -" + n, short, 400},
		{"a length with a space", "Content-Length: " + n[:1] + " " + n[1:], short, 400},
		{"a length with a tab", "Content-Length: " + n + "\t", short, 200},
		{"a length with a leading zero", "Content-Length: 0" + n, short, 200},
		{"a hexadecimal length", "Content-Length: 0x" + n, short, 400},
		{"a length with a NUL", "Content-Length: " + n + "\x00", short, 400},
		{"a length beyond 64 bits", "Content-Length: 18446744073709551" + fmt.Sprintf("%03d", 616+len(short)), short, 400},
		{"a length after a space", " Content-Length: " + n, short, 400},
		{"a length before a space", "Content-Length : " + n, short, 400},

		{"length and chunks", "Content-Length: " + n + "\r\nTransfer-Encoding: chunked", chunk, 200},
		{"chunks and length", "Transfer-Encoding: chunked\r\nContent-Length: " + n, chunk, 200},
		{"chunks before a space", "Content-Length: " + n + "\r\nTransfer-Encoding : chunked", chunk, 400},
		{"chunks after a space", "Content-Length: " + n + "\r\n Transfer-Encoding: chunked", chunk, 400},
		{"chunks after a vertical tab", "Content-Length: " + n + "\r\nTransfer-Encoding: \vchunked", chunk, 400},
		{"chunks after a NUL", "Content-Length: " + n + "\r\nTransfer-Encoding: \x00chunked", chunk, 400},
		{"chunks with another name", "Content-Length: " + n + "\r\nTransfer_Encoding: chunked", short, 200},
		{"chunks in mixed case", "Content-Length: " + n + "\r\ntRANSFER-eNCODING: ChUnKeD", chunk, 200},
		{"chunks twice", "Content-Length: " + n + "\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunk, 501},
		{"chunks and identity", "Content-Length: " + n + "\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity", chunk, 501},
		{"a list of chunks", "Content-Length: " + n + "\r\nTransfer-Encoding: chunked, chunked", chunk, 501},
		{"chunks in quotes", "Content-Length: " + n + "\r\nTransfer-Encoding: \"chunked\"", chunk, 501},
		{"chunks, misspelt", "Content-Length: " + n + "\r\nTransfer-Encoding: xchunked", chunk, 501},
		{"an empty encoding", "Content-Length: " + n + "\r\nTransfer-Encoding: ", short, 501},
		{"the encoding identity", "Content-Length: " + n + "\r\nTransfer-Encoding: identity", short, 501},
		{"chunks after a bare LF", "Content-Length: " + n + "\nTransfer-Encoding: chunked", chunk, 200},
		{"chunks in a value, after a bare LF", "Content-Length: " + n + "\r\nAccept: a\nTransfer-Encoding: chunked", chunk, 200},
		{"chunks in a value, after a bare CR", "Content-Length: " + n + "\r\nAccept: a\rTransfer-Encoding: chunked", short, 400},
		{"chunks in a folded line", "Content-Length: " + n + "\r\nTransfer-Encoding:\r\n chunked", chunk, 200},
		{"a folded length", "Content-Length:\r\n " + n, short, 200},

		{"an empty name", "Content-Length: " + n + "\r\n: x", short, 400},
		{"a name with a NUL", "Content-Length: " + n + "\r\nA\x00: x", short, 400},
		{"a line without a colon", "Content-Length: " + n + "\r\nTransfer-Encoding chunked", short, 400},
		{"no length at all", "Accept: */*", short, 411},
	}
}

// Requests whose length is ambiguous leave the fast lane. net/http reads them alone, and
// either rejects them or determines one length.
func TestSmuggling(t *testing.T) {
	tw := newTwin(t, false, shortTimeout)
	single := serveOn(t, new(recorder), ingest.Config{}, &ingest.FastLaneConfig{HeaderTimeout: polltest.Patience, ReadTimeout: polltest.Patience})
	for _, tt := range shapesOfSmuggling() {
		t.Run(tt.name, func(t *testing.T) {
			shape := "POST /v1/readings HTTP/1.1\r\nHost: x\r\n" + tt.fields + "\r\n\r\n" + tt.body

			before := single.lane.Stats().Moved
			conn := dial(t, single)
			send(t, conn, shape)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			try(t, err)
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
			}
			if n := single.lane.Stats().Moved - before; n != 1 {
				t.Errorf("%d connections have left the fast lane, want this one", n)
			}
			conn.Close()

			usual := request(reading("d", 2))
			for _, stream := range []string{shape + smuggled, usual + shape + smuggled} {
				for _, cuts := range [][]int{nil, {len(stream) - len(smuggled)}, {len(stream) / 2}} {
					tw.compare(t, stream+last, cuts)
				}
			}
			// Bytes after a rejected request are not parsed as a request.
			if tt.status != 200 && tt.status != 411 {
				outcome(t, tw.fast, shape+smuggled+last, nil)
				for _, stored := range tw.storedFast.take(t, tw.fast) {
					if strings.Contains(stored, "smuggled") {
						t.Errorf("the request after it was processed: %s", stored)
					}
				}
			}
		})
	}
}
