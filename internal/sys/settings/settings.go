// Package settings reads the settings of a command line.
//
// They come from flags, from the environment, from a file and from defaults; the
// first of these that has one wins. docs/configuration.md lists them, written by
// [WriteReference].
//
// # Not here
//
// Which settings there are: the fields of the commands say so, in the tags of kong.
// The environment is not read here, but handed over.
package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Settings are the flags of all commands, and what the file that they name holds.
type Settings struct {
	// LookupEnv is os.LookupEnv.
	LookupEnv func(name string) (string, bool) `kong:"-"`

	file *configFile // nil: none

	Config string `type:"path" placeholder:"FILE" help:"TOML file with settings; flags and environment variables override it. See docs/configuration.md."`
}

// BeforeResolve reads the file, and lets kong ask it for what neither flags nor
// the environment set.
func (c *Settings) BeforeResolve(ctx *kong.Context) error {
	for _, flag := range ctx.Model.Flags {
		if flag.Name != "config" {
			continue
		}
		path, _ := ctx.FlagValue(flag).(string)
		if path == "" {
			return nil
		}
		var err error
		if c.file, err = readConfigFile(path, ctx.Model, c.LookupEnv); err != nil {
			return err
		}
		ctx.AddResolver(c.file)
	}
	return nil
}

// variablePrefix begins the name of every environment variable of pulsegate.
const variablePrefix = "PULSEGATE_"

// Environment gives every flag its variable: --max-ahead has PULSEGATE_MAX_AHEAD,
// whatever the command. A flag that is tagged env:"-" means something else than its
// namesakes; its variable has the command in it, as in PULSEGATE_DEMO_DATA. One
// that is tagged action:"" says what to do now, and has none.
func Environment() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		return eachFlag(k.Model.Node, func(node *kong.Node, flag *kong.Flag) error {
			if flag.Name == "help" || isAction(flag) {
				flag.Envs, flag.Tag.Envs = nil, nil
				return nil
			}
			words := flag.Name
			if slices.Equal(flag.Envs, []string{"-"}) {
				words = node.Path() + "-" + flag.Name
			} else if len(flag.Envs) > 0 {
				return nil
			}
			name := variablePrefix + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(words))
			flag.Envs, flag.Tag.Envs = []string{name}, []string{name}
			return nil
		})
	})
}

// isAction tells flags that say what to do now from settings.
func isAction(flag *kong.Flag) bool { return flag.Tag.Has("action") }

// eachFlag visits the flags of a command and of those below it, in the order in
// which help shows them.
func eachFlag(node *kong.Node, visit func(*kong.Node, *kong.Flag) error) error {
	for _, flag := range node.Flags {
		if err := visit(node, flag); err != nil {
			return err
		}
	}
	for _, child := range node.Children {
		if err := eachFlag(child, visit); err != nil {
			return err
		}
	}
	return nil
}

// variableOf returns the environment variable that sets a flag, if one does.
func variableOf(flag *kong.Flag, lookup func(string) (string, bool)) (name string, ok bool) {
	for _, name := range flag.Envs {
		if _, ok := lookup(name); ok {
			return name, true
		}
	}
	return "", false
}

// serviceVariable is what Kubernetes adds to the environment of every container
// for a Service called pulsegate, or pulsegate-public. A port is tcp://10.0.0.1:80.
var serviceVariable = regexp.MustCompile(`^PULSEGATE(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?=.*|PORT=(tcp|udp|sctp)://.*|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=.*)$`)

// UnknownVariables returns a sentence about each variable that begins as those of
// pulsegate do and is none of them; also names one that is no flag's. Values are not
// in it: they may be secret.
func UnknownVariables(environ []string, app *kong.Node, also string) []string {
	known := []string{also}
	_ = eachFlag(app, func(_ *kong.Node, flag *kong.Flag) error {
		known = append(known, flag.Envs...)
		return nil
	})
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(known, name) || serviceVariable.MatchString(entry) {
			continue
		}
		unknown = append(unknown, fmt.Sprintf("the environment variable %s sets nothing%s", name, didYouMean(name, known)))
	}
	slices.Sort(unknown)
	return unknown
}

// didYouMean returns a question for the candidate that is most like what was
// written, or nothing if none is.
func didYouMean(written string, candidates []string) string {
	best, bestDistance := "", max(2, len(written)/4)+1
	for _, candidate := range candidates {
		if d := editDistance(normalise(written), normalise(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// normalise makes equal what differs in habit only: max_batch_bytes and
// max-batch-bytes.
func normalise(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// editDistance returns how many bytes have to be added, removed or changed to make
// b of a (Levenshtein's distance), where two that are swapped count once.
func editDistance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	before, last, row := rows[0], rows[1], rows[2]
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
