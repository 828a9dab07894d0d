package deploy_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/pulsegate/pulsegate/deploy/test/dockerfile"
)

// readImage reads the Dockerfile.
func readImage() (*dockerfile.Image, error) {
	return dockerfile.Read(filepath.Join(root, "Dockerfile"))
}

// buildImage executes the build stage in dir: it copies the sources, except those
// excluded by .dockerignore, to dir/src, and replaces /out by dir/out.
func buildImage(dir string) error {
	img, err := readImage()
	if err != nil {
		return err
	}
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := copyContext(src); err != nil {
		return err
	}
	for _, line := range img.Build {
		if strings.HasPrefix(line, "go mod download") {
			continue // go build downloads missing modules
		}
		line = strings.ReplaceAll(line, "/out/", out+"/")
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "VERSION=0.0.0-test", "GOWORK=off")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", line, err, output)
		}
	}
	return nil
}

// copyContext copies the build context to dst.
func copyContext(dst string) error {
	ignored, err := ignoredFiles()
	if err != nil {
		return err
	}
	return fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Skipping saves time.
			if skip && !holdsException(ignored, name) {
				return fs.SkipDir
			}
			return nil
		}
		if skip || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		to := filepath.Join(dst, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// holdsException reports whether .dockerignore has an exception for a file below dir.
func holdsException(ignored *patternmatcher.PatternMatcher, dir string) bool {
	return slices.ContainsFunc(ignored.Patterns(), func(p *patternmatcher.Pattern) bool {
		return p.Exclusion() && strings.HasPrefix(p.String(), dir+"/")
	})
}

func ignoredFiles() (*patternmatcher.PatternMatcher, error) {
	f, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, err
	}
	return patternmatcher.New(patterns)
}

// TestDockerfile checks that the image meets the requirements of security scanners and
// OpenShift.
func TestDockerfile(t *testing.T) {
	img, err := readImage()
	try(t, err)
	t.Run("bases", func(t *testing.T) {
		if last := img.From[len(img.From)-1]; last != "scratch" {
			t.Errorf("the image is based on %s, want scratch, which has no package manager and no shell", last)
		}
		gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
		try(t, err)
		minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(gomod)[1]
		want := regexp.MustCompile(`^golang:` + regexp.QuoteMeta(string(minor)) + `\.\d+-[a-z]+@sha256:[0-9a-f]{64}$`)
		for _, base := range img.From[:len(img.From)-1] {
			if !want.MatchString(base) {
				t.Errorf("the base image %s is not pinned to a version of Go %s, a system and a digest", base, minor)
			}
		}
	})
	t.Run("user", func(t *testing.T) {
		if !regexp.MustCompile(`^[1-9][0-9]*:0$`).MatchString(img.User) {
			t.Errorf("USER is %q, want a number other than 0, as runAsNonRoot requires, and group 0", img.User)
		}
	})
	t.Run("volume", func(t *testing.T) {
		if !slices.Equal(img.Volumes, []string{img.Dir}) {
			t.Errorf("the volumes are %q, want only the working directory %q, so that relative paths are in the volume",
				img.Volumes, img.Dir)
		}
		for _, c := range img.Copied {
			if c.DestPath == img.Dir && (c.Chown != img.User || c.Chmod != "0770") {
				t.Errorf("%s has the owner %s and the mode %s, want %s and 0770: group 0 must be able to write", c.DestPath,
					c.Chown, c.Chmod, img.User)
			}
		}
	})
	t.Run("signals", func(t *testing.T) {
		if img.Stop != "SIGTERM" {
			t.Errorf("STOPSIGNAL is %q, want SIGTERM, at which the server drains", img.Stop)
		}
		if len(img.Entry) != 1 || !slices.Equal(img.Cmd, []string{"serve"}) {
			t.Errorf("ENTRYPOINT is %q and CMD is %q: the server must be process 1, which receives the signal",
				img.Entry, img.Cmd)
		}
	})
	t.Run("labels", func(t *testing.T) {
		for _, label := range []string{"title", "description", "source", "documentation", "licenses", "version", "revision"} {
			if img.Labels["org.opencontainers.image."+label] == "" {
				t.Errorf("the label org.opencontainers.image.%s is missing", label)
			}
		}
	})
}

// TestHadolint checks that hadolint reports no problems in the Dockerfile.
func TestHadolint(t *testing.T) {
	if out, code := run(t, exec.Command(tool(t, "hadolint"), "--no-color", filepath.Join(root, "Dockerfile"))); code != 0 {
		t.Errorf("hadolint:\n%s", out)
	}
}
