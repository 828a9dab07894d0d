package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/client/transfer"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/migrate"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// tokenVariable is the environment variable that holds a token.
const tokenVariable = "PULSEGATE_TOKEN"

// tokenHint follows the error of a command whose request was answered with 401.
const tokenHint = "Name a file that holds a valid token with --token-file, or set PULSEGATE_TOKEN. 'pulsegate token create' creates tokens."

// hint returns what to do about the error of a command, or "".
func hint(node *kong.Node, err error) string {
	address := "check the address"
	for _, flag := range node.Flags {
		if flag.Name == "target" {
			address = "set the server's address with --target"
		}
	}
	problem, answered := errors.AsType[*transfer.Problem](err)
	switch {
	case node.Name == "migrate" && errors.Is(err, storage.ErrLocked):
		return "Stop the servers that use the store."
	case node.Name == "migrate" && (errors.Is(err, migrate.ErrIncomplete) || errors.Is(err, context.Canceled)):
		return "Repeat the command to continue: what was copied stays in the target."
	case node.Name == "migrate" && errors.Is(err, syscall.ECONNREFUSED):
		return "Start PostgreSQL, or check the address."
	case answered && problem.Status == http.StatusUnauthorized:
		return tokenHint
	case answered && strings.HasSuffix(problem.Type, "#not-found") && (node.Name == "backup" || node.Name == "erase" || node.Parent != nil && node.Parent.Name == "subject"):
		return "--target must be the address of the admin listener."
	case answered && strings.HasSuffix(problem.Type, "#unknown-device"):
		return "'pulsegate devices' lists the devices."
	case answered && problem.Type == "":
		return "The answer is not from a Pulsegate server: " + address + "."
	case errors.Is(err, syscall.ECONNREFUSED):
		return "Start a server with 'pulsegate serve', or " + address + "."
	case errors.As(err, new(*net.DNSError)):
		return "The host name was not found: " + address + "."
	case errors.Is(err, http.ErrSchemeMismatch):
		return "The server does not use TLS: use http instead of https."
	case errors.Is(err, storage.ErrLocked):
		return "Stop the server that uses the directory, or copy its data with 'pulsegate backup'."
	case errors.Is(err, token.ErrNoMatch):
		return "'pulsegate token list' lists the tokens."
	}
	return ""
}

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
		return settings.Usagef("%s requires the name of a file, not a token", flag)
	}
	return nil
}
