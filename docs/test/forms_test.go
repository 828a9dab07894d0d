package docs_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Every reading that the simulator sends in a form of its own is valid, with all signs: none is rejected, and all are
// stored as they were sent.
func TestSimForms(t *testing.T) {
	t.Parallel()
	s := serve(t, "--insecure", "--mqtt-addr=127.0.0.1:0", "--mllp-addr=127.0.0.1:0",
		"--mapping="+root+"/examples/mappings/sim.toml")
	for name, form := range map[string]string{"JSON": "--influx=false", "mapped": "--mapped=sim", "lines": "--influx",
		"MQTT": "--mqtt=mqtt://" + s.mqtt, "HL7": "--mllp=mllp://" + s.mllp} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(program, "sim", "--target="+s.url, form, "--users=9", "--posts=40", "--batch=7",
				"--share=batch=0.5", "--verify",
				"--also=respiratory_rate_bpm,body_temperature_c,body_weight_kg,glucose_mg_dl,glucose_mmol_l,pulse_rate_bpm,inters"+
					"titial_glucose_mg_dl,interstitial_glucose_mmol_l").CombinedOutput()
			if err != nil || !strings.Contains(string(out), " rejected=0 failed=0 requests=360 ") ||
				!strings.Contains(string(out), " missing=0 altered=0 doubled=0 unknown=0 unsettled=0 ") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// The first commands of docs/mappings.md work.
func TestMappingsPage(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/mappings.md")
	_, commands, _ := strings.Cut(text, "```sh\n")
	test, commands, _ := strings.Cut(commands, "\n")
	start, _, _ := strings.Cut(commands, "\n")
	_, post, _ := strings.Cut(text, "```sh\ncurl ")
	post, _, found := strings.Cut(post, "```")
	args, ok := strings.CutPrefix(start, "pulsegate serve --mqtt-addr 127.0.0.1:1883 ")
	if !found || !ok {
		t.Fatalf("the page begins with other commands: %q, %q", test, start)
	}
	sh := func(command string) string {
		t.Helper()
		return run(t, root, nil, "sh", "-c", strings.ReplaceAll(command, "pulsegate ", program+" "))
	}
	// Two of the payloads would be rejected, as the page says, and the exit code is 3.
	if out := sh(test + " || [ $? = 3 ]"); !strings.Contains(out, `"device":"4C33A6603C79"`) ||
		!strings.Contains(out, "body_weight_kg: not in the unit of the mapping") {
		t.Errorf("%s prints\n%s", test, out)
	}
	args = strings.ReplaceAll(args, "examples/", root+"/examples/")
	s := serve(t, append(strings.Fields(args), "--insecure", "--mqtt-addr=127.0.0.1:0")...)
	if out := sh(strings.ReplaceAll("curl -s "+post, "http://127.0.0.1:8080", s.url)); !strings.Contains(out,
		`"status":"stored"`) && !strings.Contains(out, `"stored":`) {
		t.Errorf("curl prints\n%s", out)
	}
}
