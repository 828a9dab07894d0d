package server_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

// An input sends a reading of a heart rate, at a fixed time.
type input struct {
	name                       string
	send                       func(url, device string, value int) (answer string, err error)
	stored, duplicate, refused string // how the answers begin
	full                       string // if the device is beyond --max-devices
}

// sender returns a function that posts a body and returns the status and the answer.
func sender(path string, body func(device string, value int) string) func(url, device string,
	value int) (string, error) {
	return func(url, device string, value int) (string, error) {
		resp, text, err := fetch("POST", url+path, body(device, value))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, text), err
	}
}

// inputs returns all inputs of a server with mappings.
func inputs(mqtt, mllp string) []input {
	line := func(device string, value int) string {
		return fmt.Sprintf("vitals,device=%s heart_rate_bpm=%di 1795255200123", device, value)
	}
	band := func(device string, value int) string {
		return fmt.Sprintf(`{"id":%q,"bpm":%d,"at":1795255200.123}`, device, 100*value)
	}
	strap := func(device string, value int) string {
		return fmt.Sprintf(`{"id":%q,"hr":"00%02x","at":1795255200123}`, device, value)
	}
	publish := func(root string, payload func(device string, value int) string) func(url, device string,
		value int) (string, error) {
		return func(_, device string, value int) (string, error) {
			conn, err := net.Dial("tcp", mqtt)
			if err != nil {
				return "", err
			}
			defer conn.Close()
			topic := root + "/" + device
			publish := fmt.Sprintf("\x00%c%s\x00\x01\x00%s", len(topic), topic, payload(device, value))
			if _, err := fmt.Fprintf(conn, "\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01a\x32%c%s", len(publish),
				publish); err != nil {
				return "", err
			}
			in := bufio.NewReader(conn)
			for { // skip the CONNACK
				packet := make([]byte, 2)
				if _, err := io.ReadFull(in, packet); err != nil {
					return "", err
				}
				body := make([]byte, packet[1])
				if _, err := io.ReadFull(in, body); err != nil {
					return "", err
				}
				switch {
				case packet[0] == 0xe0 && len(body) > 0:
					return fmt.Sprintf("DISCONNECT 0x%02x", body[0]), nil
				case packet[0] != 0x40:
				case len(body) == 2:
					return "PUBACK 0x00", nil
				default:
					return fmt.Sprintf("PUBACK 0x%02x", body[2]), nil
				}
			}
		}
	}
	order := func(_, device string, value int) (string, error) {
		conn, err := net.Dial("tcp", mllp)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn,
			"\x0bMSH|^~\\&|||||||ORU^R01^ORU_R01|1|P|2.6\rPID|||p-1\rOBR|1||||||20261121100000.123+0000\r"+
				"OBX|1|NM|147842^MDC_ECG_HEART_RATE^MDC||%d|264864^MDC_DIM_BEAT_PER_MIN^MDC|||||R|||||||%s\r\x1c\r", value,
			device); err != nil {
			return "", err
		}
		answer, err := bufio.NewReader(conn).ReadString('\x1c')
		_, msa, _ := strings.Cut(answer, "\rMSA|")
		return msa, err
	}
	return []input{
		{"JSON", sender("/v1/readings", func(device string, value int) string {
			return fmt.Sprintf(`{"device":%q,"time":1795255200123,"heart_rate_bpm":%d}`, device, value)
		}), `200 {"status":"stored"}`, `200 {"status":"duplicate"}`, "409 ", "503 "},
		{"Open mHealth", sender("/v1/omh", func(device string, value int) string {
			return fmt.Sprintf(
				`{"header":{"uuid":"2a5b0b21-1c4f-4f4f-9b6f-0f6f6d9d1b11","schema_id":{"namespace":"omh","name":"heart-rate",`+
					`"version":"2.0"},"source_creation_date_time":"2026-11-21T10:00:00Z",`+
					`"external_datasheets":[{"datasheet_reference":"urn:pulsegate:device:%s"}]},"body":{"heart_rate":{"value":%d,`+
					`"unit":"beats/min"},"effective_time_frame":{"date_time":"2026-11-21T10:00:00.123Z"}}}`, device, value)
		}), `200 {"status":"stored"}`, `200 {"status":"duplicate"}`, "409 ", "503 "},
		{"FHIR", sender("/fhir/Observation", func(device string, value int) string {
			return fmt.Sprintf(
				`{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org",`+
					`"code":"8867-4"}]},"effectiveDateTime":"2026-11-21T10:00:00.123Z",`+
					`"device":{"reference":"Device/%s"},"valueQuantity":{"value":%d,"system":"http://unitsofmeasure.org",`+
					`"code":"/min"}}`, device, value)
		}), "201 ", "200 ", "409 ", "503 "},
		{"InfluxDB 1", sender("/write?precision=ms", line), "204 ", "204 ", "400 ", "503 "},
		{"InfluxDB 2", sender("/api/v2/write?precision=ms", line), "204 ", "204 ", "400 ", "503 "},
		{"MQTT 5", publish("pulsegate", func(_ string, value int) string {
			return fmt.Sprintf(`{"time":1795255200123,"heart_rate_bpm":%d}`, value)
		}), "PUBACK 0x00", "PUBACK 0x00", "PUBACK 0x83", "DISCONNECT 0x89"},
		{"HL7 v2", order, "AA|1", "AA|1", "AE|1", ""},
		{"mapped", sender("/v1/mapped/band", band), `200 {"status":"stored"}`, `200 {"status":"duplicate"}`, "409 ", "503 "},
		{"mapped characteristic", sender("/v1/mapped/strap", strap), `200 {"status":"stored"}`, `200 {"status":"duplicate"}`,
			"409 ", "503 "},
		{"mapped, with MQTT 5", publish("band", band), "PUBACK 0x00", "PUBACK 0x00", "PUBACK 0x83", "DISCONNECT 0x89"},
		{"mapped characteristic, with MQTT 5", publish("strap", strap), "PUBACK 0x00", "PUBACK 0x00", "PUBACK 0x83",
			"DISCONNECT 0x89"},
	}
}

// A reading that arrives by two inputs is one reading: whichever is first, it is stored once, and by the second another
// value is rejected.
func TestOneReading(t *testing.T) {
	mqtt, mllp := porttest.Addr(t), porttest.Addr(t)
	inputs := inputs(mqtt, mllp)
	opt := withMappings(t)
	opt.MQTTAddr, opt.MLLPAddr, opt.AdminAddr = mqtt, mllp, porttest.Addr(t)
	assign := sender("/admin/subject/assign", func(device string, _ int) string {
		return fmt.Sprintf(`{"device":%q,"subject":"p-1","from":"2026-11-01T00:00:00Z"}`, device)
	})
	_, err := run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		for i, first := range inputs {
			for j, second := range inputs {
				device := fmt.Sprintf("d-%d-%d", i, j)
				// FHIR accepts only assigned devices
				if answer, err := assign("http://"+opt.AdminAddr, device, 0); err != nil || answer[0] != '2' {
					return fmt.Errorf("assign: %s %v", answer, err)
				}
				send := func(name string, input func(url, device string, value int) (string, error), value int, want string) {
					if got, err := input(url, device, value); err != nil || !strings.HasPrefix(got, want) {
						t.Errorf("%s, then %s: %s answers %s, %v; want %s", first.name, second.name, name, got, err, want)
					}
				}
				send(first.name, first.send, 72, first.stored)
				send(second.name, second.send, 72, second.duplicate)
				send(second.name, second.send, 73, second.refused)
				text, err := get(url + "/v1/devices/" + device + "/readings?format=csv")
				if lines := strings.Count(text, "\n"); err != nil || lines != 2 || !strings.Contains(text, ",72.0,") {
					t.Errorf("%s, then %s: stored\n%s%v", first.name, second.name, text, err)
				}
			}
		}
		return nil
	})
	try(t, err)
}

// A reading of a device beyond --max-devices is rejected for now by each input, so that none is lost: it is counted,
// and stored when there is room.
func TestTooManyDevices(t *testing.T) {
	opt := withMappings(t)
	opt.MQTTAddr, opt.MLLPAddr, opt.AdminAddr, opt.MaxDevices = porttest.Addr(t), porttest.Addr(t), porttest.Addr(t), 1
	inputs := inputs(opt.MQTTAddr, opt.MLLPAddr)
	send := func(url string, in *input, device, want string) {
		t.Helper()
		got, err := in.send(url, device, 72)
		if !strings.HasPrefix(got, want) || want == "" && (got != "" || err != io.EOF) || want != "" && err != nil {
			t.Errorf("%s: %s, %v; want %q", in.name, got, err, want)
		}
		if want == "503 " && !strings.Contains(got, "too-many-devices") &&
			!strings.Contains(got, "maximum number of devices") {
			t.Errorf("%s: %s does not say why", in.name, got)
		}
	}
	device := func(i int) string { return fmt.Sprintf("d-%d", i) }
	for _, full := range []bool{true, false} {
		_, err := run(t, opt, func(url string) error {
			defer http.DefaultClient.CloseIdleConnections()
			send(url, &inputs[0], "first", map[bool]string{true: inputs[0].stored, false: inputs[0].duplicate}[full])
			for i := range inputs {
				text := fmt.Sprintf(`{"device":%q,"subject":"p-1","from":"2026-11-01T00:00:00Z"}`, device(i))
				if resp, answer, err := fetch("POST", "http://"+opt.AdminAddr+"/admin/subject/assign", text); err != nil ||
					resp.StatusCode > 299 {
					return fmt.Errorf("assign: %s %w", answer, err)
				}
				if full {
					send(url, &inputs[i], device(i), inputs[i].full)
				} else {
					send(url, &inputs[i], device(i), inputs[i].stored)
				}
			}
			text, err := get("http://" + opt.AdminAddr + "/metrics")
			want := fmt.Sprintf("\npulsegate_readings_total{outcome=\"too_many_devices\"} %d\n",
				map[bool]int{true: len(inputs)}[full])
			if err == nil && !strings.Contains(text, want) {
				t.Errorf("full %v: the metrics lack %s", full, want)
			}
			return err
		})
		try(t, err)
		opt.MaxDevices = 1000
	}
}

// A token in the query of an InfluxDB client is written nowhere: neither into the log, with all requests in it, nor
// into spans or the audit log.
func TestTokenInQuery(t *testing.T) {
	files := gatetest.New(t)
	secret := strings.TrimPrefix(files.Token(t, "bed-7", "", token.Token{Rights: token.Write}), "Bearer ")
	var spans strings.Builder
	collector := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(&spans, r.Body)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	served := make(chan error, 1)
	go func() { served <- collector.Serve(listener) }()
	opt := options(t)
	auditLog := filepath.Join(t.TempDir(), "audit")
	opt.Tokens, opt.Audit = files.Tokens, &auditLog
	opt.AccessLog = "all"
	opt.OTLPEndpoint, opt.TraceSample = "http://"+listener.Addr().String(), 1
	log, err := run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		for _, tt := range []struct {
			query, body string
			status      int
		}{
			{"u=bed-7&p=" + secret, "v,device=d heart_rate_bpm=72 1795255200000000000", 204},
			{"u=bed-7&p=" + secret, "v,device=d heart_rate_bpm=0 1795255200000000000", 400},
			{"precision=x&p=" + secret, "v,device=d heart_rate_bpm=72 1795255200000000000", 400},
			{"%&p=" + secret, "v", 400},
			{"p=" + secret + "0", "v", 401},
			{"p=" + base64.StdEncoding.EncodeToString([]byte(secret)), "v", 401},
		} {
			for _, path := range []string{"/write", "/api/v2/write"} {
				resp, text, err := fetch("POST", url+path+"?"+tt.query, tt.body, field("Content-Type", "text/plain"))
				if err != nil {
					return err
				}
				if resp.StatusCode != tt.status || strings.Contains(text, secret) {
					t.Errorf("%s: %s %s, want %d", path, resp.Status, text, tt.status)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := collector.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-served
	audit, err := os.ReadFile(auditLog)
	if err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"log": log, "spans": spans.String(), "audit log": string(audit)} {
		if strings.Contains(text, secret) || len(text) == 0 ||
			name != "audit log" && !strings.Contains(text, "/api/v2/write") {
			t.Errorf("the %s has %d bytes, with the token: %t", name, len(text), strings.Contains(text, secret))
		}
	}
}
