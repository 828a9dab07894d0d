package main

import (
	"strings"
	"testing"
)

// TestMQTT runs one short round and writes the results.
func TestMQTT(t *testing.T) {
	_, text := runResults(t, []string{"mqtt"}, "mqtt", "--rounds=1", "--warm-up=0s", "--seconds=1", "--connections=20", "--idle=50", "--idle-wait=100ms", "--programs="+built(t))
	for _, want := range []string{"make bench-mqtt ROUNDS=1 SECONDS=1", "\n| **MQTT**: ", "\n| **HTTP over TLS**: ", "\n| CPU of MQTT / that of HTTP | ", "\n| heap of an idle connection of MQTT, bytes | "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
