package transfer_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
)

// What a server sends reaches no terminal with control characters, which could make it do anything.
func TestPrintable(t *testing.T) {
	const escape = `\u001b]0;t\u0007`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/devices":
			fmt.Fprintf(w, `{"devices":[{"device":"d%s","latest":{"heart_rate_bpm":{"value":1,"flags":["f%s"]}}}]}`,
				escape, escape)
		case "/v1/devices/d":
			fmt.Fprintf(w, `{"device":"d%s"}`, escape)
		case transfer.AssignmentsPath:
			fmt.Fprintf(w, `{"assignments":[{"device":"d%s","subject":"s%s","from":"f%s"}]}`, escape, escape, escape)
		case "/v1/readings":
			fmt.Fprintf(w, `{"stored":0,"duplicate":0,"rejected":[{"index":0,"field":"f%s","reason":"r%s"}]}`, escape, escape)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"title":"t%s","field":"f%s","reason":"r%s","detail":"d%s"}`, escape, escape, escape, escape)
		}
	}))
	defer srv.Close()
	client, err := transfer.NewClient(srv.URL, transfer.Credentials{})
	try(t, err)
	defer client.Close()
	ctx := t.Context()
	shown := map[string]any{}
	shown["problem"] = client.Backup(ctx, func(io.Reader, int64) error { return nil })
	shown["devices"] = client.Devices(ctx, 0,
		func(page []transfer.Device) error { return fmt.Errorf("%s", fmt.Sprint(page)) })
	device, err := client.Device(ctx, "d")
	shown["device"] = fmt.Sprint(device.Name, err)
	shown["assignments"] = client.Assignments(ctx, "", "",
		func(a transfer.Assignment) error { return fmt.Errorf("%s", fmt.Sprint(a)) })
	answer, err := client.SendBatch(ctx, []byte("[]"), 1)
	shown["batch"] = fmt.Sprint(answer, err)
	for what, text := range shown {
		if got := fmt.Sprint(text); strings.ContainsAny(got, "\x1b\x07") || !strings.Contains(got, "\ufffd]0;t\ufffd") {
			t.Errorf("%s is shown as %q", what, got)
		}
	}
}
