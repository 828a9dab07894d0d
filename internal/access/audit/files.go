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

// VerifyFiles verifies a log, its older files included, oldest first. It calls each with
// the report of each file that is valid and follows the one before. The error wraps
// [ErrCorrupt] if the log does not hold what was written.
func VerifyFiles(path string, each func(path string, r Report)) error {
	files, err := filesOf(path)
	if err != nil {
		return err
	}
	chain := ""
	for i, file := range files {
		report, err := VerifyFile(file)
		if err != nil {
			return err
		}
		if i > 0 && report.Prev != chain {
			return fmt.Errorf("%w: %s does not follow %s", ErrCorrupt, file, files[i-1])
		}
		each(file, report)
		chain = report.Chain
	}
	return nil
}

// filesOf returns the files of a log, oldest first. Numbers may be missing: a crash in the
// middle of a rotation leaves a gap, which the next one closes.
func filesOf(path string) ([]string, error) {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, fmt.Errorf("find audit log: %w", err)
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
		files = append(files, path+"."+strconv.Itoa(n))
	}
	return append(files, path), nil
}
