package archtest_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Each pattern of .ci/in-turn.txt matches a test, so that a renamed test is not skipped in vain.
func TestInTurnNamesTests(t *testing.T) {
	tree := os.DirFS(root)
	var names []string
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path.Base(name), "_test.go") {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(tree, ".ci/in-turn.txt")
	if err != nil {
		t.Fatal(err)
	}
	patterns := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		patterns++
		test, _, _ := strings.Cut(strings.TrimSpace(line), "/")
		pattern, err := regexp.Compile(test)
		if err != nil {
			t.Errorf("%s: %v", test, err)
			continue
		}
		found := false
		for _, name := range names {
			found = found || pattern.MatchString(name)
		}
		if !found {
			t.Errorf("no test has a name that matches %s", test)
		}
	}
	if patterns == 0 || len(names) == 0 {
		t.Errorf("%d patterns and %d tests found", patterns, len(names))
	}
}
