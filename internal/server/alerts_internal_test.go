package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Options that cannot work are refused, and no password is quoted.
func TestAlertOptions(t *testing.T) {
	const am, tls = "http://127.0.0.1:9093", "https://am.example"
	with := func(urls ...string) AlertOptions {
		return AlertOptions{Alerts: "alerts.toml", Alertmanager: urls, AlertmanagerEvery: time.Minute}
	}
	for name, tt := range map[string]struct {
		opt  func(*AlertOptions)
		urls []string
		want string // "" means that they are accepted
	}{
		"none":              {func(o *AlertOptions) { o.Alerts = "" }, nil, ""},
		"two":               {func(*AlertOptions) {}, []string{am, "http://10.0.0.1:9093/am/"}, ""},
		"twice":             {func(*AlertOptions) {}, []string{am, am}, "is given twice"},
		"no rules":          {func(o *AlertOptions) { o.Alerts = "" }, []string{am}, "--alertmanager requires --alerts"},
		"no scheme":         {func(*AlertOptions) {}, []string{"127.0.0.1:9093"}, "not of the form http://host:port"},
		"a user in the URL": {func(*AlertOptions) {}, []string{"http://u:s3cret@h"}, "without a user"},
		"a query":           {func(*AlertOptions) {}, []string{am + "?x=s3cret"}, "without a user, a query"},
		"secret, loopback":  {func(o *AlertOptions) { o.AlertmanagerCredentials = "f" }, []string{am}, ""},
		"secret, clear": {func(o *AlertOptions) { o.AlertmanagerCredentials = "f" }, []string{tls, "http://am.example"},
			"in clear text; use https"},
		"secret, TLS":         {func(o *AlertOptions) { o.AlertmanagerCredentials = "f" }, []string{tls}, ""},
		"a secret for nobody": {func(o *AlertOptions) { o.AlertmanagerCredentials = "f" }, nil, "require --alertmanager"},
		"a CA, no TLS": {func(o *AlertOptions) { o.AlertmanagerCA = "f" }, []string{am},
			"--alertmanager-ca requires an --alertmanager with https"},
		"too often": {func(o *AlertOptions) { o.AlertmanagerEvery = time.Millisecond }, []string{am}, "from 1s to 1h"},
	} {
		opt := with(tt.urls...)
		tt.opt(&opt)
		got, err := opt.urls()
		switch {
		case tt.want == "" && (err != nil || len(got) != len(tt.urls)):
			t.Errorf("%s: got %v, %v", name, got, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "s3cret")):
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
}

// Files that cannot be read, or have no secret or certificate, are refused at the start.
func TestAlertFiles(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		try(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, tt := range []struct {
		opt  AlertOptions
		want string
	}{
		{AlertOptions{AlertmanagerCredentials: "/nowhere"}, "/nowhere: no such file"},
		{AlertOptions{AlertmanagerCredentials: file("\n")}, "f: not a line of text"},
		{AlertOptions{AlertmanagerCredentials: file("s3cret\nsecond")}, "f: not a line of text"},
		{AlertOptions{AlertmanagerCredentials: file(strings.Repeat("s3cret", 1000))}, "f is larger than 4096 bytes"},
		{AlertOptions{AlertmanagerCA: "/nowhere"}, "/nowhere: no such file"},
		{AlertOptions{AlertmanagerCA: file("s3cret")}, "f: there is no certificate in PEM"},
	} {
		if _, err := tt.opt.sending("http://h/"); err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
