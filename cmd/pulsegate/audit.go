package main

import (
	"fmt"

	"github.com/pulsegate/pulsegate/internal/access/audit"
)

type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Find records that were changed, removed or put in, without changing anything."`
}

type auditVerifyCommand struct {
	File string `arg:"" optional:"" default:"${default_audit}" env:"PULSEGATE_AUDIT" help:"Audit log. Its older files, FILE.1 and so on, are verified as well."`
}

func (c *auditVerifyCommand) Run(std stdio) error {
	records, chain := uint64(0), ""
	err := audit.VerifyFiles(c.File, func(path string, r audit.Report) {
		fmt.Fprintf(std.out, "%s: records %d to %d\n", path, r.FirstSeq, r.LastSeq)
		if r.TornBytes > 0 {
			fmt.Fprintf(std.err, "%s: %d bytes after the last record, of one that is being written or was cut off\n", path, r.TornBytes)
		}
		records, chain = records+r.Records, r.Chain
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "ok records=%d chain=%s\n", records, chain)
	return err
}
