package server_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/porttest"
	"github.com/pulsegate/pulsegate/internal/server"
)

// mappings are those of the tests below.
const mappings = `[[mapping]]
name = "band"
topic = "band/{device}"
device = "/id"
time = "/at"
time_format = "unix_s"
signs.heart_rate_bpm = { at = "/bpm", factor = 0.01 }
[[mapping]]
name = "strap"
topic = "strap/{device}"
device = "/id"
time = "/at"
time_format = "unix_ms"
decode = "gatt"
characteristic = "2A37"
value = "/hr"
signs.heart_rate_bpm.at = "heart_rate"
`

// withMappings returns the options of a server that has these mappings.
func withMappings(t *testing.T) *server.Options {
	t.Helper()
	opt := options(t)
	opt.MQTTAddr = porttest.Addr(t)
	file := filepath.Join(t.TempDir(), "mappings.toml")
	try(t, os.WriteFile(file, []byte(mappings), 0o600))
	opt.Mapping = []string{file}
	return opt
}

// fetch sends a request and returns the response and its body, which is closed.
func fetch(method, url, body string, edits ...func(*http.Request)) (*http.Response, string, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for _, edit := range edits {
		edit(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func post(url, body string) (status int, text string, err error) {
	resp, text, err := fetch("POST", url, body, field("Content-Type", "application/json"))
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, text, nil
}

func get(url string) (string, error) {
	_, text, err := fetch("GET", url, "")
	return text, err
}

// publish publishes with MQTT 3.1.1 and QoS 1.
func publish(addr, topic, payload string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(polltest.Patience)); err != nil {
		return err
	}
	body := fmt.Sprintf("\x00%c%s\x00\x01%s", len(topic), topic, payload)
	if _, err := fmt.Fprintf(c, "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\x32%s%s",
		binary.AppendUvarint(nil, uint64(len(body))), body); err != nil {
		return err
	}
	var answer [8]byte // CONNACK and PUBACK
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	if answer != [8]byte{0x20, 2, 0, 0, 0x40, 2, 0, 1} {
		return fmt.Errorf("answered % x", answer)
	}
	return nil
}

// TestMappingOptions checks the errors of --mapping.
func TestMappingOptions(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`topic = "band/{device}"`, `topic = "{gateway}/{device}"`,
			":3: topic: a topic may have this pattern and that of --mqtt-topic, pulsegate/{device}"},
		{`device = "/id"`, `device = "id"`, `:4: device: not a JSON pointer`},
		{`name = "band"`, `name = "band"` + "\nkey = 1", ":3: key: unknown key"},
	} {
		opt := withMappings(t)
		opt.Fit(slog.New(slog.DiscardHandler))
		try(t, os.WriteFile(opt.Mapping[0], []byte(strings.Replace(mappings, tt.old, tt.new, 1)), 0o600))
		if err := opt.Check(); err == nil || !strings.HasPrefix(err.Error(), "--mapping: "+opt.Mapping[0]+tt.want) {
			t.Errorf("%s: got %v, want %s", tt.new, err, tt.want)
		}
	}
}
