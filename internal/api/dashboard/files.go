package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/pulsegate/pulsegate/internal/api/query"
)

// pageFiles are the files of the page, and a folder with what replaces them if people sign in at a provider.
//
//go:embed page
var pageFiles embed.FS

// Marks in index.html.
const (
	versionMark = "{{version}}" // the version of the files
	sessionMark = "{{session}}" // the state of the reader's session
)

// States of a session, in index.html: they save the page a request.
const (
	sessionOpen = "open" // the server has no tokens
	sessionOut  = "out"  // not signed in
	sessionAll  = "all"  // may read all devices
	sessionSome = "some" // may read some devices
)

// policy allows what the page uses, from its own origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// pageHeader are the header fields of the files of the page.
var pageHeader = []string{
	"Content-Security-Policy", policy, "Referrer-Policy", "no-referrer", "Cross-Origin-Opener-Policy", "same-origin",
	"Cross-Origin-Resource-Policy", "same-origin", "Vary", "Cookie",
}

// A File is a text that is sent compressed if the client accepts that, and not at all to a client
// that has it. It serves GET and HEAD.
type File struct {
	header  []string // names and values
	content func() content
}

type content struct {
	etag    string
	plain   []byte
	gzipped []byte // if nil, it would not be smaller
}

// files are the files of the page by name. They share a version, the hash of all of them,
// which is part of their addresses; so the modules may import each other by name.
type files struct {
	version string
	byName  map[string]*File // but index.html
	index   map[string]*File // index.html by the state of the session
}

// loadFiles loads the files. provider reports whether people sign in at a provider.
func loadFiles(fsys fs.FS, provider bool) (*files, error) {
	names, err := fs.Glob(fsys, "*.*")
	if err != nil {
		return nil, err
	}
	paths := map[string]string{} // by name
	for _, name := range names {
		paths[name] = name
	}
	if provider {
		paths["token.js"], paths["signin.js"] = "signin.js", "provider/signin.js"
	}
	all, hash := map[string][]byte{}, sha256.New()
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		if all[name], err = fs.ReadFile(fsys, paths[name]); err != nil {
			return nil, err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(all[name]), all[name])
	}
	f := &files{version: hex.EncodeToString(hash.Sum(nil)[:8]), byName: map[string]*File{}, index: map[string]*File{}}
	for name, text := range all {
		if name != "index.html" {
			if f.byName[name], err = pageFile(name, text, "public, max-age=31536000, immutable"); err != nil {
				return nil, err
			}
			continue
		}
		text = bytes.ReplaceAll(text, []byte(versionMark), []byte(f.version))
		for _, state := range []string{sessionOpen, sessionOut, sessionAll, sessionSome} {
			if f.index[state], err = pageFile(name, bytes.ReplaceAll(text, []byte(sessionMark), []byte(state)),
				"private, no-cache"); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// contentTypes are those of the files by their extensions. It is never modified.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

func pageFile(name string, text []byte, cacheControl string) (*File, error) {
	contentType := contentTypes[path.Ext(name)]
	if contentType == "" {
		return nil, fmt.Errorf("%s has no media type", name)
	}
	return NewFile(text, append([]string{"Content-Type", contentType, "Cache-Control", cacheControl}, pageHeader...)...),
		nil
}

// NewFile returns a File with header fields, given as names and values. The first request compresses it: many servers
// are never asked for it.
func NewFile(text []byte, header ...string) *File {
	return &File{header: header, content: sync.OnceValue(func() content { return compress(text) })}
}

func compress(text []byte) content {
	hash := sha256.Sum256(text)
	c := content{etag: `"` + hex.EncodeToString(hash[:8]) + `"`, plain: text}
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is constant
	}
	_, _ = w.Write(text) // a bytes.Buffer takes all
	_ = w.Close()
	if small.Len() < len(text) {
		c.gzipped = small.Bytes()
	}
	return c
}

// ServeHTTP implements [http.Handler].
func (f *File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Add("Vary", "Accept-Encoding")
	header.Set("X-Content-Type-Options", "nosniff")
	for i := 0; i < len(f.header); i += 2 {
		header.Add(f.header[i], f.header[i+1])
	}
	c := f.content()
	body, etag := c.plain, c.etag
	if c.gzipped != nil && query.CodingWeight(r.Header["Accept-Encoding"], "gzip") > 0 {
		body, etag = c.gzipped, strings.TrimSuffix(c.etag, `"`)+`-gzip"`
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("ETag", etag)
	if known(r.Header.Get("If-None-Match"), etag) {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client has disconnected
	}
}

// known reports whether an If-None-Match lists an ETag.
func known(field, etag string) bool {
	for item := range strings.SplitSeq(field, ",") {
		if item = strings.TrimPrefix(strings.TrimSpace(item), "W/"); item == etag || item == "*" {
			return true
		}
	}
	return false
}
