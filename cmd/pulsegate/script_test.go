package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the command lines in testdata/script as a user types them.
//
// The commands in addition to those of testscript are:
//
//	serve NAME ARG...    start a server; $NAME is its URL, $NAME_ADDR its host and port,
//	                     $NAME_ADMIN the URL of its admin listener, if ARG... name one, and
//	                     $NAME_ADMIN_ADDR its host and port
//	                     $NAME_MQTT that of its MQTT listener, likewise
//	                     $NAME_MLLP the host and port of its MLLP listener, likewise
//	term NAME            send it SIGTERM and check that it exits with 0
//	kill9 NAME           send it SIGKILL
//	hup NAME             send it SIGHUP
//	log NAME             print its standard error so far
//	jsonlines FILE       check that every line of a file is a JSON object
//	certificates         create ca.pem, and server.pem, bed-1.pem, bed-2.pem and
//	                     stranger.pem with their .key; another CA signed the last
//	post URL FILE        POST a file and print the status and the answer
//	get URL              GET, and print the status and the answer
//	await URL TEXT       GET until the answer is 200 and contains TEXT
//	profile URL DIR TEXT take profiles, each longer than the one before, until one
//	                     contains TEXT; print it, and save it in DIR
//
// $RECORDING is the path of the project's recording.
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script", nil)
}

// runScripts runs the scripts in dir, with further environment variables.
func runScripts(t *testing.T, dir string, variables map[string]string) {
	bin := program(t)
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			for key, value := range variables {
				env.Setenv(key, value)
			}
			env.Setenv("PATH", filepath.Dir(bin)+string(os.PathListSeparator)+env.Getenv("PATH"))
			recording, err := filepath.Abs("../../internal/client/recording/mimic2/s00001.csv")
			if err != nil {
				return err
			}
			env.Setenv("RECORDING", recording)
			env.Values[servers{}] = map[string]*process{}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"serve": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) == 0 {
					ts.Fatalf("usage: serve NAME ARG...")
				}
				p := start(t, bin, ts.MkAbs(args[0]+"-data"), args[1:]...)
				ts.Defer(p.kill)
				ts.Value(servers{}).(map[string]*process)[args[0]] = p
				ts.Setenv(args[0], "http://"+p.addr)
				ts.Setenv(args[0]+"_ADDR", p.addr)
				if p.admin != "" {
					ts.Setenv(args[0]+"_ADMIN", "http://"+p.admin)
					ts.Setenv(args[0]+"_ADMIN_ADDR", p.admin)
				}
				if p.mqtt != "" {
					ts.Setenv(args[0]+"_MQTT", "mqtt://"+p.mqtt)
				}
				if p.mllp != "" {
					ts.Setenv(args[0]+"_MLLP", p.mllp)
				}
			},
			"term": func(ts *testscript.TestScript, neg bool, args []string) {
				p := running(ts, args)
				if code := p.stop(); code != 0 {
					ts.Fatalf("exit code %d:\n%s", code, p.stderr())
				}
			},
			"kill9": func(ts *testscript.TestScript, neg bool, args []string) {
				running(ts, args).kill()
			},
			"hup": func(ts *testscript.TestScript, neg bool, args []string) {
				running(ts, args).signal(syscall.SIGHUP)
			},
			"log": func(ts *testscript.TestScript, neg bool, args []string) {
				p := running(ts, args[:min(1, len(args))])
				for _, text := range args[1:] {
					want := regexp.MustCompile(text)
					if !polltest.Within(polltest.Patience, func() bool { return want.MatchString(p.stderr()) }) {
						ts.Fatalf("the log of %s never contained %q:\n%s", args[0], text, p.stderr())
					}
				}
				_, err := io.WriteString(ts.Stdout(), p.stderr())
				ts.Check(err)
			},
			"jsonlines": func(ts *testscript.TestScript, neg bool, args []string) {
				for line := range strings.Lines(ts.ReadFile(args[0])) {
					var object map[string]any
					if err := json.Unmarshal([]byte(line), &object); err != nil {
						ts.Fatalf("not a JSON object: %v: %s", err, line)
					}
				}
			},
			"certificates": func(ts *testscript.TestScript, neg bool, args []string) {
				writeCertificates(t, ts.MkAbs("."))
			},
			"await": func(ts *testscript.TestScript, neg bool, args []string) {
				await(ts, args[0], args[1])
			},
			"profile": func(ts *testscript.TestScript, neg bool, args []string) {
				profile(ts, bin, args[0], ts.MkAbs(args[1]), args[2])
			},
			"post": func(ts *testscript.TestScript, neg bool, args []string) {
				ask(ts, http.MethodPost, args[0], ts.ReadFile(args[1]))
			},
			"get": func(ts *testscript.TestScript, neg bool, args []string) {
				ask(ts, http.MethodGet, args[0], "")
			},
		},
	})
}

// servers is the key of a script's running servers.
type servers struct{}

// running returns the server that a command names.
func running(ts *testscript.TestScript, args []string) *process {
	if len(args) != 1 {
		ts.Fatalf("want the name of one server")
	}
	p, ok := ts.Value(servers{}).(map[string]*process)[args[0]]
	if !ok {
		ts.Fatalf("no server is called %s", args[0])
	}
	return p
}

// await requests a page until it contains a text.
func await(ts *testscript.TestScript, url, text string) {
	client := &http.Client{Timeout: polltest.Patience}
	defer client.CloseIdleConnections()
	var last string
	if !polltest.Within(polltest.Patience, func() bool {
		resp, err := client.Get(url)
		ts.Check(err)
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		ts.Check(err)
		last = fmt.Sprintf("%s\n%s", resp.Status, page)
		return resp.StatusCode == http.StatusOK && strings.Contains(last, text)
	}) {
		ts.Fatalf("%s never contained %q; the last answer:\n%s", url, text, last)
	}
}

// profile takes profiles until one contains a text. The test cannot control how much processor
// time a server gets in a second, and so how often it is sampled.
func profile(ts *testscript.TestScript, bin, url, dir, text string) {
	var out, errs bytes.Buffer
	seconds := 1
	if !polltest.Within(polltest.Patience, func() bool {
		ts.Check(os.RemoveAll(dir))
		out.Reset()
		ctx, cancel := context.WithTimeout(context.Background(), 2*polltest.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, "profile", url, "--save", dir, "--for", fmt.Sprintf("%ds", seconds))
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			ts.Fatalf("profile: %v\n%s%s", err, &out, &errs)
		}
		seconds *= 2
		return strings.Contains(out.String(), text)
	}) {
		ts.Fatalf("no profile shows %s; the last one:\n%s", text, &out)
	}
	_, err := ts.Stdout().Write(out.Bytes())
	ts.Check(err)
}

// ask sends a request and prints the status and the answer.
func ask(ts *testscript.TestScript, method, url, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	ts.Check(err)
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	var out bytes.Buffer
	out.WriteString(resp.Status + "\n")
	out.Write(text)
	out.WriteByte('\n')
	_, err = ts.Stdout().Write(out.Bytes())
	ts.Check(err)
}
