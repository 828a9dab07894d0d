package audit

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// filesOf returns the files of a log, oldest first. Numbers may be missing: a crash during
// a rotation leaves a gap, which the next rotation closes.
func filesOf(path string) ([]string, error) {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, fmt.Errorf("list audit log files: %w", err)
	}
	var older []int
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), name+".")
		n, err := strconv.Atoi(text)
		if ok && err == nil && n > 0 && strconv.Itoa(n) == text {
			older = append(older, n)
		}
	}
	slices.Sort(older)
	var files []string
	for _, n := range slices.Backward(older) {
		files = append(files, fmt.Sprintf("%s.%d", path, n))
	}
	return append(files, path), nil
}
