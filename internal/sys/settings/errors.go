package settings

import (
	"errors"
	"regexp"

	"github.com/alecthomas/kong"
)

// rewordings replace error texts of kong that name its scanner or its syntax.
var rewordings = []struct {
	old *regexp.Regexp
	new string
}{
	{regexp.MustCompile(`^(--[\w-]+): expected \w+ value but got .*`), "$1 requires a value"},
	{regexp.MustCompile(`^expected "(<.*>)"$`), "missing argument: $1"},
	{regexp.MustCompile(`^expected one of (.*)`), "missing command: $1"},
	{regexp.MustCompile(`^\[(<[\w-]+>) \.\.\.\]: `), "$1: "},
}

var unexpectedArgument = regexp.MustCompile(`^unexpected argument ([^ ,]*)`)

// ErrorText returns the text of an error of kong's Parse, reworded for users.
func ErrorText(err error) string {
	text := err.Error()
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		if node := parse.Context.Selected(); node == nil || len(node.Children) > 0 {
			text = unexpectedArgument.ReplaceAllString(text, `unknown command "$1"`)
		}
	}
	for _, r := range rewordings {
		text = r.old.ReplaceAllString(text, r.new)
	}
	return text
}
