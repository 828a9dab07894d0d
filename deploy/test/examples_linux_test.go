package deploy_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// example returns the block of a page that follows a text, of a language.
func example(t *testing.T, page, after, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, filepath.Join(root, "docs", page)), after)
	_, rest, begun := strings.Cut(rest, "```"+language+"\n")
	block, _, ended := strings.Cut(rest, "```\n")
	if !found || !begun || !ended {
		t.Fatalf("docs/%s has no block of %s after %q", page, language, after)
	}
	return block
}

// The rules for connections of the pod are as docs/operations.md shows them.
func TestEgress(t *testing.T) {
	rules := buildSite(t, "base", example(t, "operations.md", "### Egress\n", "yaml")).network.Spec.Egress
	var got []string
	for _, r := range rules {
		for _, p := range r.Ports {
			protocol := ""
			if p.Protocol != nil {
				protocol = string(*p.Protocol)
			}
			for _, to := range r.To {
				peer := ""
				if to.IPBlock != nil {
					peer = to.IPBlock.CIDR
				} else if to.NamespaceSelector != nil {
					peer = to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
				}
				got = append(got, fmt.Sprint(peer, " ", p.Port, protocol))
			}
		}
	}
	want := "kube-system 53UDP, kube-system 53TCP, monitoring 9093, 203.0.113.7/32 443"
	if strings.Join(got, ", ") != want {
		t.Errorf("the pod may connect to %q, want %q", got, want)
	}
}

// The deploy hook for certbot in docs/tls.md installs both files for the server, and changes nothing if one is missing.
func TestCertbotHook(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, "the test needs root")
	}
	etc, lineage := t.TempDir(), t.TempDir()
	hook := strings.NewReplacer("/etc/pulsegate/", etc+"/", "-g pulsegate", "-g nogroup").
		Replace(example(t, "tls.md", "### With certbot\n", "bash"))
	renew := func() (string, int) {
		cmd := exec.Command("/bin/sh", "-c", hook)
		cmd.Env = append(os.Environ(), "RENEWED_LINEAGE="+lineage)
		return run(t, cmd)
	}
	write := func(name, text string, mode os.FileMode) {
		try(t, os.WriteFile(filepath.Join(lineage, name), []byte(text), mode))
	}
	check := func(certificate, key string) {
		t.Helper()
		if got, want := fmt.Sprint(files(t, etc)), "[/server.key /server.pem]"; got != want {
			t.Fatalf("the hook leaves %s, want %s", got, want)
		}
		for name, want := range map[string]struct {
			text string
			mode os.FileMode
		}{"server.pem": {certificate, 0o644}, "server.key": {key, 0o640}} {
			info, err := os.Stat(filepath.Join(etc, name))
			try(t, err)
			if got := read(t, filepath.Join(etc, name)); got != want.text || info.Mode() != want.mode {
				t.Errorf("%s is %q with mode %v, want %q and %v", name, got, info.Mode(), want.text, want.mode)
			}
		}
	}
	write("fullchain.pem", "certificate 1", 0o644)
	write("privkey.pem", "key 1", 0o600)
	for range 2 {
		if out, code := renew(); code != 0 {
			t.Fatalf("the hook ends with %d\n%s", code, out)
		}
		check("certificate 1", "key 1")
	}
	write("privkey.pem", "key 2", 0o600)
	try(t, os.Remove(filepath.Join(lineage, "fullchain.pem")))
	if out, code := renew(); code == 0 {
		t.Errorf("the hook succeeds without a certificate\n%s", out)
	}
	check("certificate 1", "key 1")
}

// The units in docs/backup.md make a backup of a running server under a real systemd, and then remove an old one.
func TestBackupUnits(t *testing.T) {
	service, timer, found := strings.Cut(example(t, "backup.md", "## Schedule it\n", "ini"),
		"\n\n# /etc/systemd/system/pulsegate-backup.timer\n")
	if !found {
		t.Fatal("docs/backup.md has no timer")
	}
	var addrs []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		try(t, err)
		addrs = append(addrs, l.Addr().String())
		try(t, l.Close())
	}
	service = strings.NewReplacer("/usr/bin/pulsegate", "/run/pulsegate", "User=pulsegate", "User=nobody",
		"#Environment=PULSEGATE_TOKEN_FILE=/etc/pulsegate/backup.token",
		"Environment=PULSEGATE_BACKUP_TARGET=http://"+addrs[1]).Replace(service)
	service = strings.Replace(service, "[Unit]\n", "[Unit]\nDefaultDependencies=no\n", 1)
	s := startSystemd(t, addrs[0], addrs[1], map[string]string{"pulsegate-backup.service": service})
	backups := fmt.Sprintf("/proc/%d/root/var/lib/pulsegate-backups", s.cmd.Process.Pid)
	backup := func() string {
		t.Helper()
		s.systemctl("start", "pulsegate-backup.service") // it wants the server, and waits until that is ready
		dirs, err := os.ReadDir(backups)
		try(t, err)
		if len(dirs) != 1 {
			t.Fatalf("there are %d backups, want 1", len(dirs))
		}
		dir := filepath.Join(backups, dirs[0].Name())
		if out, code := run(t, exec.Command(program(t), "check", dir)); code != 0 {
			t.Fatalf("check of the backup: %d\n%s", code, out)
		}
		return dir
	}
	old, kept := filepath.Join(backups, "old"), time.Now().Add(-16*24*time.Hour)
	try(t, os.Rename(backup(), old))
	try(t, os.Chtimes(old, kept, kept))
	if backup() == old {
		t.Error("the old backup is kept in place of the new one")
	}

	out, _ := systemdAnalyze(t, "calendar", setting(t, timer, "OnCalendar")[0])
	if !strings.Contains(out, "Normalized form: *-*-* 02:30:00") {
		t.Errorf("the timer's times are\n%s", out)
	}
}
