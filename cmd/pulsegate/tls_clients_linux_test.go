package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tlsClients are clients with other TLS implementations, each a shell script that posts two
// readings of the device $1 on one connection, with TLS of the version $2, to the address in
// $ADDR. They print the bodies of both answers.
var tlsClients = []struct{ program, script string }{
	{"openssl", `
		post() { body="{\"device\":\"$1\",\"time\":$2,\"spo2_pct\":97}"; printf 'POST /v1/readings HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%s' "$3" ${#body} "$body"; }
		case $2 in 1.2) v=-tls1_2;; 1.3) v=-tls1_3;; esac
		{ post $1 1000; post $1 2000 'Connection: close\r\n'; } | openssl s_client -quiet -verify_return_error -CAfile $CA -servername localhost $v -connect $ADDR 2>/dev/null`},
	{"curl", `
		curl -s --http1.1 --tlsv$2 --tls-max $2 --cacert $CA -d "{\"device\":\"$1\",\"time\":1000,\"spo2_pct\":97}" https://$ADDR/v1/readings --next \
			-s --http1.1 --tlsv$2 --tls-max $2 --cacert $CA -d "{\"device\":\"$1\",\"time\":2000,\"spo2_pct\":97}" https://$ADDR/v1/readings`},
	{"python3", `python3 -c '
import http.client, json, os, ssl, sys
context = ssl.create_default_context(cafile=os.environ["CA"])
version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[sys.argv[2]]
context.minimum_version = context.maximum_version = version
client = http.client.HTTPSConnection(os.environ["ADDR"], context=context, timeout=60)
for time in 1000, 2000:
    client.request("POST", "/v1/readings", json.dumps({"device": sys.argv[1], "time": time, "spo2_pct": 97}), {"Content-Type": "application/json"})
    print(client.getresponse().read().decode())
' $1 $2`},
	{"node", `node -e '
const https = require("https"), fs = require("fs"), [, device, version] = process.argv;
const [host, port] = process.env.ADDR.split(":");
const agent = new https.Agent({keepAlive: true, maxSockets: 1, ca: fs.readFileSync(process.env.CA), minVersion: "TLSv" + version, maxVersion: "TLSv" + version});
const post = (time, next) => {
  const body = JSON.stringify({device, time, spo2_pct: 97});
  const headers = {"Content-Type": "application/json", "Content-Length": Buffer.byteLength(body)};
  const request = https.request({host, port, agent, path: "/v1/readings", method: "POST", headers}, answer => {
    answer.on("data", data => console.log(data.toString()));
    answer.on("end", next);
  });
  request.end(body);
};
post(1000, () => post(2000, () => agent.destroy()));
' $1 $2`},
}

// Other TLS clients post readings over TLS 1.2 and 1.3, in the fast lane.
func TestTLSClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificates(t, dir)
	p := start(t, program(t), filepath.Join(dir, "data"), append(certified(dir), "--admin-addr=127.0.0.1:0")...)
	for _, client := range tlsClients {
		for _, version := range []string{"1.2", "1.3"} {
			t.Run(client.program+" "+version, func(t *testing.T) {
				if _, err := exec.LookPath(client.program); err != nil {
					unable(t, "%s is not installed", client.program)
				}
				before := inFastLane(t, p, version)
				cmd := exec.CommandContext(t.Context(), "sh", "-c", client.script, "sh", client.program+"-"+version, version)
				cmd.Env = append(os.Environ(), "ADDR="+p.addr, "CA="+filepath.Join(dir, "ca.pem"))
				text, err := cmd.CombinedOutput()
				if n := strings.Count(string(text), `{"status":"stored"}`); err != nil || n != 2 {
					t.Fatalf("%v, %d readings are stored, want 2:\n%s", err, n, text)
				}
				if n := inFastLane(t, p, version) - before; n != 2 {
					t.Errorf("%d requests in the fast lane, want 2", n)
				}
			})
		}
	}
}

// inFastLane returns how many requests the fast lane has answered over a version of TLS.
func inFastLane(t *testing.T, p *process, version string) int {
	t.Helper()
	return metric(t, p, fmt.Sprintf("pulsegate_http_lane_requests_total{lane=\"fast\",tls=%q}", version))
}
