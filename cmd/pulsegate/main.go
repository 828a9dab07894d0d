// Command pulsegate accepts vital-sign readings over HTTP, acknowledges them when they are on
// stable storage, and serves them.
//
// This package connects flags with packages and holds no logic of its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
	"github.com/pulsegate/pulsegate/internal/server"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
	"github.com/pulsegate/pulsegate/internal/sys/terminal"
	"github.com/pulsegate/pulsegate/vitals"
)

// Exit codes. Scripts rely on them. Go ends a process with 2 after a panic, a fatal error and
// signals such as SIGABRT, so no other cause has this code; wrong usage has EX_USAGE of
// sysexits(3), for which a service manager does not start a server again.
const (
	exitDone     = 0
	exitFailed   = 1
	exitRejected = 3
	exitUsage    = 64
)

func main() {
	sharedfile.CreatePrivately() // what is written is readings, tokens or made of them
	// The first signal cancels ctx, and the command ends in good order. A second signal has
	// its default effect.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	std := stdio{in: os.Stdin, out: terminal.Guard(os.Stdout), err: terminal.Guard(os.Stderr)}
	if len(os.Args) > 1 && os.Args[1] == "serve" { // a reload may be asked for while the settings are read
		std.hangups = make(chan os.Signal, 1)
		signal.Notify(std.hangups, syscall.SIGHUP)
	}
	os.Exit(run(ctx, os.Args[1:], std))
}

// stdio holds the standard streams of a command, and for serve what receives SIGHUP.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	hangups  chan os.Signal
}

// commands describes the command line. Each command is described beside its code.
type commands struct {
	common

	Serve  serveCommand  `cmd:"" group:"server" help:"Accept readings over HTTP, store them and serve them."`
	Demo   demoCommand   `cmd:"" group:"server" help:"Start a server, send it a recording over HTTP, show what it stored, and keep serving."`
	Health healthCommand `cmd:"" group:"server" help:"Report a server's readiness by exit code: 0 if it is ready, otherwise 1."`

	Devices    devicesCommand    `cmd:"" group:"readings" help:"List the devices of a server with their latest values."`
	Latest     latestCommand     `cmd:"" group:"readings" help:"Show the latest value of each vital sign of a device."`
	Import     importCommand     `cmd:"" group:"readings" help:"Send a CSV or NDJSON file of readings to a server."`
	Export     exportCommand     `cmd:"" group:"readings" help:"Write the readings of a device, from a server or a data directory, or everything that a server has."`
	Changes    changesCommand    `cmd:"" group:"readings" help:"Write everything that a server has, and then what changes in it, as NDJSON."`
	Forward    forwardCommand    `cmd:"" group:"readings" help:"Send everything that a server has, and then what changes in it, to a webhook."`
	Mapping    mappingCommand    `cmd:"" group:"readings" help:"Test files that map payloads which others designed to readings."`
	Alerts     alertsCommand     `cmd:"" group:"readings" help:"Test rules of alerts on stored readings."`
	Rejections rejectionsCommand `cmd:"" group:"readings" help:"List the readings that a server rejected without being able to tell the client."`

	Token   tokenCommand   `cmd:"" group:"admin" help:"Create, list and revoke the tokens of gateways and readers."`
	Backup  backupCommand  `cmd:"" group:"admin" help:"Write a consistent, verified copy of a store to a directory."`
	Restore restoreCommand `cmd:"" group:"admin" help:"Create a data directory from a backup, without overwriting anything."`
	Check   checkCommand   `cmd:"" group:"admin" help:"Verify the data directory of a stopped server, without changing it, and count its contents."`
	Migrate migrateCommand `cmd:"" group:"admin" help:"Move a store from a directory to PostgreSQL, or back, and prove that both are equal."`
	Store   storeCommand   `cmd:"" group:"admin" help:"Decide about a PostgreSQL database that lacks what was acknowledged."`
	Erase   eraseCommand   `cmd:"" group:"admin" help:"Remove all readings of a device, or of a subject, for good."`
	Subject subjectCommand `cmd:"" group:"admin" help:"Assign devices to subjects, the patients who wear them."`
	Audit   auditCommand   `cmd:"" group:"admin" help:"Verify the audit log, or create the key that signs it."`

	Sim     simCommand     `cmd:"" group:"load" help:"Load a server with simulated gateways, and prove that it stored all it acknowledged."`
	Profile profileCommand `cmd:"" group:"load" help:"Show what a request costs a running server, by function and line."`

	Help       helpCommand       `cmd:"" group:"more" help:"Show the help of a command."`
	Version    versionCommand    `cmd:"" group:"more" help:"Show the version, the Go version and the build settings."`
	Completion completionCommand `cmd:"" group:"more" help:"Print a script that completes command lines in a shell."`
	Man        manCommand        `cmd:"" group:"more" help:"Print the manual page in the format of man(1)."`
	Complete   completeCommand   `cmd:"" group:"more" name:"__complete" hidden:""`
}

// common are the flags of all commands.
type common struct {
	settings.Settings `embed:""`

	ShowVersion versionFlag `name:"version" action:"" help:"Print the version and exit."`
}

// options returns the options of kong that make the commands of c those of a parser: the one with a name, or all if
// that is empty or no command has it.
func (c *commands) options(only string) (some []kong.Option) {
	v := reflect.ValueOf(c).Elem()
	var all []kong.Option
	for f, value := range v.Fields() {
		if _, is := f.Tag.Lookup("cmd"); !is {
			continue
		}
		var tags []string
		if _, hidden := f.Tag.Lookup("hidden"); hidden {
			tags = []string{`hidden:""`}
		}
		name := cmp.Or(f.Tag.Get("name"), strings.ToLower(f.Name))
		all = append(all, kong.DynamicCommand(name, f.Tag.Get("help"), f.Tag.Get("group"), value.Addr().Interface(), tags...))
		if name == only {
			return all[len(all)-1:]
		}
	}
	return all
}

// only returns the name of the command that args name, if no other need be known: reading the descriptions of all takes
// two thirds of the CPU time of a start. Help, a file with settings and variables, which may belong to other commands,
// need all.
func only(args, environ []string) string {
	if len(args) == 0 || slices.Contains([]string{"help", "completion", "man", "__complete"}, args[0]) {
		return ""
	}
	file := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--config") })
	variable := slices.ContainsFunc(environ, func(entry string) bool {
		return strings.HasPrefix(entry, "PULSEGATE_") && !strings.HasPrefix(entry, tokenVariable+"=")
	})
	if file || variable {
		return ""
	}
	return args[0]
}

// groups are the headings of commands and flags in help texts.
func groups() []kong.Group {
	return []kong.Group{
		{Key: "server", Title: "Run a server:"},
		{Key: "readings", Title: "Read and write readings:"},
		{Key: "admin", Title: "Administer:"},
		{Key: "load", Title: "Measure:"},
		{Key: "more", Title: "More:"},

		{Key: "first", Title: "What most people set:"},
		{Key: "store", Title: "Keep readings:"},
		{Key: "access", Title: "Decide who may write and read:"},
		{Key: "oidc", Title: "Let people and programs sign in at an identity provider:"},
		{Key: "audit", Title: "Keep an audit log:"},
		{Key: "readings-limits", Title: "Decide which readings to accept, and how to show them:"},
		{Key: "inputs", Title: "Accept other formats and protocols:"},
		{Key: "alerts", Title: "Send alerts:"},
		{Key: "limits", Title: "Bound memory and times:"},
		{Key: "observe", Title: "Log and trace:"},
		{Key: "credentials", Title: "Credentials:"},
	}
}

// run runs one command line and returns its exit code. It is main without the process, for
// tests.
func run(ctx context.Context, args []string, std stdio) (code int) {
	defer func() {
		if r := recover(); r != nil {
			exit, ok := r.(exitCode)
			if !ok {
				panic(r)
			}
			code = int(exit)
		}
	}()
	var cmds commands
	parser, err := newParser(&cmds, std, only(args, os.Environ()))
	if err != nil {
		return report(std, exitFailed, err.Error())
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		var node *kong.Node
		if parseErr, ok := errors.AsType[*kong.ParseError](err); ok {
			if node = parseErr.Context.Selected(); len(args) == 0 {
				_ = parseErr.Context.PrintUsage(false) // the error follows in any case
			}
		}
		return report(std, exitUsage, settings.ErrorText(err)+"\n"+seeHelp(node))
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	serve, serves := kctx.Selected().Target.Addr().Interface().(*serveCommand)
	if !serves { // serve logs them
		for _, text := range unknownVariables(kctx) {
			_ = report(std, exitDone, "warning: "+text)
		}
	}
	if err = kctx.Run(std); err == nil {
		return exitDone
	}
	code, text := exitFailed, err.Error()
	if errors.Is(err, errRejected) {
		code = exitRejected
	}
	if _, usage := errors.AsType[settings.UsageError](err); usage {
		node := kctx.Selected()
		if node.Name == "help" { // the error is about another command
			node = nil
		}
		code, text = exitUsage, text+"\n"+seeHelp(node)
	}
	if serves && !serve.PrintConfig {
		server.LastLine(std.err, &serve.LogOptions, text)
		return code
	}
	if todo := hint(kctx.Selected(), err); todo != "" && code == exitFailed {
		text += "\n" + todo
	}
	return report(std, code, text)
}

// report prints an error or a warning, and returns code.
func report(std stdio, code int, text string) int {
	logbudget.LastLine(std.err, "pulsegate: "+text+"\n")
	return code
}

// seeHelp returns a sentence that names the help of a command, or of the program for nil.
func seeHelp(node *kong.Node) string {
	if node == nil {
		return "Run 'pulsegate --help' for the commands."
	}
	if len(node.Children) > 0 && node.DefaultCmd == nil {
		return fmt.Sprintf("Run '%s --help' for its commands.", node.FullPath())
	}
	return fmt.Sprintf("Run '%s --help' for its flags.", node.FullPath())
}

// An exitCode unwinds from kong's call of exit, for example after --help.
type exitCode int

// newParser returns the parser of the command line, which knows one command, or all if only is empty. It also reads the
// environment and the file that --config names.
func newParser(cmds *commands, std stdio, only string) (*kong.Kong, error) {
	cmds.LookupEnv = os.LookupEnv
	return kong.New(&cmds.common, append(cmds.options(only),
		kong.Bind(cmds),
		kong.Name("pulsegate"),
		kong.Description(
			"Accepts readings of wearables over HTTP, acknowledges them when they are on stable storage, and serves them."),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { panic(exitCode(code)) }),
		kong.ExplicitGroups(groups()),
		settings.Defaults(server.Defaults()),
		settings.Environment(),
		settings.Units(),
		settings.Text(vitals.ParseName),
		settings.Text(token.ParseRights),
		settings.Text(token.ParseID),
		settings.Text(storage.ParseSubject),
		settings.Text(parseMoment),
		settings.Help(),
		details(),
		kong.Help(printHelp),
	)...)
}

// unknownVariables returns a sentence about each environment variable that sets nothing.
func unknownVariables(ctx *kong.Context) []string {
	return settings.UnknownVariables(os.Environ(), ctx.Model.Node, tokenVariable)
}
