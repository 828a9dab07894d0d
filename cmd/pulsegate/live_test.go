package main_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A live stream of a server, with HTTP/1.1, TLS and HTTP/2: it shows what the fast lane and the
// full lane have stored, outlasts the server's timeouts for other requests, sees an erasure,
// and ends when the server drains.
func TestLive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		args        []string
		tls, http2  bool
		wantVersion int
	}{
		{"HTTP/1.1", nil, false, false, 1},
		{"without the fast lane", []string{"--fast-lane=off"}, false, false, 1},
		{"TLS", nil, true, false, 1},
		{"HTTP/2", nil, true, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--admin-addr=127.0.0.1:0", "--read-timeout=2s"}, tt.args...)
			var p *process
			transport := &http.Transport{ForceAttemptHTTP2: tt.http2}
			scheme := "http://"
			if tt.tls {
				var cfg *tls.Config
				p, cfg = startTLS(t, args...)
				transport.TLSClientConfig, scheme = cfg, "https://"
			} else {
				p = start(t, program(t), filepath.Join(t.TempDir(), "data"), args...)
			}
			p.in(t)
			client := &http.Client{Transport: transport}
			defer client.CloseIdleConnections()
			url := scheme + p.addr
			resp, err := client.Get(url + "/v1/live?prefix=ppg-")
			try(t, err)
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.ProtoMajor != tt.wantVersion {
				t.Fatalf("%s %s", resp.Proto, resp.Status)
			}
			in := bufio.NewScanner(resp.Body)
			next := func(ms int64) {
				t.Helper()
				for in.Scan() {
					data, ok := strings.CutPrefix(in.Text(), "data: ")
					if !ok {
						continue
					}
					if want := fmt.Sprintf(`{"device":"ppg-1","time":"%s","spo2_pct":97,`, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")); !strings.HasPrefix(data, want) {
						t.Errorf("got %s, want %s…", data, want)
					}
					return
				}
				t.Errorf("the stream has ended: %v", in.Err())
			}
			post := func(device string, ms int64) {
				t.Helper()
				body := fmt.Sprintf(`{"device":%q,"time":%d,"spo2_pct":97}`, device, ms)
				if got, err := askOnce(client, http.MethodPost, url+"/v1/readings", body); err != nil || got != `{"status":"stored"}` {
					t.Errorf("%s, %v", got, err)
				}
			}
			const first = 1_700_000_000_000
			begin := time.Now()
			n := int64(0)
			// The timeouts of a usual answer are at most four seconds.
			for ; n == 0 || time.Since(begin) < 5*time.Second; n++ {
				post("other", first+n)
				post("ppg-1", first+n)
				next(first + n)
			}
			if got, err := askOnce(http.DefaultClient, http.MethodPost, "http://"+p.admin+"/admin/erase", `{"device":"ppg-1"}`); err != nil || !strings.Contains(got, fmt.Sprintf(`"erased":%d`, n)) {
				t.Errorf("%s, %v", got, err)
			}
			post("ppg-1", first-1) // it would be late if the others were not erased
			next(first - 1)
			if code := p.stop(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, p.stderr())
			}
			for in.Scan() {
				if strings.HasPrefix(in.Text(), "data") {
					t.Errorf("at the end: %s", in.Text())
				}
			}
			if in.Err() != nil {
				t.Errorf("the stream was cut: %v", in.Err())
			}
		})
	}
}
