package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// The parts of SPDX 2.3 that an SBOM needs (https://spdx.github.io/spdx-spec/v2.3/).
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		DataLicense   string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID               string      `json:"SPDXID"`
		Name             string      `json:"name"`
		Version          string      `json:"versionInfo"`
		Download         string      `json:"downloadLocation"`
		FilesAnalyzed    bool        `json:"filesAnalyzed"`
		LicenseConcluded string      `json:"licenseConcluded"`
		LicenseDeclared  string      `json:"licenseDeclared"`
		Copyright        string      `json:"copyrightText"`
		Refs             []reference `json:"externalRefs"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// sbom returns the modules that are linked into any of the programs, as an SPDX document.
func sbom(opt *options, programs []string) ([]byte, error) {
	licences, err := licenceTable(opt.licences)
	if err != nil {
		return nil, err
	}
	modules := map[string]*debug.Module{}
	var main, compiler string
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		main, compiler = info.Main.Path, strings.TrimPrefix(info.GoVersion, "go")
		for _, m := range info.Deps {
			modules[m.Path] = m
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("no program has modules")
	}
	root := newPackage(main, opt.version, "Apache-2.0")
	doc := document{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "pulsegate-" + opt.version,
		Creation: creation{opt.created.Format(time.RFC3339), []string{"Tool: pulsegate-deploy-release"}},
		Packages: []spdxPackage{root, newPackage("stdlib", compiler, "BSD-3-Clause")},
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if licences[name] == "" {
			return nil, fmt.Errorf("%s has no licence in %s", name, opt.licences)
		}
		doc.Packages = append(doc.Packages, newPackage(name, modules[name].Version, licences[name]))
	}
	doc.Relationships = []relationship{{doc.ID, "DESCRIBES", root.ID}}
	for _, p := range doc.Packages[1:] {
		doc.Relationships = append(doc.Relationships, relationship{root.ID, "DEPENDS_ON", p.ID})
	}
	// The namespace is unique for the content, which it is not part of.
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	doc.Namespace = fmt.Sprintf("https://github.com/pulsegate/pulsegate/sbom/%s-%x", opt.version, sha256.Sum256(text))
	text, err = json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}

// newPackage returns the package of a module.
func newPackage(name, version, licence string) spdxPackage {
	id := regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(name+"-"+version, "-")
	return spdxPackage{
		ID: "SPDXRef-" + id, Name: name, Version: version, Download: "NOASSERTION",
		LicenseConcluded: licence, LicenseDeclared: licence, Copyright: "NOASSERTION",
		Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path.Clean(name) + "@" + version}},
	}
}

// licenceTable reads the licences of modules from the tables of a Markdown page, as SPDX
// expressions. A test compares the page with the modules that are linked in.
func licenceTable(page string) (map[string]string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	licences := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\S+\.\S+) \| v\S+ \| .* \| ([^|]+) \|$`).
		FindAllStringSubmatch(string(text), -1) {
		licences[m[1]] = strings.ReplaceAll(m[2], ", ", " AND ")
	}
	return licences, nil
}
