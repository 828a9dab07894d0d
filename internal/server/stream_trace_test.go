package server_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A live stream is not traced for its length, which is the client's choice.
//
// Seen to fail when it was.
func TestStreamIsNotSlow(t *testing.T) {
	var streams atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // a server that ends may break it off
		if bytes.Contains(text, []byte("/v1/live")) {
			streams.Add(1)
		}
	}))
	defer collector.Close()
	opt := options(t)
	opt.OTLPEndpoint, opt.TraceSlow, opt.TraceSample = collector.URL, time.Nanosecond, 0
	if _, err := run(t, opt, func(url string) error {
		resp, err := http.Get(url + "/v1/live")
		if err != nil {
			return err
		}
		_, err = resp.Body.Read(make([]byte, 1))
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := streams.Load(); n != 0 {
		t.Errorf("%d exports have a stream", n)
	}
}
