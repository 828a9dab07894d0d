package server

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
)

// Each option and each parameter of --store that names certificates has a series of its own for their expiry.
func TestExpiryOfEveryCertificate(t *testing.T) {
	uses := map[string]string{
		"tls-cert": "server", "tls-client-ca": "client_ca", "alertmanager-ca": "alertmanager_ca",
		"store?sslrootcert": "postgres_ca", "store?sslcert": "postgres_client",
	}
	names := regexp.MustCompile(`(^|-)(ca|cert|certs|certificate|certificates|roots)(-|$)`)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if name := f.Tag.Get("name"); f.Type.Kind() == reflect.String && names.MatchString(name) && uses[name] == "" {
			t.Errorf("--%s names certificates, and has no use", name)
		}
	}
	ca := certtest.New("ca")
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		certtest.Write(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	s := &server{}
	s.postgres.Store(&pgstore.Certificates{CA: time.Unix(3, 0), Client: time.Unix(4, 0)})
	alerts := AlertOptions{AlertmanagerCA: file("ca.pem", ca.PEM)}
	sending, err := alerts.sending("")
	if err != nil {
		t.Fatal(err)
	}
	s.alerts.caExpires = sending.RootsExpire
	rec := httptest.NewRecorder()
	metrics.Handler("", func() bool { return true }, gate.Collector{Gate: &gate.Gate{}, Expiry: s.expiry}).ServeHTTP(rec,
		httptest.NewRequest("GET", "/metrics", nil))
	for name, use := range uses {
		if !strings.Contains(rec.Body.String(),
			fmt.Sprintf("\npulsegate_certificate_expiry_timestamp_seconds{use=%q} ", use)) {
			t.Errorf("%s: a scrape does not show the expiry of %s:\n%s", name, use, rec.Body)
		}
		page, err := os.ReadFile("../../docs/metrics.md")
		if err != nil || !strings.Contains(string(page), "`"+use+"`") {
			t.Errorf("docs/metrics.md does not have the use %s: %v", use, err)
		}
	}
}
