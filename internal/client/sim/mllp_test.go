package sim_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/client/sim"
	"github.com/pulsegate/pulsegate/vitals"
)

// Only an ACK of the message that was sent, with a documented code and ERR segments that fit it, is a documented
// answer. After AE, some readings may be stored.
func TestAcks(t *testing.T) {
	const header = "\vMSH|^~\\&|Pulsegate||gw-000000||20261126120000.000+0000||ACK^R01^ACK|7|P|2.6\r"
	for _, tt := range []struct{ name, text, want string }{
		{"stored", header + "MSA|AA|7\r\x1c\r", "accepted 3"},
		{"rejected in part", header + "MSA|AE|7\rERR||OBX^1^5|103|E\r\x1c\r", "refused whole, perhaps in part: AE"},
		{"rejected", header + "MSA|AR|7\rERR||MSH^1^9|200|E\r\x1c\r", "refused whole: AR"},
		{"AA with a rejection", header + "MSA|AA|7\rERR||OBX^1^5|103|E\r\x1c\r", "undocumented"},
		{"AE without a reason", header + "MSA|AE|7\r\x1c\r", "undocumented"},
		{"another code", header + "MSA|CA|7\r\x1c\r", "undocumented"},
		{"another message", header + "MSA|AA|8\r\x1c\r", "undocumented"},
		{"no MSA", header + "\x1c\r", "undocumented"},
		{"no ACK", "\vMSH|^~\\&|Pulsegate||gw-000000||20261126120000||ORU^R01|7|P|2.6\rMSA|AA|7\r\x1c\r", "undocumented"},
		{"nothing", "", "EOF"},
		{"cut off", header + "MSA|AA|7\r", "EOF"},
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n", "the answer is not MLLP: it does not begin with a start block"},
		{"no CR after the end block", header + "MSA|AA|7\r\x1c\n", "the answer is not MLLP: the end block has no CR"},
		{"two answers", strings.Repeat(header+"MSA|AA|7\r\x1c\r", 2),
			"the answer is not MLLP: more than one answer to a message"},
		{"endless", "\v" + strings.Repeat("x", 9<<20), "the answer is not MLLP: the answer is larger than 8 MiB"},
	} {
		if got := sim.JudgeAck(tt.text, 7, 3); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A load over MLLP excludes other protocols, needs a code for each sign, and a URL of a listener on this machine.
func TestMLLPOptions(t *testing.T) {
	resolve := func(url string) (*sim.Target, error) { return sim.ResolveListener(t.Context(), "mllp", url, false) }
	target, err := resolve("mllps://127.0.0.1:2575")
	if err != nil || !target.TLS() || target.Remote() {
		t.Fatalf("%v, %v", target, err)
	}
	for _, url := range []string{"mllp://127.0.0.1", "http://127.0.0.1:2575", "mllp://name@127.0.0.1:2575",
		"mllp://127.0.0.1:2575/x", "mllp://:2575"} {
		if _, err := resolve(url); !errors.Is(err, sim.ErrListener) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := resolve("mllp://" + net.IPv4(192, 0, 2, 1).String() + ":2575"); err != sim.ErrRemote {
		t.Errorf("another machine: %v", err)
	}
	sign := vitals.Definition{Field: "fev1_l", Label: "FEV1", Unit: "L", Decimals: 3,
		Accepted: vitals.Range{Min: 50, Max: 12_000}}
	for _, tt := range []struct {
		opt  sim.Options
		want string
	}{
		{sim.Options{}, ""},
		{sim.Options{Influx: true}, "invalid options: --mqtt, --mllp, --influx and --mapped exclude each other"},
		{sim.Options{Mapped: "band"}, "invalid options: --mqtt, --mllp, --influx and --mapped exclude each other"},
		{sim.Options{Signs: vitals.NewSigns(sign)}, "invalid options: --mllp: the sign fev1_l has no LOINC code"},
	} {
		opt := tt.opt
		opt.Target, opt.MLLP, opt.Users, opt.Posts = target, target, 1, 1
		got := ""
		if err := opt.Prepare(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.opt, got, tt.want)
		}
	}
}
