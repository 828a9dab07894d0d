package main

import (
	"fmt"
	"io"
	"os"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// tokenVariable is the environment variable that holds a token.
const tokenVariable = "PULSEGATE_TOKEN"

// tokenHint follows the error of a command whose request was answered with 401.
const tokenHint = "Name a file that holds a valid token with --token-file, or set PULSEGATE_TOKEN. 'pulsegate token create' creates tokens."

// clientFlags are the flags of commands that talk to a server.
type clientFlags struct {
	transfer.CredentialFiles `embed:"" group:"credentials"`
}

// readerFlags are the flags of commands that read from the public listener.
type readerFlags struct {
	Target string `placeholder:"URL" default:"http://127.0.0.1:8080" help:"URL of the server."`

	clientFlags `embed:""`
}

// credentials reads the files that the flags name. It warns of a token that is sent in clear
// text.
func (f *clientFlags) credentials(target string, stderr io.Writer) (transfer.Credentials, error) {
	if err := notToken("--token-file", f.TokenFile); err != nil {
		return transfer.Credentials{}, err
	}
	cred, err := f.Load(target, os.Getenv(tokenVariable))
	if cred.Exposed {
		fmt.Fprintln(stderr, "warning: the token and the readings are sent in clear text; use https")
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

// notToken rejects the text of a token as the value of a flag that names a file. Errors and
// logs contain the names of files.
func notToken(flag, path string) error {
	if token.IsText(path) {
		return settings.Usagef("%s names a file, and was given the text of a token", flag)
	}
	return nil
}
