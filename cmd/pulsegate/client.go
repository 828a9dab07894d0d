package main

import (
	"fmt"
	"io"
	"os"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// tokenVariable holds a token, as an environment variable.
const tokenVariable = "PULSEGATE_TOKEN"

// clientFlags are those of commands that talk to a server.
type clientFlags struct {
	transfer.CredentialFiles `embed:""`
}

// credentials reads the files that the flags name. It warns of a token that others can
// overhear.
func (f *clientFlags) credentials(target string, stderr io.Writer) (transfer.Credentials, error) {
	if err := notToken("--token-file", f.TokenFile); err != nil {
		return transfer.Credentials{}, err
	}
	cred, err := f.Load(target, os.Getenv(tokenVariable))
	if cred.Exposed {
		fmt.Fprintln(stderr, "warning: token and readings travel in clear text; use https")
	}
	return cred, err
}

// connect returns a client of the server at target.
func (f *clientFlags) connect(target string, stderr io.Writer) (*transfer.Client, error) {
	cred, err := f.credentials(target, stderr)
	if err != nil {
		return nil, err
	}
	return transfer.NewClient(target, cred)
}

// notToken refuses the text of a token where a file is to be named: errors and logs repeat
// names of files.
func notToken(flag, path string) error {
	if token.IsText(path) {
		return settings.Usagef("%s is to name a file, and was given the text of a token", flag)
	}
	return nil
}
