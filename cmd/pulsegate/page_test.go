package main_test

import (
	"fmt"
	"os"
	"strings"
)

// updatePage replaces the text between <!-- name:begin --> and <!-- name:end --> of a page.
func updatePage(path, name, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+":begin -->", "<!-- "+name+":end -->"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no block %s", path, name)
	}
	return os.WriteFile(path, []byte(before+begin+"\n\n"+strings.TrimSpace(text)+"\n\n"+end+after), 0o644)
}
