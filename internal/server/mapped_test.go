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

func post(url, body string) (status int, text string, err error) {
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
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
	if _, err := fmt.Fprintf(c, "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\x32%s%s", binary.AppendUvarint(nil, uint64(len(body))), body); err != nil {
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

// TestMapped checks the answers to payloads, exactly, and the rejections of those that were published.
func TestMapped(t *testing.T) {
	opt := withMappings(t)
	opt.MaxSingleBytes, opt.MaxReadings = 200, 3
	problem := func(status int, kind, title, more string) string {
		return fmt.Sprintf(`{"type":"https://github.com/pulsegate/pulsegate/blob/main/docs/problems.md#%s","title":"%s","status":%d%s}`, kind, title, status, more)
	}
	invalid := func(field, reason string) string {
		if field != "" {
			field = `,"field":"` + field + `"`
		}
		return problem(422, "invalid-reading", "The reading is not acceptable", field+`,"reason":"`+reason+`"`)
	}
	_, err := run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		const at = `"at":1790000000`
		for _, tt := range []struct {
			name, body string
			status     int
			want       string
		}{
			{"band", `{"id":"d","bpm":7250,` + at + `}`, 200, `{"status":"stored"}`},
			{"band", `{"id":"d","bpm":"7.25e3",` + at + `}`, 200, `{"status":"duplicate"}`},
			{"band", `{"id":"d","bpm":7300,` + at + `}`, 409, problem(409, "conflict", "The reading contradicts a stored one", `,"field":"heart_rate_bpm","reason":"contradicts the stored value"`)},
			{"band", `{"id":"d","bpm":72505,` + at + `,"x":1}`, 422, invalid("heart_rate_bpm", "outside the accepted range 20 to 300 /min")},
			{"band", `{"id":"d","bpm":7250.5,` + at + `}`, 422, invalid("heart_rate_bpm", "more than two decimals")},
			{"band", `{"id":"d","bpm":"?",` + at + `}`, 422, invalid("heart_rate_bpm", "neither a number nor a string with one")},
			{"band", `{"id":"d","bpm":7250}`, 422, invalid("time", "missing")},
			{"band", `{"id":"d","bpm":7250,"at":1790000000.0001}`, 422, invalid("time", "finer than a millisecond; times are not rounded")},
			{"band", `{"bpm":7250,` + at + `}`, 422, invalid("device", "missing")},
			{"band", `{"id":"a/b","bpm":7250,` + at + `}`, 422, invalid("device", "not a name of 1 to 64 bytes of A-Z a-z 0-9 . _ : -")},
			{"band", `{"id":"d",` + at + `}`, 422, invalid("", "no vital sign given")},
			{"band", `{"id":"d","bpm":7250,` + at + "}\n" + `{"id":"d","bpm":0,` + at + "}\n" + `{"id":"d","bpm":7301,` + at + `}`, 207,
				`{"stored":0,"duplicate":1,"rejected":[{"index":1,"field":"heart_rate_bpm","reason":"no signal"},{"index":2,"field":"heart_rate_bpm","reason":"contradicts the stored value"}]}`},
			{"band", "1 2 3 4", 413, problem(413, "too-large", "The body is too large", `,"detail":"A batch may have 3 readings."`)},
			{"band", `{"id":"d","bpm":7250,` + at + `,"x":"` + strings.Repeat("x", 200) + `"}`, 413, problem(413, "too-large", "The body is too large", `,"detail":"A reading may have 200 bytes."`)},
			{"band", `{"id":"d"`, 400, problem(400, "malformed-body", "The body is not valid", `,"detail":"byte 9: cut off"`)},
			{"band", `{"id":"d","id":"e"}`, 400, problem(400, "malformed-body", "The body is not valid", `,"detail":"byte 10: field name given twice"`)},
			{"strap", `{"id":"s","hr":"0448","at":1790000000000}`, 422, invalid("value", "no signal: the sensor has no contact with the skin")},
			{"strap", `{"id":"s","hr":"00","at":1790000000000}`, 422, invalid("value", "the characteristic is shorter than its flags say")},
			{"strap", `{"id":"s","hr":"004","at":1790000000000}`, 422, invalid("value", "not a characteristic in hex")},
			{"strap", `{"id":"s","hr":"0048","at":1790000000000}`, 200, `{"status":"stored"}`},
			{"none", `{}`, 404, problem(404, "not-found", "There is no resource at this address", `,"detail":"No mapping has this name: see serve --mapping."`)},
		} {
			status, text, err := post(url+"/v1/mapped/"+tt.name, tt.body)
			if err != nil {
				return err
			}
			if status != tt.status || strings.TrimSuffix(text, "\n") != tt.want {
				t.Errorf("%s %s:\n got %d %s\nwant %d %s", tt.name, tt.body, status, text, tt.status, tt.want)
			}
		}
		for _, payload := range []string{`{"bpm":0,` + at + `}`, `{"bpm":7250,` + at + `,"id":"other"}`, `{"hr":"secret"}`} {
			topic := "band"
			if strings.Contains(payload, "hr") {
				topic = "strap"
			}
			if err := publish(opt.MQTTAddr, topic+"/m", payload); err != nil {
				return err
			}
		}
		text, err := get(url + "/v1/rejections")
		for _, want := range []string{
			`"device":"m","field":"heart_rate_bpm","reason":"no signal"`,
			`"device":"m","field":"device","reason":"not the one of the topic or of the credentials"`,
			`"device":"m","field":"","reason":"not a characteristic in hex"`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("rejections %s, want %s", text, want)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMappingOptions checks the errors of --mapping.
func TestMappingOptions(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{`topic = "band/{device}"`, `topic = "{gateway}/{device}"`, ":3: topic: a topic may have this pattern and that of --mqtt-topic, pulsegate/{device}"},
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
