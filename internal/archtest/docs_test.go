package archtest_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestDocs checks the links in all Markdown files, and that they name files by links.
func TestDocs(t *testing.T) {
	pages, problems := checkDocs(t, os.DirFS(root))
	for _, p := range problems {
		t.Error(p)
	}
	// A walk that finds no pages would find no dead links.
	const atLeast = 20
	if pages < atLeast {
		t.Errorf("found %d pages, want at least %d", pages, atLeast)
	}
}

var (
	fence      = regexp.MustCompile("^ *```")
	inlineLink = regexp.MustCompile(`!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)`)
	definition = regexp.MustCompile(`^\[[^\]]+\]: (\S+)`)
	ownURL     = regexp.MustCompile(`https://github\.com/pulsegate/pulsegate/(?:blob|tree)/main/([^\s)>"` + "`" + `]*)`)
	word       = regexp.MustCompile("`[^`]*`|[^\\s`()\\[\\],;:|]+")
)

// checkDocs returns how many Markdown files a tree has, and what is wrong in them: links
// to files or headings that do not exist, and names of files that are not links. The
// changelog may name files, since it names those of former versions.
func checkDocs(t *testing.T, tree fs.FS) (pages int, problems []string) {
	t.Helper()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "."):
			return fs.SkipDir
		case path.Ext(name) != ".md":
			return nil
		}
		pages++
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		problems = append(problems, checkPage(tree, name, string(text))...)
		return nil
	})
	try(t, err)
	return pages, problems
}

func checkPage(tree fs.FS, name, text string) (problems []string) {
	inCode := false
	for i, line := range strings.Split(text, "\n") {
		report := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s:%d: ", name, i+1)+fmt.Sprintf(format, args...))
		}
		if fence.MatchString(line) {
			inCode = !inCode
		}
		if inCode {
			continue
		}
		follow := func(from, target string) {
			if dead := deadLink(tree, from, target); dead != "" {
				report("%s", dead)
			}
		}
		for _, m := range ownURL.FindAllStringSubmatch(line, -1) {
			follow("README.md", m[1])
		}
		for _, m := range inlineLink.FindAllStringSubmatch(line, -1) {
			follow(name, m[2])
		}
		if m := definition.FindStringSubmatch(line); m != nil {
			follow(name, m[1])
			continue
		}
		if name == "CHANGELOG.md" {
			continue
		}
		for _, w := range word.FindAllString(inlineLink.ReplaceAllString(line, ""), -1) {
			w = strings.TrimRight(strings.Trim(w, "`"), ".")
			if isPath(tree, name, w) {
				report("%s is not a link", w)
			}
		}
	}
	return problems
}

// isPath reports whether a word on a page is the path of a file, or of a folder of docs
// or deploy: from the root, or that of another page beside this one.
func isPath(tree fs.FS, page, w string) bool {
	if path.Ext(w) == ".md" && w != path.Base(page) {
		if _, err := fs.Stat(tree, path.Join(path.Dir(page), w)); err == nil {
			return true
		}
	}
	if !strings.Contains(w, "/") && path.Ext(w) != ".md" || strings.HasPrefix(w, "bin/") { // make writes bin
		return false
	}
	info, err := fs.Stat(tree, path.Clean(w))
	return err == nil && (!info.IsDir() || strings.HasPrefix(w, "docs/") || strings.HasPrefix(w, "deploy/"))
}

// deadLink returns why a link on page from leads nowhere, or "" if it does not. Links to
// other sites are not followed.
func deadLink(tree fs.FS, from, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, heading, hasHeading := strings.Cut(target, "#")
	if file == "" {
		file = from
	} else {
		file = path.Join(path.Dir(from), file)
	}
	if _, err := fs.Stat(tree, file); err != nil || strings.HasPrefix(file, "bin/") { // make writes bin
		return file + " does not exist"
	}
	if !hasHeading || path.Ext(file) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(tree, file)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), heading) {
		return file + " has no heading #" + heading
	}
	return ""
}

// anchors returns the anchors that GitHub makes of the headings of a page.
func anchors(text string) (all []string) {
	inCode, seen := false, map[string]int{}
	for line := range strings.Lines(text) {
		if fence.MatchString(line) {
			inCode = !inCode
		}
		title := strings.TrimLeft(line, "#")
		if inCode || title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		title = inlineLink.ReplaceAllString(strings.TrimSpace(title), "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		if n := seen[anchor]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			all = append(all, anchor)
		}
		seen[anchor]++
	}
	return all
}

// TestReadmeFigures checks that the README's measured figures are in the results of the
// benchmarks.
func TestReadmeFigures(t *testing.T) {
	readme, err := os.ReadFile(root + "/README.md")
	try(t, err)
	results, err := os.ReadFile(root + "/bench/results/ingest.txt")
	try(t, err)
	figures := regexp.MustCompile(`(\d[\d.,]*)\s+(?:µs|times|requests/s)`).FindAllStringSubmatch(string(readme), -1)
	if len(figures) < 3 {
		t.Errorf("the README has %d figures", len(figures))
	}
	for _, m := range figures {
		if !hasFigure(string(results), m[1]) {
			t.Errorf("the README says %q, and no table of bench/results/ingest.txt has it", m[0])
		}
	}
	if lines := strings.Count(string(readme), "\n"); lines > 150 {
		t.Errorf("the README has %d lines, want at most 150", lines)
	}
}

// hasFigure reports whether a cell of a table of results, or a line after a colon, begins
// with a figure, which may have commas between its digits.
func hasFigure(results, figure string) bool {
	return regexp.MustCompile(`[|:] ` + regexp.QuoteMeta(strings.ReplaceAll(figure, ",", "")) + `[ ,]`).
		MatchString(results)
}

// TestBenchmarkFigures checks the bold figures of docs/benchmarks.md: results that their
// row or paragraph links have them.
func TestBenchmarkFigures(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/benchmarks.md")
	try(t, err)
	bold, link := regexp.MustCompile(`\*\*([\d.,]+)\*\*`), regexp.MustCompile(`\]\(\.\./(bench/results/[a-z-]+\.txt)\)`)
	figures := 0
	for _, part := range regexp.MustCompile(`\n\n|\n\|`).Split(string(page), -1) {
		var results strings.Builder
		for _, m := range link.FindAllStringSubmatch(part, -1) {
			text, err := os.ReadFile(root + "/" + m[1])
			try(t, err)
			results.Write(text)
		}
		for _, m := range bold.FindAllStringSubmatch(part, -1) {
			figures++
			if !hasFigure(results.String(), m[1]) {
				t.Errorf("docs/benchmarks.md says %s, and no linked table has it:\n%s", m[1], part)
			}
		}
	}
	if figures < 40 {
		t.Errorf("docs/benchmarks.md has %d bold figures", figures)
	}
}

// TestDocsIndex checks that docs/README.md links all pages of docs.
func TestDocsIndex(t *testing.T) {
	index, err := os.ReadFile(root + "/docs/README.md")
	try(t, err)
	docs := os.DirFS(root + "/docs")
	for _, pattern := range []string{"*.md", "*/*.md"} {
		pages, err := fs.Glob(docs, pattern)
		try(t, err)
		for _, page := range pages {
			if page != "README.md" && !strings.Contains(string(index), "]("+page+")") {
				t.Errorf("docs/README.md has no link to %s", page)
			}
		}
	}
}
