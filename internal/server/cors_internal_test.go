package server

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// Origins and public hosts that could never match are rejected at the start.
func TestCheckOrigins(t *testing.T) {
	for _, texts := range [][]string{
		{""}, {"ward.example"}, {"https://ward.example/"}, {"https://Ward.example"}, {"https://u@ward.example"},
		{"ftp://ward.example"}, {"https://*.example"}, {"null"}, {"*", "https://ward.example"},
	} {
		_, err := newOrigins(texts)
		if _, usage := err.(settings.UsageError); !usage {
			t.Errorf("%q: %v", texts, err)
		}
	}
	for _, name := range []string{"", "ward.example", "ward.example:8080", "ftp://ward.example", "https://u@ward.example/",
		"https://ward.example/#fleet", "https://ward.example/#", "https://ward.example/?", "https://ward.example/a b",
		"https://:8443/", "*"} {
		err := (&Options{PublicURL: []string{name}}).checkURLs()
		if _, usage := err.(settings.UsageError); !usage {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The fast lane's check of the Host does not allocate for a client that repeats it, and decides
// as that of the full lane.
func TestUsualHost(t *testing.T) {
	h := (&Options{Addr: "[::]:8080", PublicURL: []string{"https://vitals.example/"}}).publicHosts(nil)
	for _, host := range []string{"vitals.example", "evil.example", "127.0.0.1:8080", "localhost", "192.0.2.7",
		"1.2.3.999", "[::1]", "[2001:db8::7]:8080", "", "::", "vitals.example.", "[::]"} {
		for range 2 {
			if usual, has := h.usual([]byte(host)), h.has(host); usual != has {
				t.Errorf("%q: the fast lane says %v, the full lane %v", host, usual, has)
			}
		}
	}
	field := []byte("192.0.2.7:8080")
	h.usual(field)
	if n := testing.AllocsPerRun(100, func() { h.usual(field) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
