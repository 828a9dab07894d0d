package gate

import (
	"maps"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
)

// A Collector exports metrics about rejected credentials and about the tokens and
// certificates in use.
type Collector struct {
	Gate   *Gate
	Files  *tlsfiles.Files // the server's certificate; nil means no TLS
	Syslog *audit.Syslog   // nil means no syslog server

	// Expiry returns when the first certificate of each further use expires. The zero time means that the server has
	// loaded none.
	Expiry func() map[string]time.Time
}

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	reasons := prometheus.NewDesc("pulsegate_auth_refused_total",
		"Requests rejected for their credentials, by reason.", []string{"reason"}, nil)
	for reason := audit.NoCredentials; reason < audit.NumReasons; reason++ {
		ch <- prometheus.MustNewConstMetric(reasons, prometheus.CounterValue, float64(c.Gate.Refused(reason)),
			strings.ReplaceAll(reason.String(), "-", "_"))
	}
	gauge := func(name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value)
	}
	expiry := map[string]time.Time{}
	if c.Expiry != nil {
		maps.Copy(expiry, c.Expiry())
	}
	tokens, tokensStale, certificatesStale := 0, false, false
	if set := c.Gate.Tokens; set != nil {
		tokens, tokensStale = set.Len(), set.Stale()
	}
	expiry["server"], expiry["client_ca"] = time.Time{}, time.Time{}
	if c.Files != nil {
		expiry["server"], expiry["client_ca"], certificatesStale = c.Files.NotAfter(), c.Files.CANotAfter(), c.Files.Stale()
	}
	ends := prometheus.NewDesc("pulsegate_certificate_expiry_timestamp_seconds",
		"Unix time at which the first certificate of a use expires. 0 without one.", []string{"use"}, nil)
	for use, at := range expiry {
		end := int64(0)
		if !at.IsZero() {
			end = at.Unix()
		}
		ch <- prometheus.MustNewConstMetric(ends, prometheus.GaugeValue, float64(end), use)
	}
	if c.Gate.OIDC != nil {
		c.Gate.OIDC.Collect(ch)
	}
	oneIf := map[bool]float64{true: 1}
	gauge("pulsegate_audit_failed", "Whether the audit log cannot be written or was changed from outside: 0 or 1.",
		oneIf[c.Gate.Audit != nil && c.Gate.Audit.Failing() || c.Gate.Operators != nil && c.Gate.Operators.Failing()])
	lost := uint64(0)
	if c.Syslog != nil {
		lost = c.Syslog.Lost()
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("pulsegate_audit_syslog_lost_total",
		"Lines of the audit log that were not sent to the syslog server because the queue was full.", nil, nil),
		prometheus.CounterValue, float64(lost))
	gauge("pulsegate_tokens", "Tokens in use, expired ones included.", float64(tokens))
	gauge("pulsegate_tokens_stale", "Whether the token file is unusable, so that the previous tokens stay in use: 0 or 1.",
		oneIf[tokensStale])
	gauge("pulsegate_certificates_stale",
		"Whether the certificate files are unusable, so that the previous certificates stay in use: 0 or 1.",
		oneIf[certificatesStale])
}
