package server_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/porttest"
)

// Options of MLLP that let anybody on other machines write, or nobody at all, are rejected.
func TestMLLPOptions(t *testing.T) {
	for _, tt := range []struct{ name, addr, tokens, ca, zone, want string }{
		{"this machine", "127.0.0.1:2575", "", "", "Europe/Berlin", ""},
		{"other machines", "0.0.0.0:2575", "", "", "",
			"--mllp-addr 0.0.0.0:2575 can be reached from other machines, and clients need no certificate: anybody " +
				"could write. " +
				"Listen on 127.0.0.1, name the CA of client certificates with --tls-client-ca, or add --insecure if something " +
				"else decides who gets in"},
		{"other machines with certificates", "0.0.0.0:2575", "", "ca.pem", "", ""},
		{"tokens only", "127.0.0.1:2575", "tokens", "", "",
			"--mllp-addr requires --tls-client-ca: MLLP has no tokens, so clients need a certificate"},
		{"tokens and certificates", "127.0.0.1:2575", "tokens", "ca.pem", "", ""},
		{"no port", "127.0.0.1", "", "", "",
			"--mllp-addr: address 127.0.0.1: missing port in address; did you mean 127.0.0.1:8080?"},
		{"a zone that is not known", "127.0.0.1:2575", "", "", "Mars/Olympus", "--mllp-zone: unknown time zone Mars/Olympus"},
		{"no address", "", "", "", "UTC", "--mllp-zone, --mllp-authority and --mllp-assign require --mllp-addr"},
	} {
		opt := options(t)
		opt.MLLPAddr, opt.Tokens, opt.TLSClientCA, opt.MLLPZone = tt.addr, tt.tokens, tt.ca, tt.zone
		if tt.ca != "" {
			opt.TLSCert, opt.TLSKey = "cert.pem", "key.pem"
		}
		opt.Fit(slog.New(slog.DiscardHandler))
		got := ""
		if err := opt.Check(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// With certificates, a client of MLLP needs one, and readings are of the gateway that it names. Clients of MQTT may
// name their protocol in the handshake.
func TestMLLPCertificates(t *testing.T) {
	ca, other := certtest.New("ca"), certtest.New("other")
	opt, dir := options(t), t.TempDir()
	ca.Server(1).Write(t, dir, "server")
	certtest.Write(t, filepath.Join(dir, "ca.pem"), ca.PEM)
	opt.TLSCert, opt.TLSKey, opt.TLSClientCA = filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key"),
		filepath.Join(dir, "ca.pem")
	opt.Audit = new(string)
	opt.MLLPAddr, opt.MQTTAddr = porttest.Addr(t), porttest.Addr(t)
	connect := func(addr, alpn string, pairs ...tls.Certificate) (*tls.Conn, error) {
		config := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", Certificates: pairs}
		if alpn != "" {
			config.NextProtos = []string{alpn}
		}
		return tls.Dial("tcp", addr, config)
	}
	log, err := run(t, opt, func(string) error {
		for _, tt := range []struct {
			name string
			pair []tls.Certificate
			want string
		}{
			{"certificate", []tls.Certificate{ca.Client("bed-7").TLS()}, "AA|1"},
			{"none", nil, "remote error: tls: certificate required"},
			// the client does not send it
			{"of another CA", []tls.Certificate{other.Client("bed-7").TLS()}, "remote error: tls: certificate required"},
		} {
			conn, err := connect(opt.MLLPAddr, "", tt.pair...)
			var got string
			if err == nil {
				got, err = exchange(conn, hl7Message("bed-8", "", "d", "20261121100000", 72))
				_ = conn.Close()
			}
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		conn, err := connect(opt.MQTTAddr, "mqtt")
		if err != nil {
			return fmt.Errorf("MQTT with ALPN: %w", err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != "mqtt" {
			t.Errorf("MQTT negotiates %q", got)
		}
		return conn.Close()
	})
	if err != nil {
		t.Errorf("%v\n%s", err, log)
	}
	opt.TLSCert, opt.TLSKey, opt.TLSClientCA, opt.MLLPAddr = "", "", "", ""
	_, err = run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		text, err := get(url + "/v1/devices/d/readings")
		if !strings.Contains(text, `"gateway":"bed-7"`) {
			t.Errorf("stored %s", text)
		}
		return err
	})
	try(t, err)
}

// With --mllp-assign, a device that is assigned to nobody is assigned to the patient in the message from its first
// reading on, and the audit log has it first. A contradiction is rejected, with and without.
func TestMLLPAssign(t *testing.T) {
	for _, assign := range []bool{false, true} {
		t.Run(fmt.Sprint(assign), func(t *testing.T) {
			opt := options(t)
			auditLog := filepath.Join(t.TempDir(), "audit")
			opt.MLLPAddr, opt.AdminAddr, opt.MLLPAssign, opt.Audit = porttest.Addr(t), porttest.Addr(t), assign, &auditLog
			opt.MLLPAuthority, opt.MLLPBack = "H", 366*24*time.Hour
			admin := "http://" + opt.AdminAddr
			assigned := func(device string) string {
				_, text, err := post(admin+"/admin/subject/list", fmt.Sprintf(`{"device":%q}`, device))
				if err != nil {
					t.Error(err)
				}
				return strings.TrimSpace(text)
			}
			const (
				none     = `{"assignments":[],"more":false}`
				conflict = "AE|1 PID-3: not the patient to whom the device was assigned at that time"
				noName   = "AE|1 PID-3: not 1 to 64 of A-Z, a-z, 0-9, hyphen and dot"
				unknown  = "AE|1 PID-3: no identifier of the assigning authority that --mllp-authority names"
			)
			_, err := run(t, opt, func(string) error {
				defer http.DefaultClient.CloseIdleConnections()
				if _, text, err := post(admin+"/admin/subject/assign",
					`{"device":"worn","subject":"P-1","from":"2026-11-21T10:00:00Z","to":"2026-11-21T11:00:00Z"}`); err != nil ||
					!strings.Contains(text, "P-1") {
					return fmt.Errorf("assign: %s %w", text, err)
				}
				conn, err := net.Dial("tcp", opt.MLLPAddr)
				if err != nil {
					return err
				}
				defer conn.Close()
				for _, tt := range []struct {
					name, patient, device, time, want string
				}{
					{"no patient", "", "new", "20261121100000", "AA|1"},
					{"a patient", "P-2", "new", "20261121100001", "AA|1"},
					{"again", "P-2", "new", "20261121100001", "AA|1"},
					{"later", "P-2", "new", "20261121100002", "AA|1"},
					{"another patient", "P-3", "new", "20261121100003", map[bool]string{false: "AA|1", true: conflict}[assign]},
					{"no name of a patient", "P 3", "new", "20261121100004", map[bool]string{false: "AA|1", true: noName}[assign]},
					{"no name of a patient, a device of nobody", "P 3", "other", "20261121100004",
						map[bool]string{false: "AA|1", true: noName}[assign]},
					{"no name of a patient, a device that somebody wears", "P 3", "worn", "20261121105957",
						map[bool]string{false: conflict, true: noName}[assign]},
					{"the same number of another authority", "P-1^^^I", "worn", "20261121105956", unknown},
					{"the same number of another authority, a device of nobody", "P-1^^^I", "other", "20261121105956",
						map[bool]string{false: "AA|1", true: unknown}[assign]},
					{"the patient who wears it", "P-1", "worn", "20261121105959", "AA|1"},
					{"not the patient who wears it", "P-2", "worn", "20261121105958", conflict},
					{"of nobody, before", "P-2", "worn", "20261121095959", "AA|1"},
					{"of nobody, after", "P-2", "worn", "20261121110000", "AA|1"},
				} {
					if tt.patient != "" && !strings.Contains(tt.patient, "^") {
						tt.patient += "^^^H"
					}
					answer, err := exchange(conn, hl7Message("", tt.patient, tt.device, tt.time, 72))
					if err != nil || answer != tt.want {
						t.Errorf("%s: %q, %v; want %q", tt.name, answer, err, tt.want)
					}
				}
				for device, want := range map[string]string{
					"new": `{"device":"new","subject":"P-2","from":"2026-11-21T10:00:01.000Z","by":"hl7"}`,
					"worn": `{"device":"worn","subject":"P-2","from":"2026-11-21T09:59:59.000Z","to":"2026-11-21T10:00:00.000Z",` +
						`"by":"hl7"},` +
						`{"device":"worn","subject":"P-1","from":"2026-11-21T10:00:00.000Z","to":"2026-11-21T11:00:00.000Z",` +
						`"by":"hand"},` +
						`{"device":"worn","subject":"P-2","from":"2026-11-21T11:00:00.000Z","by":"hl7"}`,
				} {
					if !assign {
						want = map[string]string{"new": "",
							"worn": `{"device":"worn","subject":"P-1","from":"2026-11-21T10:00:00.000Z","to":"2026-11-21T11:00:00.000Z",` +
								`"by":"hand"}`}[device]
					}
					if got := assigned(device); got != strings.Replace(none, "[]", "["+want+"]", 1) {
						t.Errorf("assignments of %s: %s, want %s", device, got, want)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for path, want := range map[string]int{auditLog: 0, auditLog + ".clients": map[bool]int{false: 0, true: 3}[assign]} {
				text, err := os.ReadFile(path)
				try(t, err)
				if n := strings.Count(string(text), `"actor":"hl7"`); n != want {
					t.Errorf("%d assignments in %s, want %d:\n%s", n, filepath.Base(path), want, text)
				}
			}
		})
	}
}

// A message that assigns more devices than a gateway may assign in a day assigns as many as it may, and is not
// acknowledged. The audit log of clients is shorter than the message, and that of operators has none of it. No device
// is assigned without a line, nor without a reading.
func TestMLLPAssignBudget(t *testing.T) {
	opt := options(t)
	auditLog := filepath.Join(t.TempDir(), "audit")
	opt.MLLPAddr, opt.AdminAddr, opt.MLLPAssign, opt.Audit, opt.MLLPBack = porttest.Addr(t), porttest.Addr(t), true,
		&auditLog, 366*24*time.Hour
	const most = 10_000
	var message strings.Builder
	message.WriteString(hl7Message("", "P-1", "d-0", "20261121100000", 72))
	for i := range most + 1000 {
		fmt.Fprintf(&message,
			"OBX|%d|NM|147842^MDC_ECG_HEART_RATE^MDC|1.0.0.%d|72|264864^MDC_DIM_BEAT_PER_MIN^MDC|||||R|||20261121100000+000"+
				"0||||d-%d\r", i+2, i, i+1)
	}
	log, err := run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		conn, err := net.Dial("tcp", opt.MLLPAddr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if answer, err := exchange(conn, message.String()); err == nil {
			t.Errorf("answer %s", answer)
		}
		// Another client has a budget of its own.
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		other, err := dialer.Dial("tcp", opt.MLLPAddr)
		if err != nil {
			return err
		}
		defer other.Close()
		if answer, err := exchange(other, hl7Message("", "P-2", "of-another", "20261121100000", 72)); err != nil ||
			!strings.HasPrefix(answer, "AA") {
			t.Errorf("another client: %s, %v", answer, err)
		}
		for device, want := range map[string]string{fmt.Sprint("d-", most-1): `"by":"hl7"`,
			fmt.Sprint("d-", most+500): `{"assignments":[]`} {
			if _, text, err := post("http://"+opt.AdminAddr+"/admin/subject/list", fmt.Sprintf(`{"device":%q}`, device)); err !=
				nil || !strings.Contains(text, want) {
				t.Errorf("%s: %s, %v, want %s", device, text, err, want)
			}
			text, err := get(url + "/v1/devices/" + device + "/readings")
			if stored := strings.Contains(text, "heart_rate_bpm"); stored != strings.Contains(want, "hl7") {
				t.Errorf("readings of %s: %s, %v", device, text, err)
			}
		}
		return nil
	})
	try(t, err)
	if !strings.Contains(log, "all the changes of assignments that it may make in a day") {
		t.Errorf("no warning in the log:\n%s", log)
	}
	clients, err := os.ReadFile(auditLog + ".clients")
	try(t, err)
	// A line or two more if the budget has grown meanwhile.
	if n := strings.Count(string(clients), "subject.assigned"); n < most || n > most+100 ||
		len(clients) > 4*message.Len() {
		t.Errorf("%d assignments in %d bytes of the log for a message of %d bytes", n, len(clients), message.Len())
	}
	operators, err := os.ReadFile(auditLog)
	try(t, err)
	if strings.Contains(string(operators), "subject.") || strings.Contains(string(clients), "change-failed") {
		t.Errorf("the log of operators has\n%s", operators)
	}
}

// hl7Message returns a message with a heart rate at a time in UTC.
func hl7Message(gateway, patient, device, time string, bpm int) string {
	return fmt.Sprintf("MSH|^~\\&|%s||||||ORU^R01^ORU_R01|1|P|2.6\rPID|||%s\rOBR|1||||||%s+0000\r"+
		"OBX|1|NM|147842^MDC_ECG_HEART_RATE^MDC||%d|264864^MDC_DIM_BEAT_PER_MIN^MDC|||||R|||||||%s\r", gateway, patient,
		time, bpm, device)
}

// exchange sends a message and returns MSA-1 and MSA-2 of the answer, and the text of the first ERR.
func exchange(conn net.Conn, message string) (answer string, err error) {
	if _, err := fmt.Fprintf(conn, "\x0b%s\x1c\r", message); err != nil {
		return "", err
	}
	in := bufio.NewReader(conn)
	text, err := in.ReadString('\x1c')
	if err != nil {
		return "", err
	}
	if _, err := in.Discard(1); err != nil {
		return "", err
	}
	_, text, found := strings.Cut(text, "\rMSA|")
	if !found {
		return "", errors.New("no MSA")
	}
	segments := strings.Split(text, "\r")
	if answer = segments[0]; strings.HasPrefix(segments[1], "ERR|") {
		answer += " " + segments[1][strings.LastIndex(segments[1], "|")+1:]
	}
	return answer, nil
}
