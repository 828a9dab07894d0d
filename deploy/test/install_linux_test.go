package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// script returns a command that runs a script of the repository with additional
// environment variables.
func script(t *testing.T, name string, env ...string) *exec.Cmd {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, name))
	try(t, err)
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// files lists the files below dir, without the prefix dir.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir))
		}
		return err
	})
	try(t, err)
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	try(t, err)
	return string(text)
}

// TestInstall runs make build and deploy/install, as packagers and users do.
func TestInstall(t *testing.T) {
	if out, code := run(t, exec.Command("make", "-C", root, "build")); code != 0 {
		t.Fatalf("make build: exit code %d\n%s", code, out)
	}
	if out, code := run(t, exec.Command(filepath.Join(root, "bin/pulsegate"), "version")); code != 0 ||
		!strings.Contains(out, "CGO_ENABLED=0") {
		t.Errorf("the program is not linked statically:\n%s", out)
	}
	dest := t.TempDir()
	if out, code := run(t, script(t, "deploy/install", "DESTDIR="+dest, "PREFIX=/opt/p",
		"SYSCONFDIR=/opt/etc")); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	got := files(t, dest)
	want := []string{
		"/opt/etc/pulsegate/pulsegate.toml",
		"/opt/p/bin/pulsegate",
		"/opt/p/lib/systemd/system/pulsegate.service",
		"/opt/p/lib/systemd/system/pulsegate.socket",
		"/opt/p/lib/sysusers.d/pulsegate.conf",
		"/opt/p/share/bash-completion/completions/pulsegate",
		"/opt/p/share/fish/vendor_completions.d/pulsegate.fish",
		"/opt/p/share/man/man1/pulsegate.1.gz",
		"/opt/p/share/pulsegate/grafana/pulsegate-device.json",
		"/opt/p/share/pulsegate/grafana/pulsegate-patient.json",
		"/opt/p/share/pulsegate/grafana/pulsegate.json",
		"/opt/p/share/pulsegate/prometheus/alerts.yaml",
		"/opt/p/share/zsh/site-functions/_pulsegate",
	}
	if !slices.Equal(got, want) {
		t.Errorf("installed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The manual page has the date of the commit, which is missing in builds outside a
	// repository.
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		missing(t, "mandoc is missing: .ci/setup installs it")
	}
	if out, code := run(t, exec.Command("sh", "-c", `gzip -dc "$1" | "$0" -Tlint -W warning`, mandoc,
		filepath.Join(dest, "/opt/p/share/man/man1/pulsegate.1.gz"))); code != 0 && !strings.Contains(out, "missing date") {
		t.Errorf("mandoc:\n%s", out)
	}
	unit := read(t, filepath.Join(dest, "/opt/p/lib/systemd/system/pulsegate.service"))
	if !strings.Contains(unit, "\nExecStart=/opt/p/bin/pulsegate serve --config /opt/etc/pulsegate/pulsegate.toml\n") {
		t.Errorf("the unit starts a different program:\n%s", unit)
	}
	// A second installation keeps the settings.
	config := filepath.Join(dest, "/opt/etc/pulsegate/pulsegate.toml")
	try(t, os.WriteFile(config, []byte("mine"), 0o600))
	if out, code := run(t, script(t, "deploy/install", "DESTDIR="+dest, "PREFIX=/opt/p", "SYSCONFDIR=/opt/etc")); code !=
		0 || read(t, config) != "mine" {
		t.Errorf("exit code %d, settings are %q\n%s", code, read(t, config), out)
	}
	if out, code := run(t, script(t, "deploy/install", "PREFIX=relative")); code != 2 {
		t.Errorf("with a relative prefix: exit code %d\n%s", code, out)
	}
}

// TestInstalledSettings checks that the server accepts the installed settings.
func TestInstalledSettings(t *testing.T) {
	dir := t.TempDir()
	config, err := filepath.Abs(filepath.Join(root, "deploy/systemd/pulsegate.toml"))
	try(t, err)
	check := func(path string) {
		t.Helper()
		cmd := exec.Command(program(t), "serve", "--config", path, "--print-config")
		cmd.Dir = dir
		if out, code := run(t, cmd); code != 0 {
			t.Errorf("exit code %d\n%s", code, out)
		}
	}
	check(config)
	// The commented-out settings are valid as well, except those that name files, which
	// do not exist.
	text := regexp.MustCompile(`(?m)^#([a-z-]+ = )`).ReplaceAllString(read(t, config), "$1")
	text = regexp.MustCompile(`(?m)^(tokens|tls-).*\n`).ReplaceAllString(text, "") + "insecure = true\n"
	if !strings.Contains(text, "\naddr = ") || !strings.Contains(text, "\ndrain-delay = ") {
		t.Errorf("there are no commented-out settings:\n%s", text)
	}
	suggested := filepath.Join(dir, "suggested.toml")
	try(t, os.WriteFile(suggested, []byte(text), 0o600))
	check(suggested)
}

// systemdAnalyze runs systemd-analyze on copies of the units with the path of the built
// program.
func systemdAnalyze(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		missing(t, "systemd-analyze is missing: install Debian's package systemd")
	}
	dir := t.TempDir()
	for _, name := range []string{"pulsegate.service", "pulsegate.socket"} {
		text := strings.ReplaceAll(read(t, filepath.Join(root, "deploy/systemd", name)), "/usr/bin/pulsegate", program(t))
		try(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	cmd := exec.Command(analyze, args...)
	cmd.Dir = dir
	return run(t, cmd)
}

// TestUnits checks the units with systemd-analyze, including their exposure.
func TestUnits(t *testing.T) {
	out, _ := systemdAnalyze(t, "verify", "--man=no", "./pulsegate.service", "./pulsegate.socket")
	for line := range strings.Lines(out) {
		// Skip messages about units of the machine.
		if strings.Contains(line, "pulsegate") {
			t.Errorf("verify: %s", line)
		}
	}
	// The rating of the unit is 1.2; the threshold is in tenths. The remaining exposure
	// is the network, which the server needs.
	if out, code := systemdAnalyze(t, "security", "--offline=true", "--threshold=12", "--no-pager",
		"./pulsegate.service"); code != 0 {
		t.Errorf("security: exit code %d\n%s", code, out)
	}
}

// TestUnitAllows checks that the unit allows the system calls and socket families of
// the server, and that the server maps no memory that is both writable and executable.
//
// It was seen to fail with SystemCallFilter=~@network-io, and with AF_INET left out of
// RestrictAddressFamilies.
func TestUnitAllows(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		missing(t, "strace is missing: .ci/setup installs it")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-qq", "-s", "0", "-o", trace, program(t), "serve", "--addr=127.0.0.1:0",
		"--admin-addr=127.0.0.1:0",
		"--data="+t.TempDir(), "--config="+filepath.Join(root, "deploy/systemd/pulsegate.toml"))
	// strace does not forward SIGTERM, so the process group gets it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s := start(t, cmd, cmd.Start)
	// Load the server.
	if out, code := run(t, exec.Command(program(t), "sim", "run", "--target", s.public, "--users=8", "--posts=30",
		"--mix=real", "--verify")); code != 0 {
		t.Errorf("sim: exit code %d\n%s", code, out)
	}
	try(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM))
	<-s.exited

	unit := read(t, filepath.Join(root, "deploy/systemd/pulsegate.service"))
	allowed := allowedCalls(t, unit)
	families := strings.Fields(setting(t, unit, "RestrictAddressFamilies")[0])
	calls := map[string]bool{}
	for line := range strings.Lines(read(t, trace)) {
		m := regexp.MustCompile(`^\d+ +([a-z0-9_]+)\((.*)`).FindStringSubmatch(line)
		if m == nil {
			continue
		}
		calls[m[1]] = true
		if family, _, _ := strings.Cut(m[2], ","); m[1] == "socket" && !slices.Contains(families, family) {
			t.Errorf("the unit does not allow this socket family: %s", line)
		}
		if strings.Contains(m[2], "PROT_WRITE|PROT_EXEC") {
			t.Errorf("memory is writable and executable: %s", line)
		}
	}
	for call := range calls {
		if !allowed[call] {
			t.Errorf("the unit does not allow %s", call)
		}
	}
	if !calls["fdatasync"] || !calls["accept4"] {
		t.Errorf("the trace is not of a server: %v", calls)
	}
}

// setting returns the values of a setting of a unit.
func setting(t *testing.T, unit, name string) (values []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit, -1) {
		values = append(values, m[1])
	}
	if len(values) == 0 {
		t.Fatalf("the unit has no %s", name)
	}
	return values
}

// allowedCalls returns the system calls allowed by a unit's filters.
func allowedCalls(t *testing.T, unit string) map[string]bool {
	t.Helper()
	sets := callSets(t)
	var add func(into map[string]bool, name string)
	add = func(into map[string]bool, name string) {
		if !strings.HasPrefix(name, "@") {
			into[name] = true
			return
		}
		if len(sets[name]) == 0 {
			t.Fatalf("systemd has no set %s", name)
		}
		for _, part := range sets[name] {
			add(into, part)
		}
	}
	// systemd adds @default to every allow-list (systemd.exec(5)).
	allowed := map[string]bool{}
	add(allowed, "@default")
	for _, filter := range setting(t, unit, "SystemCallFilter") {
		list, denies := strings.CutPrefix(filter, "~")
		named := map[string]bool{}
		for _, name := range strings.Fields(list) {
			add(named, name)
		}
		for name := range named {
			if denies {
				delete(allowed, name)
			} else {
				allowed[name] = true
			}
		}
	}
	return allowed
}

// callSets returns systemd's sets of system calls.
func callSets(t *testing.T) map[string][]string {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		missing(t, "systemd-analyze is missing: install Debian's package systemd")
	}
	out, code := run(t, exec.Command(analyze, "syscall-filter", "--no-pager"))
	if code != 0 {
		t.Fatal(out)
	}
	sets, set := map[string][]string{}, ""
	for line := range strings.Lines(out) {
		switch word := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "@"):
			set = word
		case word != "" && !strings.HasPrefix(word, "#") && set != "":
			sets[set] = append(sets[set], word)
		case strings.HasPrefix(line, "#"):
			set = ""
		}
	}
	return sets
}

// TestDebianPackage checks the contents of the Debian package, and that installing,
// upgrading, removing and purging it does not change the data.
func TestDebianPackage(t *testing.T) {
	for _, name := range []string{"dpkg", "dpkg-deb", "systemd-sysusers"} {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, "%s is missing", name)
		}
	}
	if os.Getuid() != 0 {
		missing(t, "only root installs packages")
	}
	out, code := run(t, script(t, "deploy/package/build"))
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	deb, err := filepath.Abs(filepath.Join(root, lines[len(lines)-1]))
	try(t, err)
	t.Cleanup(func() { os.Remove(deb) })

	control, _ := run(t, exec.Command("dpkg-deb", "--info", deb))
	version := regexp.MustCompile(`(?m)^ Version: (.*)$`).FindStringSubmatch(control)
	if version == nil || !strings.Contains(control, " Package: pulsegate\n") || !strings.Contains(control, " conffiles ") {
		t.Fatalf("the package's control data is\n%s", control)
	}
	if out, code := run(t, exec.Command("dpkg", "--validate-version", version[1])); code != 0 {
		t.Errorf("version %s: %s", version[1], out)
	}
	if strings.Contains(control, ".invalid>") ||
		!regexp.MustCompile(`(?m)^ Maintainer: .+ <.+@.+>$`).MatchString(control) {
		t.Errorf("the maintainer has no valid address:\n%s", control)
	}
	if lintian, err := exec.LookPath("lintian"); err == nil {
		if out, code := run(t, exec.Command(lintian, "--allow-root", "--fail-on=error,warning", deb)); code != 0 {
			t.Errorf("lintian:\n%s", out)
		}
	}
	contents, _ := run(t, exec.Command("dpkg-deb", "--contents", deb))
	for line := range strings.Lines(contents) {
		if !strings.Contains(line, "root/root") || regexp.MustCompile(`^.{7}w|^.{4}[ws].{3}w`).MatchString(line) {
			t.Errorf("not owned by root, or writable for others: %s", line)
		}
	}
	for _, name := range []string{"./usr/bin/pulsegate", "./usr/share/man/man1/pulsegate.1.gz",
		"./usr/share/doc/pulsegate/copyright", "./usr/share/doc/pulsegate/THIRD-PARTY-NOTICES.gz",
		"./usr/share/zsh/vendor-completions/_pulsegate"} {
		if !strings.Contains(contents, " "+name+"\n") {
			t.Errorf("%s is missing in\n%s", name, contents)
		}
	}
	testPackageDocs(t, deb)
	testPackageLife(t, deb)
}

// testPackageDocs checks that a package has all pages, and that none of their links leads
// out of the package's files.
func testPackageDocs(t *testing.T, deb string) {
	dir := t.TempDir()
	if out, code := run(t, exec.Command("dpkg-deb", "--extract", deb, dir)); code != 0 {
		t.Fatal(out)
	}
	doc := filepath.Join(dir, "usr/share/doc/pulsegate")
	pages := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		sources, err := filepath.Glob(filepath.Join(root, pattern))
		try(t, err)
		for _, source := range sources {
			name, err := filepath.Rel(root, source)
			try(t, err)
			page := filepath.Join(doc, name)
			pages++
			for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(read(t, page), -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if pages < 30 {
		t.Errorf("the test found %d pages", pages)
	}
	for _, name := range []string{
		"grafana/pulsegate.json", "grafana/pulsegate-device.json", "grafana/pulsegate-patient.json", "prometheus/alerts.yaml",
	} {
		if read(t, filepath.Join(dir, "usr/share/pulsegate", name)) != read(t, filepath.Join(root, "deploy", name)) {
			t.Errorf("%s differs", name)
		}
	}
}

// testPackageLife installs, upgrades, removes and purges a package in a separate root.
func testPackageLife(t *testing.T, deb string) {
	dir := t.TempDir()
	for _, sub := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/dpkg/triggers", "etc", "usr/lib"} {
		try(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	for _, file := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available", "etc/passwd", "etc/group"} {
		try(t, os.WriteFile(filepath.Join(dir, file), nil, 0o644))
	}
	dpkg := func(args ...string) string {
		t.Helper()
		out, code := run(t,
			exec.Command("dpkg",
				append([]string{"--root=" + dir, "--force-script-chrootless", "--force-depends", "--force-not-root"}, args...)...))
		if code != 0 {
			t.Fatalf("dpkg %v: exit code %d\n%s", args, code, out)
		}
		return out
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	owner := func(name string) string {
		t.Helper()
		info, err := os.Stat(path(name))
		try(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		return fmt.Sprintf("%d:%d %#o", stat.Uid, stat.Gid, info.Mode().Perm())
	}

	if out := dpkg("--install", deb); !strings.Contains(out, "systemctl enable --now pulsegate") {
		t.Errorf("the installation does not print the next step:\n%s", out)
	}
	user := regexp.MustCompile(`(?m)^pulsegate:[^:]*:(\d+):(\d+):[^:]*:/var/lib/pulsegate:(.*)$`).
		FindStringSubmatch(read(t, path("etc/passwd")))
	if user == nil || user[3] != "/usr/sbin/nologin" {
		t.Fatalf("users:\n%s", read(t, path("etc/passwd")))
	}
	if got, want := owner("var/lib/pulsegate"), user[1]+":"+user[2]+" 0700"; got != want {
		t.Errorf("the data directory has %s, want %s", got, want)
	}
	if got, want := owner("etc/pulsegate"), "0:"+user[2]+" 0750"; got != want {
		t.Errorf("the settings directory has %s, want %s", got, want)
	}
	for _, link := range []string{"etc/systemd/system/multi-user.target.wants/pulsegate.service",
		"etc/systemd/system/sockets.target.wants/pulsegate.socket"} {
		if _, err := os.Lstat(path(link)); err == nil {
			t.Errorf("the installation enables %s", link)
		}
	}

	// An upgrade and a removal keep the administrator's changes.
	try(t, os.WriteFile(path("etc/pulsegate/pulsegate.toml"), []byte("[serve]\nmax-conns = 200\n"), 0o640))
	try(t, os.Chmod(path("etc/pulsegate"), 0o700))
	try(t, os.WriteFile(path("var/lib/pulsegate/record"), []byte("97"), 0o600))
	if out := dpkg("--install", deb); strings.Contains(out, "systemctl enable") {
		t.Errorf("an upgrade prints the first step:\n%s", out)
	}
	if got := read(t, path("etc/pulsegate/pulsegate.toml")); !strings.Contains(got, "max-conns = 200") {
		t.Errorf("an upgrade changed the settings to\n%s", got)
	}
	if got, want := owner("etc/pulsegate"), "0:"+user[2]+" 0700"; got != want {
		t.Errorf("an upgrade changed the settings directory to %s, want %s", got, want)
	}
	dpkg("--remove", "pulsegate")
	if _, err := os.Stat(path("usr/bin/pulsegate")); err == nil {
		t.Error("the program still exists")
	}
	if got := read(t, path("etc/pulsegate/pulsegate.toml")); !strings.Contains(got, "max-conns = 200") {
		t.Errorf("a removal changed the settings to\n%s", got)
	}
	output := dpkg("--purge", "pulsegate")
	if _, err := os.Stat(path("etc/pulsegate/pulsegate.toml")); err == nil {
		t.Error("purge kept the settings")
	}
	if read(t, path("var/lib/pulsegate/record")) != "97" || !strings.Contains(output, "/var/lib/pulsegate") {
		t.Errorf("purge changed the data, or does not report that it keeps them:\n%s", output)
	}
}
