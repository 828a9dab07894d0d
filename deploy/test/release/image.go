package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/pulsegate/pulsegate/deploy/test/dockerfile"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificates is the path of the CA certificates in the image. The Dockerfile copies
// them from its build stage, which is not there in a build without a container engine.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// An archive is a tar file whose entries have the same time and owner by default.
type archive struct {
	options *options
	text    bytes.Buffer
	w       *tar.Writer
	folders map[string]bool
}

func newArchive(opt *options) *archive {
	a := &archive{options: opt, folders: map[string]bool{}}
	a.w = tar.NewWriter(&a.text)
	return a
}

// folder adds a folder, after its parents.
func (a *archive) folder(name string, mode int64, uid, gid int) error {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if name == "." || name == "" || a.folders[name] {
		return nil
	}
	if err := a.folder(path.Dir(name), 0o755, 0, 0); err != nil {
		return err
	}
	a.folders[name] = true
	return a.w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: uid, Gid: gid,
		ModTime: a.options.created, Format: tar.FormatUSTAR})
}

// file adds a file, after its parents.
func (a *archive) file(name string, mode int64, text []byte) error {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if err := a.folder(path.Dir(name), 0o755, 0, 0); err != nil {
		return err
	}
	if err := a.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text)),
		ModTime: a.options.created, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := a.w.Write(text)
	return err
}

func (a *archive) bytes() ([]byte, error) {
	err := a.w.Close()
	return a.text.Bytes(), err
}

// imageArchive returns an OCI archive with an image for each platform.
func imageArchive(opt *options, platforms []string) ([]byte, error) {
	img, err := dockerfile.Read(opt.dockerfile)
	if err != nil {
		return nil, err
	}
	out := newArchive(opt)
	add := func(mediaType string, text []byte) (v1.Descriptor, error) {
		d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
		return d, out.file("blobs/sha256/"+d.Digest.Encoded(), 0o644, text)
	}
	addJSON := func(mediaType string, value any) (v1.Descriptor, error) {
		text, err := json.Marshal(value)
		if err != nil {
			return v1.Descriptor{}, err
		}
		return add(mediaType, text)
	}
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, platform := range platforms {
		name, dir, ok := strings.Cut(platform, "=")
		system, arch, ok2 := strings.Cut(name, "/")
		if !ok || !ok2 {
			return nil, fmt.Errorf("%q is not OS/ARCH=DIR", platform)
		}
		layer, err := imageLayer(opt, img, dir)
		if err != nil {
			return nil, err
		}
		var compressed bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&compressed, gzip.BestCompression) // the level is valid
		if _, err := zip.Write(layer); err != nil {
			return nil, err
		}
		if err := zip.Close(); err != nil {
			return nil, err
		}
		blob, err := add(v1.MediaTypeImageLayerGzip, compressed.Bytes())
		if err != nil {
			return nil, err
		}
		on := v1.Platform{OS: system, Architecture: arch}
		config, err := addJSON(v1.MediaTypeImageConfig, imageConfig(opt, img, on, digest.FromBytes(layer)))
		if err != nil {
			return nil, err
		}
		manifest, err := addJSON(v1.MediaTypeImageManifest, v1.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: config,
			Layers: []v1.Descriptor{blob},
		})
		if err != nil {
			return nil, err
		}
		manifest.Platform = &on
		index.Manifests = append(index.Manifests, manifest)
	}
	all, err := addJSON(v1.MediaTypeImageIndex, index)
	if err != nil {
		return nil, err
	}
	all.Annotations = map[string]string{v1.AnnotationRefName: opt.version}
	top, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{all}})
	if err != nil {
		return nil, err
	}
	if err := out.file("index.json", 0o644, top); err != nil {
		return nil, err
	}
	if err := out.file(v1.ImageLayoutFile, 0o644,
		[]byte(`{"imageLayoutVersion":"`+v1.ImageLayoutVersion+`"}`)); err != nil {
		return nil, err
	}
	return out.bytes()
}

// imageLayer executes the COPY instructions of the last stage: it returns the files of
// the image as a tar file.
func imageLayer(opt *options, img *dockerfile.Image, dir string) ([]byte, error) {
	layer := newArchive(opt)
	for _, c := range img.Copied {
		from := c.SourcePaths[0]
		var err error
		switch from {
		case certificates:
			err = layer.file(c.DestPath, 0o644, rootCertificates())
		case "/out/volume":
			var uid, gid int
			var mode int64
			if _, err = fmt.Sscanf(c.Chown, "%d:%d", &uid, &gid); err != nil {
				return nil, fmt.Errorf("owner %q of %s: %w", c.Chown, c.DestPath, err)
			}
			if mode, err = strconv.ParseInt(c.Chmod, 8, 32); err != nil {
				return nil, fmt.Errorf("mode of %s: %w", c.DestPath, err)
			}
			err = layer.folder(c.DestPath, mode, uid, gid)
		default:
			var text []byte
			if text, err = os.ReadFile(filepath.Join(dir, path.Base(from))); err != nil {
				return nil, err
			}
			mode := int64(0o644)
			if path.Clean(c.DestPath) == img.Entry[0] {
				mode = 0o755
			}
			err = layer.file(c.DestPath, mode, text)
		}
		if err != nil {
			return nil, err
		}
	}
	return layer.bytes()
}

// rootCertificates returns Mozilla's CA certificates in PEM, in the version that go.mod
// pins. Those that are trusted for some certificates only are left out: a file of
// certificates cannot say so.
func rootCertificates() []byte {
	var text []byte
	for c := range bundle.Roots() {
		if c.Constraint == nil {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate})...)
		}
	}
	return text
}

func imageConfig(opt *options, img *dockerfile.Image, on v1.Platform, layer digest.Digest) dockerspec.DockerOCIImage {
	set := func(names []string) map[string]struct{} {
		m := map[string]struct{}{}
		for _, name := range names {
			m[name] = struct{}{}
		}
		return m
	}
	labels := map[string]string{}
	for name, value := range img.Labels {
		labels[name] = strings.NewReplacer("$VERSION", opt.version, "$REVISION", opt.revision).Replace(value)
	}
	exposed := slices.Clone(img.Exposed)
	for i, port := range exposed {
		if !strings.Contains(port, "/") {
			exposed[i] = port + "/tcp"
		}
	}
	config := dockerspec.DockerOCIImage{Image: v1.Image{
		Created: &opt.created, Platform: on,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer}},
	}}
	config.Config.ImageConfig = v1.ImageConfig{
		User: img.User, Env: img.Env, Entrypoint: img.Entry, Cmd: img.Cmd, WorkingDir: img.Dir, StopSignal: img.Stop,
		Volumes: set(img.Volumes), ExposedPorts: set(exposed), Labels: labels,
	}
	config.Config.Healthcheck = img.Health
	return config
}
