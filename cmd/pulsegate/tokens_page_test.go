package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/tokens.md have the effects that it describes, and their tokens are accepted.
func TestTokensPage(t *testing.T) {
	skipIfShort(t)
	page, err := os.ReadFile("../../docs/tokens.md")
	if err != nil {
		t.Fatal(err)
	}
	requireFreeAddr(t, "127.0.0.1:8080")
	requireFreeAddr(t, "127.0.0.1:6060")
	r := newReader(t)
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 5 {
		t.Fatalf("the page has %d blocks of commands, want 5", len(blocks))
	}
	for _, block := range blocks {
		r.follow(block[1])
	}
	r.run("./pulsegate token list --file pulsegate-tokens")
	shown := r.shown.String()
	id := regexp.MustCompile(`(?m)^[0-9a-f]{12}$`).FindString(shown)
	for _, want := range []string{`{"status":"stored"}`, `"device":"ppg-000123"`, `"gateway":"bed-7"`, id + "  bed-7"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the commands do not show %s:\n%s", want, shown)
		}
	}

	ca, err := newSigner(r.dir, "server-ca")
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.issueServer(r.dir, 2); err != nil {
		t.Fatal(err)
	}
	p := start(t, program(t), filepath.Join(r.dir, "data"), "--tls-cert=server.pem", "--tls-key=server.key", "--tls-client-ca=ca.pem")
	r.shown.Reset()
	r.run(`curl --cacert server-ca.pem --cert bed-7.pem --key bed-7.key -d '{"device":"d","time":1,"spo2_pct":97}' https://` + p.addr + `/v1/readings`)
	if got := r.shown.String(); !strings.Contains(got, `{"status":"stored"}`) {
		t.Errorf("with the certificate that the page makes: %s", got)
	}
}
