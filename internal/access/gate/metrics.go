package gate

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
)

// A Collector exports metrics about rejected credentials and about the tokens and
// certificates in use.
type Collector struct {
	Gate   *Gate
	Files  *tlsfiles.Files // the server's certificate; nil means no TLS
	Syslog *audit.Syslog   // nil means no syslog server
}

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	reasons := prometheus.NewDesc("pulsegate_auth_refused_total",
		"Requests rejected for their credentials, by reason.", []string{"reason"}, nil)
	for reason := audit.NoCredentials; reason < numReasons; reason++ {
		ch <- prometheus.MustNewConstMetric(reasons, prometheus.CounterValue, float64(c.Gate.Refused(reason)),
			strings.ReplaceAll(reason.String(), "-", "_"))
	}
	gauge := func(name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value)
	}
	days := 0.0
	tokens, end, tokensStale, certificatesStale := 0, int64(0), false, false
	if set := c.Gate.Tokens; set != nil {
		tokens, tokensStale = set.Len(), set.Stale()
	}
	if c.Files != nil {
		end, certificatesStale = c.Files.NotAfter().Unix(), c.Files.Stale()
		days = time.Until(c.Files.NotAfter()).Hours() / 24
	}
	if c.Gate.OIDC != nil {
		collectOIDC(ch, c.Gate.OIDC)
	}
	oneIf := map[bool]float64{true: 1}
	gauge("pulsegate_audit_failed", "Whether the audit log cannot be written or was changed from outside: 0 or 1.",
		oneIf[c.Gate.Audit != nil && c.Gate.Audit.Failing()])
	lost := uint64(0)
	if c.Syslog != nil {
		lost = c.Syslog.Lost()
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("pulsegate_audit_syslog_lost_total",
		"Lines of the audit log that were not sent to the syslog server because the queue was full.", nil, nil), prometheus.CounterValue, float64(lost))
	gauge("pulsegate_tokens", "Tokens in use, expired ones included.", float64(tokens))
	gauge("pulsegate_tokens_stale", "Whether the token file is unusable, so that the previous tokens stay in use: 0 or 1.", oneIf[tokensStale])
	gauge("pulsegate_certificate_expiry_timestamp_seconds", "Unix time at which the first certificate of the server's chain expires. 0 without TLS.", float64(end))
	gauge("pulsegate_certificate_expiry_days", "Days until the first certificate of the server's chain expires, negative after that. 0 without TLS.", days)
	gauge("pulsegate_certificates_stale", "Whether the certificate files are unusable, so that the previous certificates stay in use: 0 or 1.", oneIf[certificatesStale])
}

// collectOIDC exports metrics about an OpenID Connect provider and its tokens.
func collectOIDC(ch chan<- prometheus.Metric, p *oidc.Provider) {
	show := func(name, help string, kind prometheus.ValueType, label string, values map[string]float64) {
		var labels []string
		if label != "" {
			labels = []string{label}
		}
		desc := prometheus.NewDesc(name, help, labels, nil)
		for value, n := range values {
			ch <- prometheus.MustNewConstMetric(desc, kind, n, []string{value}[:len(labels)]...)
		}
	}
	s, stale, keysAt := p.Stats(), 0.0, 0.0
	if p.Stale() {
		stale = 1
	}
	if !s.KeysAt.IsZero() {
		keysAt = float64(s.KeysAt.Unix())
	}
	show("pulsegate_oidc_fetches_total", "Attempts to fetch the provider's keys, by result.", prometheus.CounterValue, "result",
		map[string]float64{"ok": float64(s.Fetches), "error": float64(s.FetchErrors)})
	show("pulsegate_oidc_verified_total", "JWTs that were not in the cache, by result.", prometheus.CounterValue, "result",
		map[string]float64{"accepted": float64(s.Accepted), "rejected": float64(s.Invalid), "undecided": float64(s.Undecided)})
	show("pulsegate_oidc_cached_tokens", "Verified JWTs in the cache, expired ones included.", prometheus.GaugeValue, "", map[string]float64{"": float64(s.Cached)})
	show("pulsegate_oidc_keys_timestamp_seconds", "Unix time at which the provider's keys were fetched. 0 if never.", prometheus.GaugeValue, "", map[string]float64{"": keysAt})
	show("pulsegate_oidc_rules_stale", "Whether the file of rules is unusable, so that the previous rules stay in force: 0 or 1.", prometheus.GaugeValue, "", map[string]float64{"": stale})
}
