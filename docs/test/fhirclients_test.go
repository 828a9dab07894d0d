package docs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFHIRClients lets two clients of FHIR that others wrote read a patient's heart rates, page by
// page, with a token for that patient, and compares what they get with what was stored.
func TestFHIRClients(t *testing.T) {
	tools, err := filepath.Abs(filepath.Join(root, "bin/tools"))
	try(t, err)
	for _, name := range []string{"fhir_python", "fhir_node"} {
		if _, err := os.Stat(filepath.Join(tools, name)); err != nil {
			missing(t, "%v: run make setup", err)
		}
	}
	k := tokens{t.TempDir()}
	admin, patients := k.create(t, "ward", "--rights=read,write,admin"),
		k.create(t, "ehr", "--rights=read", "--subject=P-17")
	s := serve(t, k.flags()...)
	assign := func(subject, from string, more ...string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "token")
		try(t, os.WriteFile(file, []byte(admin), 0o600))
		args := append([]string{"subject", "assign", "--target", s.admin, "--token-file", file, "--device", "ppg_1",
			"--subject", subject, "--from", from}, more...)
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.FixedZone("", 3600))
	const format = "2006-01-02T15:04:05.000Z07:00"
	assign("P-16", start.Add(-time.Hour).Format(format), "--to", start.Format(format))
	assign("P-17", start.Format(format))
	var body strings.Builder
	var want []string
	for i := range 100 {
		at := start.Add(time.Duration(i-1) * time.Minute)
		value := fmt.Sprintf("%d.%d", 60+i%7, 1+i%9)
		if i == 0 {
			at = start.Add(-time.Millisecond) // of P-16
		} else {
			want = append(want, at.Format(format)+" "+value)
		}
		fmt.Fprintf(&body, `{"device":"ppg_1","time":%q,"heart_rate_bpm":%s,"spo2_pct":97}`+"\n", at.Format(format), value)
	}
	post, err := http.NewRequest("POST", s.url+"/v1/readings", strings.NewReader(body.String()))
	try(t, err)
	post.Header.Set("Authorization", "Bearer "+admin)
	post.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(post)
	try(t, err)
	defer resp.Body.Close()
	var counts struct{ Stored int }
	if err := json.NewDecoder(resp.Body).Decode(&counts); err != nil || counts.Stored != 100 {
		t.Fatalf("%s: %+v %v", resp.Status, counts, err)
	}
	for name, command := range map[string]func() *exec.Cmd{
		"fhirpy": func() *exec.Cmd {
			cmd := exec.Command("python3", "fhirclients/client.py", s.url+"/fhir", "P-17")
			cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(tools, "fhir_python"))
			return cmd
		},
		"fhir-kit-client": func() *exec.Cmd {
			// Node.js looks for packages beside the file.
			dir := t.TempDir()
			text, err := os.ReadFile("fhirclients/client.mjs")
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "client.mjs"), text, 0o600)
			}
			if err == nil {
				err = os.Symlink(filepath.Join(tools, "fhir_node/node_modules"), filepath.Join(dir, "node_modules"))
			}
			try(t, err)
			cmd := exec.Command("node", filepath.Join(dir, "client.mjs"), s.url+"/fhir", "P-17")
			cmd.Env = os.Environ()
			return cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.Env = append(cmd.Env, "PULSEGATE_TOKEN="+patients)
			cmd.Stderr = t.Output()
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := got[len(got)-1]; last != "pages 3" {
				t.Errorf("the last line is %q, want pages 3", last)
			}
			got = got[:len(got)-1]
			for i := range got {
				_, got[i], _ = strings.Cut(got[i], " ") // the id
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestFHIRClientsWrite lets two clients of FHIR in Python store Observations twice: as an object that they save again,
// and as another one that is equal. A client that may only write does so, too.
func TestFHIRClientsWrite(t *testing.T) {
	packages, err := filepath.Abs(filepath.Join(root, "bin/tools/fhir_python"))
	try(t, err)
	if _, err := os.Stat(filepath.Join(packages, "fhirclient")); err != nil {
		missing(t, "%v: run make setup", err)
	}
	k := tokens{t.TempDir()}
	admin, writer := k.create(t, "ward", "--rights=read,write,admin"), k.create(t, "gateway")
	s := serve(t, k.flags()...)
	file := filepath.Join(t.TempDir(), "token")
	try(t, os.WriteFile(file, []byte(admin), 0o600))
	args := []string{"subject", "assign", "--target", s.admin, "--token-file", file, "--subject", "P-17", "--from",
		"2026-11-21T00:00:00Z", "--device"}
	for _, client := range []string{"fhirpy", "fhirclient"} {
		for right, token := range map[string]string{"both": admin, "write": writer} {
			t.Run(client+" "+right, func(t *testing.T) {
				device := client + "-" + right
				if out, err := exec.Command(program, append(args, device)...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				cmd := exec.Command("python3", "fhirclients/write.py", client, s.url+"/fhir", device)
				cmd.Env = append(os.Environ(), "PULSEGATE_TOKEN="+token, "PYTHONPATH="+packages)
				cmd.Stderr = t.Output()
				out, err := cmd.Output()
				if want := "hr-mwq6g800-" + device + "\nhr-mwq6hiao-" + device + "\n"; err != nil || string(out) != want {
					t.Errorf("%v: got %s, want %s", err, out, want)
				}
			})
		}
	}
}

// TestSMARTFetch lets SMART's own client export everything, and then what has changed since: a reading that came late,
// one that was completed, and a device that was erased with the only patient who wore it.
func TestSMARTFetch(t *testing.T) {
	env := []string{"PYTHONPATH=" + tool(t, "fhir_python") + ":" + tool(t, "python"), "COLUMNS=200"}
	k := tokens{t.TempDir()}
	dir := t.TempDir()
	admin, reader := filepath.Join(dir, "admin"), filepath.Join(dir, "reader")
	token := k.create(t, "ward", "--rights=read,write,admin")
	try(t, os.WriteFile(admin, []byte(token), 0o600))
	try(t, os.WriteFile(reader, []byte(k.create(t, "ehr", "--rights=read")), 0o600))
	s := serve(t, k.flags()...)
	send := func(lines string) {
		t.Helper()
		post, err := http.NewRequest("POST", s.url+"/v1/readings", strings.NewReader(lines))
		try(t, err)
		post.Header.Set("Authorization", "Bearer "+token)
		post.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := http.DefaultClient.Do(post)
		try(t, err)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	operate := func(args ...string) {
		t.Helper()
		run(t, "", nil, program, append(args, "--target", s.admin, "--token-file", admin)...)
	}
	// export returns the lines of the files, by their names, and the time for the next one.
	export := func(flags ...string) (lines map[string][]string, since string) {
		t.Helper()
		out := t.TempDir()
		args := []string{
			"-m", "smart_fetch.cli.main", "bulk", out, "--fhir-url", s.url + "/fhir", "--bearer-token", reader,
			"--no-compression",
		}
		t.Log(run(t, "", env, "python3", append(args, flags...)...))
		lines = map[string][]string{}
		try(t, filepath.WalkDir(out, func(path string, d os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".ndjson" {
				return err
			}
			text, err := os.ReadFile(path)
			name, _, _ := strings.Cut(d.Name(), ".")
			lines[name] = strings.Split(strings.TrimSpace(string(text)), "\n")
			return err
		}))
		log := strings.Join(lines["log"], "\n")
		_, rest, _ := strings.Cut(log, `"transactionTime": "`)
		since, _, _ = strings.Cut(rest, `"`)
		delete(lines, "log")
		return lines, since
	}
	check := func(lines map[string][]string, want map[string][]string) {
		t.Helper()
		for name, parts := range want {
			got := lines[name]
			ok := len(got) == len(parts)
			for i := range min(len(got), len(parts)) {
				ok = ok && strings.Contains(got[i], parts[i])
			}
			if !ok {
				t.Errorf("%s has\n%s\nwant lines with %q", name, strings.Join(got, "\n"), parts)
			}
		}
		if len(lines) != len(want) {
			t.Errorf("%d files, want %d", len(lines), len(want))
		}
	}
	send(`{"device":"ppg_1","time":"2026-11-21T10:00:00Z","heart_rate_bpm":60}`)
	send(`{"device":"cuff","time":"2026-11-21T10:00:00Z","systolic_mmhg":120,"diastolic_mmhg":80}`)
	operate("subject", "assign", "--device", "ppg_1", "--subject", "P-17", "--from", "2026-11-21T00:00:00Z")
	operate("subject", "assign", "--device", "cuff", "--subject", "P-18", "--from", "2026-11-21T00:00:00Z")
	lines, since := export()
	check(lines, map[string][]string{
		"Patient": {"P-18", "P-17"}, "Device": {`"cuff"`, `"ppg.u1"`},
		"Observation": {`"id":"bp-mwq8lds0-cuff"`, `"id":"hr-mwq8lds0-ppg.u1"`},
	})
	send(`{"device":"ppg_1","time":"2026-11-21T09:00:00Z","heart_rate_bpm":61}`)
	send(`{"device":"ppg_1","time":"2026-11-21T10:00:00Z","spo2_pct":97}`)
	operate("erase", "--yes", "--device", "cuff")
	lines, _ = export("--since", since, "--since-mode", "updated")
	check(lines, map[string][]string{
		"Patient": {"P-17"}, "Device": {`"ppg.u1"`},
		"Observation": {`"id":"hr-mwq6g800-ppg.u1"`, `"id":"spo2-mwq8lds0-ppg.u1"`, `"id":"hr-mwq8lds0-ppg.u1"`},
		"Bundle":      {`"DELETE","url":"Device/cuff"}},{"request":{"method":"DELETE","url":"Patient/P-18"`},

		"OperationOutcome": {`"diagnostics":"Observation?device=Device/cuff"`},
	})
}
