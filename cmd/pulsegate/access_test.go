package main_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

// createToken creates a token with the command and returns its text.
func createToken(t testing.TB, bin, file string, args ...string) string {
	t.Helper()
	args = append([]string{"token", "create", "--file", file, "--audit", filepath.Join(filepath.Dir(file), "pulsegate-audit.log")}, args...)
	out, errs, code := output(t, bin, args...)
	if code != 0 {
		t.Fatalf("token create: %s", errs)
	}
	return strings.TrimSpace(out)
}

// Certificates are renewed under load: no request fails, later requests see the new certificate,
// and open connections stay open.
func TestRenewCertificateUnderLoad(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	bin, dir := program(t), t.TempDir()
	ca := certtest.New("ca")
	ca.Server(100).Write(t, dir, "server")
	file := filepath.Join(dir, "tokens")
	token := createToken(t, bin, file, "--gateway", "bed-7")
	p := start(t, bin, filepath.Join(dir, "data"), append(certified(dir), "--tokens="+file)...)
	roots := ca.Pool()

	var serial atomic.Int64 // of the newest certificate seen
	var posts atomic.Int64
	post := func(ctx context.Context, client *http.Client) error {
		body := fmt.Sprintf(`{"device":"ppg-1","time":%d,"spo2_pct":97}`, posts.Add(1))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.addr+"/v1/readings", strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
			return fmt.Errorf("%d %s: %w", resp.StatusCode, text, err)
		}
		serial.Store(resp.TLS.PeerCertificates[0].SerialNumber.Int64())
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*polltest.Patience)
	defer cancel()
	stop := make(chan struct{})
	var load sync.WaitGroup
	run := func(one func() bool) {
		for {
			select {
			case <-stop:
				return
			default:
				if !one() {
					return
				}
			}
		}
	}
	// One client keeps its connection, the others reconnect for each request.
	kept := newPoster(t, tls.Client(connect(t, p.addr), &tls.Config{RootCAs: roots, ServerName: "localhost"}), "Authorization: Bearer "+token+"\r\n")
	try(t, kept.conn.SetDeadline(time.Now().Add(2*polltest.Patience)))
	load.Go(func() {
		run(func() bool {
			status, ends := kept.post()
			if status != 200 || ends {
				t.Errorf("on the open connection: %d, it ends: %v", status, ends)
			}
			return status == 200 && !ends
		})
	})
	for range 2 {
		load.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
			run(func() bool {
				err := post(ctx, client)
				if err != nil {
					t.Error(err)
				}
				return err == nil
			})
		})
	}
	for next := int64(101); next <= 103; next++ {
		ca.Server(next).Write(t, dir, "server")
		p.await(fmt.Sprintf("certificate %d is served", next), func() bool { return serial.Load() == next || t.Failed() })
	}
	// A certificate and a key that do not match change nothing.
	try(t, os.WriteFile(filepath.Join(dir, "server.key"), []byte("no key"), 0o600))
	p.awaitLine("the certificates cannot be used", 1)
	before := posts.Load()
	p.await("20 further readings are taken", func() bool { return posts.Load() >= before+20 || t.Failed() })
	close(stop)
	load.Wait()
	if got := serial.Load(); got != 103 || kept.n < 2 {
		t.Errorf("the last certificate seen is number %d, want 103; the kept connection was used %d times", got, kept.n)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.stderr())
	}
	if ctx.Err() != nil {
		t.Errorf("not in time; the log of the server\n%s", p.stderr())
	}
}

// Neither tokens nor measured values appear in log lines, answers, metrics or the audit log,
// however they are sent, at debug level. Seen to fail when an answer repeated the Authorization
// header.
func TestNoSecretsInOutput(t *testing.T) {
	bin, dir := program(t), t.TempDir()
	file := filepath.Join(dir, "tokens")
	all := createToken(t, bin, file, "--gateway", "bed-7", "--rights", "write,read")
	short := createToken(t, bin, file, "--gateway", "bed-8", "--expires", "1s")
	gone := createToken(t, bin, file, "--gateway", "bed-9")
	if _, errs, code := output(t, bin, "token", "revoke", "--file", file, "--audit", "", "--gateway", "bed-9"); code != 0 {
		t.Fatal(errs)
	}
	p := start(t, bin, filepath.Join(dir, "data"), "--tokens="+file, "--admin-addr=127.0.0.1:0",
		"--log-level=debug", "--access-log=all", "--access-log-budget=100000", "--log-budget=100000", "--log-budget-bytes=100000000")
	const value = "97.53" // of every reading
	var shown bytes.Buffer
	ask := func(base, method, path, body string, header ...string) int {
		t.Helper()
		resp, text := fetch(t, method, base+path, body, header...)
		if !strings.Contains(path, "/readings?") || resp.StatusCode != 200 { // the requested readings
			fmt.Fprintf(&shown, "%s %s\n", resp.Header, text)
		}
		return resp.StatusCode
	}
	public, n := "http://"+p.addr, 0
	for _, token := range []string{all, short, gone, all[:40], all + all} {
		for _, header := range [][]string{
			{"Authorization", "Bearer " + token}, {"Authorization", "Basic " + token}, {"Authorization", token},
			{"Authorization", "Bearer " + token, "Authorization", "Bearer " + token},
			{"Authorization", "Bearer " + token, "X-Odd", token}, {"X-Token", token}, {"Cookie", "token=" + token},
		} {
			n++
			reading := fmt.Sprintf(`{"device":"ppg-1","time":%d,"spo2_pct":%s}`, n, value)
			ask(public, http.MethodPost, "/v1/readings", reading, header...)
			ask(public, http.MethodPost, "/v1/readings?access_token="+token, reading, header...)
			ask(public, http.MethodPost, "/v1/readings", "nonsense "+token+value, header...)
			ask(public, http.MethodPost, "/v1/readings", strings.Replace(reading, "}", `,"gateway":"bed-1"}`, 1), header...)
			ask(public, http.MethodGet, "/v1/devices?access_token="+token, "", header...)
			ask(public, http.MethodGet, "/v1/devices/ppg-1/readings?access_token="+token, "", header...)
			ask(public, http.MethodGet, "/v1/devices/ppg-1/readings?format=csv", "", header...)
			ask(public, http.MethodGet, "/"+token, "", header...)
		}
	}
	if got := ask(public, http.MethodGet, "/v1/devices/ppg-1/readings?format=ndjson", "", "Authorization", "Bearer "+all); got != 200 {
		t.Errorf("export: status %d", got)
	}
	if got := ask("http://"+p.admin, http.MethodGet, "/metrics", "", "Authorization", "Bearer "+all); got != 200 {
		t.Errorf("metrics: status %d", got)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	shown.WriteString(p.stderr())
	for _, name := range []string{"pulsegate-audit.log", "tokens"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		try(t, err)
		shown.Write(text)
	}
	if !strings.Contains(shown.String(), `"event":"auth.refused"`) {
		t.Error("the outputs are incomplete")
	}
	for _, secret := range []string{all[4:16], all[30:40], short[4:16], gone[4:16], value} {
		for line := range strings.Lines(shown.String()) {
			if strings.Contains(line, secret) {
				t.Errorf("a secret appears in %s", line)
			}
		}
	}
}
