package ingest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/fronttest"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
)

// A bothLanes is a fast lane and the server behind it.
type bothLanes struct {
	*ingest.FastLane
	http *http.Server
}

func (b bothLanes) Shutdown(ctx context.Context) error {
	return errors.Join(b.FastLane.Shutdown(ctx), b.http.Shutdown(ctx))
}

// The lane of HTTP passes the tests of all fronts.
func TestFront(t *testing.T) {
	fronttest.Run(t, fronttest.Front{
		Serve: func(t testing.TB, l net.Listener, opt front.Options) fronttest.Server {
			lane, err := opt.Core.FastLane(l, ingest.FastLaneConfig{Conns: opt.Conns, TLS: opt.TLS,
				WriteTimeout: opt.WriteTimeout})
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			try(t, err)
			full := &http.Server{Handler: opt.Core.Handler(nil), ConnContext: listen.Mark}
			go func() { _ = full.Serve(lane) }()
			return bothLanes{lane, full}
		},
		Message: func(n int) string { return request(fmt.Sprintf(`{"device":"d","time":%d,"spo2_pct":97}`, n+1)) },
		Next: func(in *bufio.Reader) (string, error) {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return "", err
			}
			body, err := io.ReadAll(resp.Body)
			return fmt.Sprint(resp.StatusCode, " ", string(body)), err
		},
		Stored: func(int) string { return "200 {\"status\":\"stored\"}\n" },
	}, fronttest.Lane{Loop: true}, fronttest.Lane{Loop: true, TLS: true})
}
