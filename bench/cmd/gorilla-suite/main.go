// Command gorilla-suite runs gorilla/mux's own tests against the mux package.
//
// It takes the test files from the module cache, turns them into an external test
// package that imports mux instead of gorilla/mux, and removes the declarations that
// then no longer compile because they use unexported names. It prints how many tests
// ran and which were removed, and fails if a test fails. It writes nothing to the
// repository.
//
// Run it in the bench module:
//
//	go run ./cmd/gorilla-suite
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	gorillaModule = "github.com/gorilla/mux"
	muxPackage    = "github.com/pulsegate/pulsegate/mux"
)

func main() {
	verbose := flag.Bool("v", false, "print the output of the tests")
	flag.Parse()
	if err := run(*verbose); err != nil {
		fmt.Fprintln(os.Stderr, "gorilla-suite:", err)
		os.Exit(1)
	}
}

func run(verbose bool) error {
	dir, err := moduleDir(gorillaModule)
	if err != nil {
		return err
	}
	s, err := loadSuite(dir)
	if err != nil {
		return err
	}
	if err := s.strip(); err != nil {
		return err
	}
	results, err := s.test(verbose)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", dir)
	for _, name := range s.stripped {
		fmt.Println("stripped ", name)
	}
	for _, name := range s.shortened {
		fmt.Println("shortened", name)
	}
	failed := 0
	for _, r := range results {
		if r.failed {
			failed++
			fmt.Println("FAILED   ", r.name)
		}
	}
	fmt.Printf("ran %d tests and examples, of which %d failed and %d were shortened; stripped %d\n",
		len(results), failed, len(s.shortened), len(s.stripped))
	if failed > 0 {
		return errors.New("some tests failed")
	}
	if len(results) == 0 {
		return errors.New("no tests ran")
	}
	return nil
}

func moduleDir(module string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", fmt.Errorf("find module %s: it is not in the module cache", module)
	}
	return dir, nil
}

type result struct {
	name   string
	failed bool
}

// test runs the stripped files as if they were in this command's directory.
func (s *suite) test(verbose bool) ([]result, error) {
	tmp, err := os.MkdirTemp("", "gorilla-suite")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	here, err := moduleDir("github.com/pulsegate/pulsegate/bench")
	if err != nil {
		return nil, err
	}
	target := filepath.Join(here, "cmd", "gorilla-suite")
	replace := make(map[string]string)
	for i, text := range s.print() {
		file := filepath.Join(tmp, fmt.Sprintf("f%d_test.go", i))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(target, fmt.Sprintf("gorilla_%d_test.go", i))] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlayFile := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "test", "-json", "-vet=off", "-overlay", overlayFile, "-run", s.pattern(), target)
	cmd.Dir = here
	cmd.Stderr = os.Stderr
	out, runErr := cmd.Output()
	results, text := readEvents(out)
	if verbose || runErr != nil {
		fmt.Print(text)
	}
	if len(results) == 0 && runErr != nil {
		return nil, fmt.Errorf("run tests: %w", runErr)
	}
	return results, nil
}

// readEvents returns the results of the top-level tests and the whole output.
func readEvents(events []byte) ([]result, string) {
	var results []result
	var text strings.Builder
	for line := range strings.Lines(string(events)) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal([]byte(line), &e) != nil {
			text.WriteString(line)
			continue
		}
		text.WriteString(e.Output)
		if e.Test == "" || strings.Contains(e.Test, "/") {
			continue
		}
		switch e.Action {
		case "pass", "fail":
			results = append(results, result{e.Test, e.Action == "fail"})
		}
	}
	return results, text.String()
}
