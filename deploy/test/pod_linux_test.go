package deploy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPod runs the pod of the manifests like a cluster, with the documented secrets.
// The server accepts readings with a token over TLS, reloads a changed secret, answers
// the kubelet's probes and Prometheus, and serves profiles to a port-forward only.
//
// It was seen to fail when the settings had a different path for tokens, and when the
// volume belonged to a group that the pod was not in.
func TestPod(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		if m.overlay == "overlays/monitoring" || m.overlay == "overlays/postgres" {
			return // the pod of the first equals that of base; the other needs a database
		}
		c := newPod(t, m)
		oldToken := c.secrets(t, m)
		const public, admin, kubelet = "https://127.0.0.1:8080", "http://127.0.0.1:6060", "http://" + neighbour + ":6060"
		c.start(t)
		inside, outside := c.client("127.0.0.1"), c.client(neighbour)
		inside.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: c.roots}
		awaitReady(t, outside, kubelet)
		for _, tt := range []struct {
			client *http.Client
			url    string
			want   int
		}{
			{outside, kubelet + "/livez", 200},
			{outside, kubelet + "/metrics", 200},
			{outside, kubelet + "/debug/pprof/", 403},
			{outside, kubelet + "/debug/pprof/heap", 403},
			{outside, kubelet + "/debug/pprof/profile", 403},
			{inside, admin + "/debug/pprof/heap", 200},
			{inside, public + "/livez", 200},
		} {
			if got, body := get(t, tt.client, tt.url); got != tt.want {
				t.Errorf("%s: %d, want %d: %.100s", tt.url, got, tt.want, body)
			}
		}
		if code, answer := post(t, inside, public, ""); code != 401 {
			t.Errorf("without a token, a reading is answered %d %s", code, answer)
		}
		if code, answer := post(t, inside, public, oldToken); code != 200 {
			t.Errorf("a reading is answered %d %s", code, answer)
		}
		newToken := c.newToken(t, "2")
		await(t, "the new token", func() bool { code, _ := post(t, inside, public, newToken); return code == 200 })
		await(t, "the revocation of the old token",
			func() bool { code, _ := post(t, inside, public, oldToken); return code == 401 })
	})
}

// await waits until done returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// A pod is a container configured by the manifests.
type pod struct {
	*container
	tokens string         // directory of the secret, on the host
	roots  *x509.CertPool // issuer of the server's certificate
}

// newPod returns a container with the pod's user, settings and volumes.
func newPod(t *testing.T, m *manifests) *pod {
	t.Helper()
	c := newContainer(t)
	security := m.pod().Spec.SecurityContext
	if security.RunAsUser != nil {
		c.plan.UID, c.plan.GID, c.plan.Groups = int(*security.RunAsUser), int(*security.RunAsGroup),
			[]int{int(*security.FSGroup)}
	} else {
		// OpenShift assigns a user and an fsGroup from the project's range.
		c.plan.Groups = []int{c.plan.UID}
	}
	for name, value := range m.settings.Data {
		c.plan.Env = settings(c.plan.Env, []string{name + "=" + value})
	}
	p := &pod{container: c}
	for _, v := range m.container().VolumeMounts {
		if v.SubPath != "" {
			t.Fatalf("the volume %s is mounted with a subPath", v.Name)
		}
		switch v.Name {
		case "data":
			c.mount(t, v.MountPath, os.ModeSetgid|0o775, false)
		case "tokens":
			p.tokens = c.mount(t, v.MountPath, 0o755, true)
		case "tls":
			files := p.certificate(t)
			if m.settings.Data["PULSEGATE_TLS_CLIENT_CA"] != "" {
				files["client-ca.pem"] = files["tls.crt"]
			}
			p.secret(t, c.mount(t, v.MountPath, 0o755, true), "1", files)
		default:
			t.Fatalf("the test does not support the volume %s", v.Name)
		}
	}
	return p
}

// secrets checks the modes of the secrets and creates the first token.
func (p *pod) secrets(t *testing.T, m *manifests) (token string) {
	t.Helper()
	for _, v := range m.pod().Spec.Volumes {
		if v.Secret == nil || v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440 {
			t.Errorf("the volume %s is not a secret that the group can read", v.Name)
		}
	}
	return p.newToken(t, "1")
}

// newToken replaces the secret's tokens with a new one.
func (p *pod) newToken(t *testing.T, version string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	create := exec.Command(program(t), "token", "create", "--file", file, "--audit", "", "--gateway", "bed-7", "--rights",
		"write,read")
	token, err := create.Output()
	if err != nil {
		t.Fatalf("token create: %v", err)
	}
	text, err := os.ReadFile(file)
	try(t, err)
	p.secret(t, p.tokens, version, map[string][]byte{"tokens": text})
	return strings.TrimSpace(string(token))
}

// secret writes files to a volume as the kubelet does: to a directory for their
// version, and with a symbolic link to it that is replaced atomically.
func (p *pod) secret(t *testing.T, dir, version string, files map[string][]byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		try(t, err)
	}
	target := "..version_" + version
	must(os.Mkdir(filepath.Join(dir, target), 0o755))
	for name, text := range files {
		path := filepath.Join(dir, target, name)
		must(os.WriteFile(path, text, 0o440))
		must(os.Chown(path, 0, p.group()))
	}
	must(os.Symlink(target, filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
}

// certificate returns a certificate for the loopback address and its key.
func (p *pod) certificate(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	try(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:         true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	try(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	try(t, err)
	files := map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}
	p.roots = x509.NewCertPool()
	if !p.roots.AppendCertsFromPEM(files["tls.crt"]) {
		t.Fatal(fmt.Errorf("cannot parse the certificate"))
	}
	return files
}
