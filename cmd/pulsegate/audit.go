package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pulsegate/pulsegate/internal/access/audit"
)

type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Find records that were changed, removed or inserted, without changing the log."`
	Key    auditKeyCommand    `cmd:"" help:"Create a key that signs the audit log, and print its public half, which verifies the log."`
}

type auditVerifyCommand struct {
	File     string `arg:"" optional:"" default:"${default_audit}" env:"PULSEGATE_AUDIT" help:"Audit log. Its older files FILE.1, FILE.2 and so on, and what clients cause in FILE.clients, are verified too."`
	AuditKey string `type:"path" placeholder:"FILE" help:"Key that signs the log, or its public half. It detects missing signed records; with FILE.head, also those at the end of the log."`
}

func (c *auditVerifyCommand) Run(std stdio) error {
	var key *audit.Key
	if c.AuditKey != "" {
		var err error
		if key, err = audit.LoadKey(c.AuditKey); err != nil {
			return err
		}
	}
	if err := c.verify(std, c.File, key, c.AuditKey); err != nil {
		return err
	}
	clients, key := c.File+audit.ClientsSuffix, key.ForClients()
	if _, err := os.Stat(clients); errors.Is(err, fs.ErrNotExist) && !key.HasHead() {
		return nil // no server has written to this log
	}
	return c.verify(std, clients, key, c.AuditKey+audit.ClientsSuffix)
}

// verify verifies a log, which a key may have signed, and prints what it has.
func (c *auditVerifyCommand) verify(std stdio, path string, key *audit.Key, keyFile string) error {
	report, err := audit.VerifyLog(path, key)
	for _, file := range report.Files {
		fmt.Fprintf(std.out, "%s: records %d to %d\n", file.Path, file.FirstSeq, file.LastSeq)
		if file.TornBytes > 0 {
			fmt.Fprintf(std.err, "%s: %d bytes after the last record, of a record that is being written or was cut off\n",
				file.Path, file.TornBytes)
		}
	}
	if err == nil && report.Removed > 0 {
		err = fmt.Errorf("%w: records 1 to %d are missing: of %d older files that a log keeps, only %d are there",
			audit.ErrCorrupt, report.Removed, audit.DefaultKeep, len(report.Files)-1)
	}
	if err != nil {
		return err
	}
	signed := ""
	if key != nil {
		signed = fmt.Sprintf(" signed=%d", report.Signed)
		last := report.Files[len(report.Files)-1].LastSeq
		fmt.Fprintf(std.err, "Signed by key %s up to record %d, at %s. Records after it: %d.\n", key.ID(), report.Signed,
			report.SignedAt, last-report.Signed)
		if !report.Head {
			fmt.Fprintf(std.err, "Without %s.head, records that were cut off after that one cannot be detected.\n", keyFile)
		}
		if report.Others > 0 {
			fmt.Fprintf(std.err, "Signatures of other keys, not verified: %d.\n", report.Others)
		}
	}
	_, err = fmt.Fprintf(std.out, "ok records=%d chain=%s%s\n", report.Records, report.Chain, signed)
	return err
}

type auditKeyCommand struct {
	File string `arg:"" type:"path" help:"New file for the key, in a different directory from the log."`
}

func (c *auditKeyCommand) Run(std stdio) error {
	key, err := audit.CreateKey(c.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.err, "Key %s is in %s. Its public half follows on standard output.\n", key.ID(), c.File)
	_, err = std.out.Write(key.PublicPEM())
	return err
}
