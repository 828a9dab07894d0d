package docs_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hapiWant is what HAPI HL7v2 prints with hl7client/Send.java.
const hapiWant = `AA
AA
AE; OBX-5 of 2: 207 spo2_pct: outside the accepted range 2 to 100 %
AE; OBX-5 of 2: 205 spo2_pct: contradicts the stored value
AR; MSH-9 of 1: 200 MSH-9: not ORU with the event R01
AA
`

// hapi runs HAPI HL7v2 against a server.
func hapi(t *testing.T, s *server, tls bool, options ...string) (out string, err error) {
	t.Helper()
	libraries := tool(t, "hapi_hl7v2_260")
	host, port, _ := net.SplitHostPort(s.mllp)
	source, err := filepath.Abs("hl7client/Send.java")
	try(t, err)
	args := append(options, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(libraries, "*"), source,
		host, port, strconv.FormatBool(tls), "mon-1")
	cmd := exec.Command("java", args...)
	cmd.Dir = t.TempDir() // HAPI writes a file
	cmd.Stderr = t.Output()
	text, err := cmd.Output()
	return string(text), err
}

// hapiStored returns the readings that it stores.
func hapiStored() string {
	line := func(second int, spo2 string) string {
		return fmt.Sprintf(
			`{"device":"mon-1","time":"2026-11-21T09:00:0%d.000Z","utc_offset_minutes":60,"systolic_mmhg":121,`+
				`"diastolic_mmhg":79.5%s}`+"\n", second, spo2)
	}
	return line(1, `,"spo2_pct":97.5`) + line(2, "") + line(3, `,"spo2_pct":98`)
}

// HAPI HL7v2 builds messages of PCD-01, sends them and reads the acknowledgements, with the segment and the field of
// what was rejected. A message that is sent again is acknowledged, and stored once.
func TestHL7Client(t *testing.T) {
	t.Parallel()
	s := serve(t, "--insecure", "--mllp-addr=127.0.0.1:0")
	if out, err := hapi(t, s, false); err != nil || out != hapiWant {
		t.Fatalf("HAPI prints\n%swant\n%s%v", out, hapiWant, err)
	}
	r := reader{url: s.url}
	if got, want := strings.ReplaceAll(r.stored(t, "mon-1"), `,"gateway":"gw-1"`, ""), hapiStored(); got != want {
		t.Errorf("stored\n%swant\n%s", got, want)
	}
}

// With TLS, HAPI's certificate names the gateway, whatever the messages say.
func TestHL7ClientTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificates(t, "test")
	bed, bedKey, _ := certificates(t, "bed-8")
	k := tokens{t.TempDir()}
	r := reader{token: k.create(t, "reader", "--rights=read")}
	s := serve(t, append(k.flags(), "--mllp-addr=127.0.0.1:0", "--tls-cert="+cert, "--tls-key="+key,
		"--tls-client-ca="+bed)...)
	trusted, own := filepath.Join(t.TempDir(), "trusted.p12"), filepath.Join(t.TempDir(), "own.p12")
	run(t, "", nil, "keytool", "-importcert", "-noprompt", "-keystore", trusted, "-storetype", "PKCS12", "-storepass",
		"secret", "-alias", "server", "-file", cert)
	run(t, "", nil, "openssl", "pkcs12", "-export", "-in", bed, "-inkey", bedKey, "-out", own, "-passout", "pass:secret")
	trust := []string{"-Djavax.net.ssl.trustStore=" + trusted, "-Djavax.net.ssl.trustStorePassword=secret"}
	if out, err := hapi(t, s, true, append(trust, "-Djavax.net.ssl.keyStore="+own,
		"-Djavax.net.ssl.keyStorePassword=secret")...); err != nil || out != hapiWant {
		t.Fatalf("HAPI prints\n%swant\n%s%v", out, hapiWant, err)
	}
	r.url = strings.Replace(s.url, "http:", "https:", 1)
	r.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	if text := r.get(t, "/v1/devices/mon-1/readings?format=ndjson"); strings.Count(text, `"gateway":"bed-8"`) != 3 {
		t.Errorf("stored %s, want 3 readings of bed-8", text)
	}
	if got, want := r.stored(t, "mon-1"), hapiStored(); got != want {
		t.Errorf("stored\n%swant\n%s", got, want)
	}
}

// docs/clients/hl7.py stores every reading once, though the server is killed while it sends, and prints what is
// rejected.
func TestHL7Script(t *testing.T) {
	t.Parallel()
	flags := []string{"--data=" + t.TempDir(), "--addr=" + freePort(t), "--mllp-addr=" + freePort(t)}
	s := serve(t, flags...)
	cmd := exec.Command("python3", root+"/docs/clients/hl7.py", "mllp://"+s.mllp)
	const n = 1500
	_, printed, err := killWhileSending(t, s, cmd, n,
		`{"device":"ppg-1","time":"2026-11-22T10:00:00+02:00","spo2_pct":300}`, flags...)
	want := fmt.Sprintf("rejected %d: AE spo2_pct: outside the accepted range 2 to 100 %%\nstored %d\n", n+1, n)
	if err == nil || err.Error() != "exit status 1" || printed != want {
		t.Errorf("the client prints %q, %v; want %q", printed, err, want)
	}
}

// The first commands of docs/hl7.md work.
func TestHL7Page(t *testing.T) {
	t.Parallel()
	s := serve(t, "--mllp-addr=127.0.0.1:0")
	_, commands, _ := strings.Cut(page(t, "docs/hl7.md"), "```sh\npulsegate serve --mllp-addr 127.0.0.1:2575\n")
	commands, _, found := strings.Cut(commands, "```")
	if !found {
		t.Fatal("the page begins with other commands")
	}
	commands = strings.NewReplacer("127.0.0.1:2575", s.mllp, "http://127.0.0.1:8080", s.url).Replace(commands)
	await(t, "the message is acknowledged, while curl waits for it, and stored", func() bool {
		out := run(t, "", nil, "sh", "-c", commands)
		return strings.Contains(out, "\nMSA|AA|1\n") && strings.Contains(out, `"heart_rate_bpm":{"value":72,`)
	})
}

// Bad input is answered as the table of docs/hl7.md says, and the other OBX of the message is stored unless the code is
// AR.
func TestHL7BadInput(t *testing.T) {
	t.Parallel()
	s := serve(t, "--insecure", "--mllp-addr=127.0.0.1:0")
	r := reader{url: s.url}
	for i, cells := range badInput(t, "docs/hl7.md", 6) {
		name, number, _ := strings.Cut(cells[0], "-")
		field, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%s: %v", cells, err)
		}
		first := fmt.Sprintf("OBX|1|NM|8867-4^^LN||71|/min|||||R|||20261121100000+0000||||first-%d", i)
		segments := []string{`MSH|^~\&|||||||ORU^R01^ORU_R01|7|P|2.6||||||`, "OBR|1", first,
			strings.Replace(first, "OBX|1|", "OBX|2|", 1)}
		change := 3
		if name == "MSH" {
			change, field = 0, field-1 // MSH-1 is the separator
		}
		fields := strings.Split(segments[change], "|")
		fields[field] = cells[1]
		segments[change] = strings.Join(fields, "|")
		segments[3] = strings.Replace(segments[3], fmt.Sprintf("first-%d", i), fmt.Sprintf("second-%d", i), 1)
		conn, err := net.Dial("tcp", s.mllp)
		try(t, err)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, "\v"+strings.Join(segments, "\r")+"\r\x1c\r"); err != nil {
			t.Fatal(err)
		}
		answer, err := bufio.NewReader(conn).ReadString('\x1c')
		_, msa, _ := strings.Cut(answer, "\rMSA|")
		want := fmt.Sprintf("%s|7\rERR||%s|%s^HL70357|E||||%s\r\x1c", cells[2], cells[3], cells[4], cells[5])
		if cells[0] == "MSH-10" {
			want = strings.Replace(want, "|7", "|", 1)
		}
		if err != nil || msa != want {
			t.Errorf("%s: %q, %v; want %q", cells, msa, err, want)
		}
		if got := r.get(t, fmt.Sprintf("/v1/devices/first-%d", i)); (got != "") != (cells[2] == "AE") {
			t.Errorf("%s: stored of the other OBX: %q", cells, got)
		}
	}
}
