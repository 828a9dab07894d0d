package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestRelease builds a release for this machine twice, under different circumstances, and
// compares the files. make release-check does it for all platforms, in two clones.
//
// It was seen to fail with the time of the build in the archive, and with files that have
// the mode of the umask.
func TestRelease(t *testing.T) {
	t.Parallel() // after TestDebianPackage, which uses the same directory bin/_package
	if runtime.GOOS != "linux" {
		missing(t, "releases are built on Linux")
	}
	one, two := t.TempDir(), t.TempDir()
	target := "TARGETS=linux/" + runtime.GOARCH
	if out, code := run(t, script(t, "deploy/release", "VERSION=v1.2.3", target, "OUT="+one)); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	again := script(t, "deploy/release", "VERSION=1.2.3", target, "OUT="+two, "TZ=Asia/Tokyo", "LANG=tr_TR.UTF-8")
	again.Path, again.Args = "/bin/sh", []string{"sh", "-c", `umask 077; exec "$0"`, again.Path}
	if out, code := run(t, again); code != 0 {
		t.Fatalf("the second build: exit code %d\n%s", code, out)
	}
	sums := read(t, filepath.Join(one, "SHA256SUMS"))
	if other := read(t, filepath.Join(two, "SHA256SUMS")); other != sums {
		t.Errorf("two builds differ:\n%s\n%s", sums, other)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = one
	if out, code := run(t, check); code != 0 || strings.Count(out, ": OK") != len(files(t, one))-1 {
		t.Errorf("sha256sum: exit code %d\n%s", code, out)
	}

	name := "pulsegate_1.2.3_linux_" + runtime.GOARCH
	zip, err := gzip.NewReader(strings.NewReader(read(t, filepath.Join(one, name+".tar.gz"))))
	try(t, err)
	archive := untar(t, zip)
	for _, file := range []string{"README.md", "docs/tls.md", "docs/adr/0001-pebble.md", "LICENSE", "THIRD-PARTY-NOTICES",
		"pulsegate.1", "completions/pulsegate.zsh",
		"grafana-dashboard.json", "grafana-device.json", "grafana-patient.json"} {
		if len(archive[name+"/"+file].text) == 0 {
			t.Errorf("%s is missing in the archive", file)
		}
	}
	program := archive[name+"/pulsegate"]
	unpacked := filepath.Join(t.TempDir(), "pulsegate")
	try(t, os.WriteFile(unpacked, program.text, os.FileMode(program.Mode)))
	if out, code := run(t, exec.Command(unpacked, "version")); code != 0 || !strings.HasPrefix(out, "pulsegate 1.2.3\n") {
		t.Errorf("the program's version: exit code %d\n%s", code, out)
	}
	checkImage(t, filepath.Join(one, "pulsegate_1.2.3_image.tar"), program.text)

	var list struct {
		Packages []struct{ Name, LicenseDeclared string }
	}
	try(t, json.Unmarshal([]byte(read(t, filepath.Join(one, "pulsegate_1.2.3.spdx.json"))), &list))
	licences := map[string]string{}
	for _, p := range list.Packages {
		licences[p.Name] = p.LicenseDeclared
	}
	for _, module := range []string{"github.com/pulsegate/pulsegate", "stdlib", "github.com/cockroachdb/pebble/v2",
		"golang.org/x/sys"} {
		if licences[module] == "" {
			t.Errorf("the SBOM lacks %s, or its licence", module)
		}
	}
}

// TestReleaseVersion checks that a release needs a version.
func TestReleaseVersion(t *testing.T) {
	for _, version := range []string{"", "latest", "1.2"} {
		if out, code := run(t, script(t, "deploy/release", "VERSION="+version, "OUT="+t.TempDir())); code != 2 {
			t.Errorf("VERSION=%s: exit code %d, want 2\n%s", version, code, out)
		}
	}
}

// checkImage checks that an OCI archive is consistent, and that its image is that of the
// Dockerfile, with the program.
func checkImage(t *testing.T, path string, program []byte) {
	t.Helper()
	archive := untar(t, strings.NewReader(read(t, path)))
	blob := func(d v1.Descriptor, into any) []byte {
		t.Helper()
		text := archive["blobs/sha256/"+d.Digest.Encoded()].text
		if digest.FromBytes(text) != d.Digest || int64(len(text)) != d.Size {
			t.Fatalf("%s is missing, or its digest or size is another", d.Digest)
		}
		if into != nil {
			try(t, json.Unmarshal(text, into))
		}
		return text
	}
	var top, index v1.Index
	try(t, json.Unmarshal(archive["index.json"].text, &top))
	blob(top.Manifests[0], &index)
	var manifest v1.Manifest
	blob(index.Manifests[0], &manifest)
	var config dockerspec.DockerOCIImage
	blob(manifest.Config, &config)

	img, err := readImage()
	try(t, err)
	got := config.Config
	if got.User != img.User || !slices.Equal(got.Env, img.Env) || !slices.Equal(got.Entrypoint, img.Entry) ||
		!slices.Equal(got.Cmd, img.Cmd) || got.WorkingDir != img.Dir || got.StopSignal != img.Stop ||
		!slices.Equal(got.Healthcheck.Test, img.Health.Test) {
		t.Errorf("the image is configured as %+v, the Dockerfile says %+v", got, img)
	}
	if got.Labels["org.opencontainers.image.version"] != "1.2.3" ||
		len(got.Labels["org.opencontainers.image.revision"]) != 40 {
		t.Errorf("labels: %v", got.Labels)
	}
	zip, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0], nil)))
	try(t, err)
	layer, err := io.ReadAll(zip)
	try(t, err)
	if config.RootFS.DiffIDs[0] != digest.FromBytes(layer) {
		t.Error("the configuration has another digest of the layer")
	}
	root := untar(t, bytes.NewReader(layer))
	if f := root["pulsegate"]; !bytes.Equal(f.text, program) || f.Mode != 0o755 {
		t.Errorf("the program differs from that of the archive, or has the mode %o", f.Mode)
	}
	if f := root["var/lib/pulsegate/"]; f.Uid != 65532 || f.Gid != 0 || f.Mode != 0o770 {
		t.Errorf("the volume is %+v", f.Header)
	}
	if certificates := root["etc/ssl/certs/ca-certificates.crt"].text; bytes.Count(certificates,
		[]byte("BEGIN CERTIFICATE")) < 50 {
		t.Error("the image has hardly any CA certificates")
	}
}

// An entry is a file of an archive.
type entry struct {
	tar.Header
	text []byte
}

// untar returns the entries of an archive by name.
func untar(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	entries := map[string]entry{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		try(t, err)
		text, err := io.ReadAll(archive)
		try(t, err)
		entries[h.Name] = entry{*h, text}
	}
}
