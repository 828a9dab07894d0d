package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/audit"
)

type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Find records that were changed, removed or put in, without changing anything."`
}

type auditVerifyCommand struct {
	File string `arg:"" optional:"" default:"${default_audit}" env:"PULSEGATE_AUDIT" help:"Audit log. Its older files, FILE.1 and so on, are verified as well."`
}

func (c *auditVerifyCommand) Run(std stdio) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	records, last := uint64(0), audit.Report{}
	for i, path := range files {
		report, err := audit.VerifyFile(path)
		if err != nil {
			return err
		}
		if i > 0 && report.Prev != last.Chain {
			return fmt.Errorf("%w: %s does not follow %s", audit.ErrCorrupt, path, files[i-1])
		}
		fmt.Fprintf(std.out, "%s: records %d to %d\n", path, report.FirstSeq, report.LastSeq)
		if report.TornBytes > 0 {
			fmt.Fprintf(std.err, "%s: %d bytes behind the last record, of one that is being written or was cut off\n", path, report.TornBytes)
		}
		records, last = records+report.Records, report
	}
	_, err = fmt.Fprintf(std.out, "ok records=%d chain=%s\n", records, last.Chain)
	return err
}

// files returns the files of the log, oldest first. Numbers may be missing: a crash in
// the middle of a rotation leaves a gap, which the next one closes.
func (c *auditVerifyCommand) files() ([]string, error) {
	dir, name := filepath.Split(c.File)
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
		files = append(files, c.File+"."+strconv.Itoa(n))
	}
	return append(files, c.File), nil
}
