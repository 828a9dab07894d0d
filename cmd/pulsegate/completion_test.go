package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// requireProgram returns the path of a program that is not part of the repository. Without it
// the test is skipped, or fails in CI.
func requireProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		unable(t, "%s is missing: .ci/setup installs it on Debian", name)
	}
	return path
}

// The shells complete with the scripts.
func TestCompletionScripts(t *testing.T) {
	dir := t.TempDir()
	try(t, os.WriteFile(filepath.Join(dir, "some file"), nil, 0o600))
	for _, tt := range []struct {
		shell string
		// What the shell runs. The script is in $SCRIPT; the completions are printed one per
		// line.
		line string
		want []string
	}{
		{"bash", `source "$SCRIPT"; COMP_WORDS=(pulsegate serve --drain); COMP_CWORD=2; _pulsegate pulsegate --drain ` +
			`serve; printf '%s\n' "${COMPREPLY[@]}"`,
			[]string{"--drain-delay", "--drain-timeout"}},
		{"bash", `source "$SCRIPT"; COMP_WORDS=(pulsegate check so); COMP_CWORD=2; _pulsegate pulsegate so check; printf ` +
			`'%s\n' "${COMPREPLY[@]}"`,
			[]string{"some file"}},
		{"bash", `source "$SCRIPT"; complete -p pulsegate`, []string{"complete -F _pulsegate pulsegate"}},
		{"fish", `source "$SCRIPT"; complete -C 'pulsegate serve --drain' | cut -f 1`,
			[]string{"--drain-delay", "--drain-timeout"}},
		{"fish", `source "$SCRIPT"; complete -C 'pulsegate serve --log-format=j' | cut -f 1`, []string{"--log-format=json"}},
		{"fish", `source "$SCRIPT"; complete -C 'pulsegate check so' | cut -f 1`, []string{"some file"}},
		// zsh completes nothing without a terminal, so its functions are replaced.
		{"zsh", `compdef() { :; }; _describe() { print -l -- $candidates; }; source "$SCRIPT"; words=(pulsegate serve ` +
			`--drain); CURRENT=3; _pulsegate | cut -d : -f 1`,
			[]string{"--drain-delay", "--drain-timeout"}},
		{"zsh", `compdef() { :; }; compset() { :; }; _files() { print files; }; source "$SCRIPT"; words=(pulsegate check ` +
			`so); CURRENT=3; _pulsegate`, []string{"files"}},
	} {
		shell := requireProgram(t, tt.shell)
		text, errs, code := output(t, program(t), "completion", tt.shell)
		if code != 0 {
			t.Fatalf("completion %s: exit code %d, %s", tt.shell, code, errs)
		}
		script := filepath.Join(t.TempDir(), "script")
		try(t, os.WriteFile(script, []byte(text), 0o600))
		cmd := exec.Command(shell, "-c", tt.line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SCRIPT="+script, "HOME="+dir, "PATH="+filepath.Dir(program(t))+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %s\n got %q, %v\nwant %q", tt.shell, tt.line, got, err, tt.want)
		}
	}
}

// The manual page has every flag of every command, and formatters find no fault.
func TestMan(t *testing.T) {
	page, errs, code := output(t, program(t), "man")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	file := filepath.Join(t.TempDir(), "pulsegate.1")
	try(t, os.WriteFile(file, []byte(page), 0o600))
	// The date is unknown in a build outside a repository.
	if out, _ := exec.Command(requireProgram(t, "mandoc"), "-T", "lint", "-W", "style", file).
		CombinedOutput(); strings.Trim(dropLines(string(out), "missing date", "unknown manual section",
		"referenced manual not found", "input text line longer than 80 bytes"), "\n") != "" {
		t.Errorf("mandoc: %s", out)
	}
	rendered, err := exec.Command(requireProgram(t, "mandoc"), "-T", "ascii", "-O", "width=1000", file).Output()
	try(t, err)
	text := stripOverstrikes(string(rendered))
	for _, command := range []string{"serve", "devices", "latest", "import", "sim run", "token create", "health"} {
		help, _, _ := output(t, program(t), append(strings.Fields(command), "--help")...)
		if !strings.Contains(text, "pulsegate "+command) {
			t.Errorf("the page does not have %s", command)
		}
		for _, word := range strings.Fields(help) {
			flag, _, _ := strings.Cut(strings.TrimRight(word, ".,;)'"), "=")
			if strings.HasPrefix(flag, "--") && !strings.Contains(text, flag) {
				t.Errorf("%s: the page does not have %s", command, flag)
			}
		}
	}
	if strings.Contains(text, "__complete") {
		t.Error("the page shows a hidden command")
	}
}

// dropLines removes the lines that contain one of some texts.
func dropLines(text string, holding ...string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(holding, func(s string) bool { return strings.Contains(line, s) }) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// stripOverstrikes removes the overstrikes that print bold text on paper.
func stripOverstrikes(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\b' {
			out = out[:len(out)-1]
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}
