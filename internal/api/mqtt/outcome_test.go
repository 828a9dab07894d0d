package mqtt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/rejections"
)

// rejected returns what was listed since the last call, oldest first.
func (s *server) rejected() (all []string) {
	newest, total := s.list.Newest(rejections.Max, func(*rejections.Rejection) bool { return true })
	for _, r := range slices.Backward(newest[:total-s.listed]) {
		all = append(all, strings.Join([]string{r.Input, r.Gateway.String(), r.Device.String(), r.Field, r.Reason}, "|"))
	}
	s.listed = total
	return all
}

// An outcome is what becomes of a publication.
type outcome struct {
	name, topic, payload string // $T is a time that no other publication has, $S the time of a stored reading
	want                 string // code and reason of version 5
	stored               int
	listed               []string // after the input
}

// TestOutcomes checks what becomes of a publication, with each version and QoS: what is acknowledged,
// stored and listed.
func TestOutcomes(t *testing.T) {
	const d = "pulsegate/ppg-1"
	const secret = "4711"
	table := []outcome{
		{"stored", d, `{"time":$T,"spo2_pct":97}`, "", 1, nil},
		{"named again", d, `{"device":"ppg-1","time":$T,"spo2_pct":97}`, "", 1, nil},
		{"null after a byte order mark", d, "\ufeff" + `{"time":$T,"spo2_pct":97,"heart_rate_bpm":null,"device":null}`,
			"", 1, nil},
		{"only null", d, `{"time":$T,"spo2_pct":null}`, "0x99 no vital sign given", 0,
			[]string{"|ppg-1||no vital sign given"}},
		{"a batch", d, `[{"time":$T,"spo2_pct":97},{"time":$T1,"spo2_pct":97}]`, "", 2, nil},
		{"NDJSON", d, `{"time":$T,"spo2_pct":97}` + "\n" + `{"time":$T1,"spo2_pct":97}`, "", 2, nil},
		{"an empty batch", d, `[]`, "", 0, nil},
		{"a duplicate", d, `{"time":$S,"spo2_pct":97}`, "", 0, nil},
		{"completing", d, `{"time":$S,"heart_rate_bpm":$H}`, "", -1, nil}, // stored the first time
		{"conflict", d, `{"time":$S,"spo2_pct":90}`, "0x83 spo2_pct: contradicts the stored value", 0,
			[]string{"|ppg-1|spo2_pct|contradicts the stored value"}},
		{"invalid", d, `{"time":$T,"spo2_pct":0}`, "0x99 spo2_pct: no signal", 0, []string{"|ppg-1|spo2_pct|no signal"}},
		{"no time", d, `{"spo2_pct":97}`, "0x99 time: missing", 0, []string{"|ppg-1|time|missing"}},
		{"no sign", d, `{"time":$T}`, "0x99 no vital sign given", 0, []string{"|ppg-1||no vital sign given"}},
		{"an unknown field", d, `{"time":$T,"x-` + secret + `":` + secret + `}`, "0x99 x-4711: unknown field", 0,
			[]string{"|ppg-1||unknown field"}},
		{"an unknown field with U+0000", d, `{"time":$T,"a\u0000b":1}`, "0x99 unknown field", 0,
			[]string{"|ppg-1||unknown field"}},
		{"malformed", d, `{"time":` + secret + `;}`, "0x99 byte 12: not JSON", 0, []string{"|ppg-1||The body is not valid"}},
		{"nothing", d, ``, "0x99 byte 0: empty body", 0, []string{"|ppg-1||The body is not valid"}},
		{"binary", d, "\x00\xff", "0x99 byte 0: not JSON", 0, []string{"|ppg-1||The body is not valid"}},
		{"another topic", "other/ppg-1", `{"time":$T,"spo2_pct":97}`, "0x90 topic: not the configured topic", 0,
			[]string{"||topic|not the configured topic"}},
		{"a longer topic", d + "/x", `{"time":$T,"spo2_pct":97}`, "0x90 topic: not the configured topic", 0,
			[]string{"||topic|not the configured topic"}},
		{"no device in the topic", "pulsegate/", `{"device":"ppg-1","time":$T,"spo2_pct":97}`,
			"0x90 topic: not the configured topic", 0, []string{"||topic|not the configured topic"}},
		{"no name in the topic", "pulsegate/a b", `{"time":$T,"spo2_pct":97}`, "0x90 topic: not the configured topic", 0,
			[]string{"||topic|not the configured topic"}},
		{"another device", d, `{"device":"ppg-2","time":$T,"spo2_pct":97}`,
			"0x99 device: not the one of the topic or of the credentials", 0,
			[]string{"|ppg-1|device|not the one of the topic or of the credentials"}},
		{"some of a batch", d, `[{"time":$T,"spo2_pct":0},{"time":$T1,"spo2_pct":97},{"time":$S,"spo2_pct":90},7]`,
			"0x99 reading 0: spo2_pct: no signal; 3 readings were rejected", 1,
			[]string{"|ppg-1|spo2_pct|no signal", "|ppg-1|spo2_pct|contradicts the stored value", "|ppg-1||not a JSON object"}},
		{"a long reading", d, `{"time":$T,"spo2_pct":97` + strings.Repeat(" ", 20_000) + `}`,
			"0x99 A reading may have 16384 bytes.", 0, []string{"|ppg-1||The body is too large"}},
	}
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{})
		ms := 1000
		for _, version := range []byte{4, 5} {
			c := s.connect(t, version)
			for qos := range byte(3) {
				for _, tt := range table {
					same := ms
					c.send(publish(version, 1, 1, d, reading(same)))
					c.want("PUBACK 1")
					ms += 2
					s.store.take()
					payload := strings.NewReplacer("$T1", fmt.Sprint(ms+1), "$T", fmt.Sprint(ms), "$S", fmt.Sprint(same), "$H", "72").
						Replace(tt.payload)
					ms += 2
					// The next acknowledgement shows that one with QoS 0 is settled.
					c.send(publish(version, qos, 7, tt.topic, payload), publish(version, 1, 8, d, "[]"))
					if qos > 0 {
						want := fmt.Sprintf("%s 7 %s", []string{"", "PUBACK", "PUBREC"}[qos], tt.want)
						if version == 4 || tt.want == "" {
							want = strings.Fields(want)[0] + " 7"
						}
						c.want(want)
					}
					c.want("PUBACK 8")
					stored := tt.stored
					if stored < 0 {
						stored = 1
					}
					if got := s.store.take(); len(got) != stored {
						t.Errorf("%s, version %d, QoS %d: stored %v, want %d", tt.name, version, qos, got, stored)
					}
					var want []string
					for _, l := range tt.listed {
						want = append(want, "mqtt|"+l)
					}
					got := s.rejected()
					if !slices.Equal(got, want) {
						t.Errorf("%s, version %d, QoS %d: listed %q, want %q", tt.name, version, qos, got, want)
					}
					if strings.Contains(fmt.Sprint(got), secret) {
						t.Errorf("%s: bytes of a message are listed: %q", tt.name, got)
					}
				}
			}
		}
	})
}
