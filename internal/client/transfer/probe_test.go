package transfer_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
)

func TestProbeURL(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:8080":            "http://127.0.0.1:8080/readyz",
		"https://host/":                    "https://host/readyz",
		"http://host/livez?x=1":            "http://host/livez?x=1",
		"http://0.0.0.0:8080":              "http://127.0.0.1:8080/readyz",
		"http://:8080/healthz":             "http://127.0.0.1:8080/healthz",
		"http://[::]:8080":                 "http://[::1]:8080/readyz",
		"127.0.0.1:8080":                   "",
		"ftp://host":                       "",
		"http://":                          "",
		"http://user:secret@host:no port/": "",
	} {
		u, err := transfer.ProbeURL(address)
		if want == "" {
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: got %v, %v, want an error without a secret", address, u, err)
			}
		} else if err != nil || u.String() != want {
			t.Errorf("%s: got %v, %v, want %s", address, u, err, want)
		}
	}
}
