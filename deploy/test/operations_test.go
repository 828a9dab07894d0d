package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// manual returns docs/operations.md.
func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	try(t, err)
	return string(text)
}

// TestOperationsFigures checks that docs/operations.md has the figures of the
// manifests.
func TestOperationsFigures(t *testing.T) {
	m := buildManifests(t, "base", false)
	r := m.container().Resources
	for what, want := range map[string]string{
		"memory": r.Limits.Memory().String(), "CPU request": r.Requests.Cpu().String(), "CPU limit": r.Limits.Cpu().String(),
		"volume": m.stateful.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String(),
	} {
		if !strings.Contains(manual(t), "| "+what+" | "+want+" |") {
			t.Errorf("docs/operations.md lacks that %s is %s", what, want)
		}
	}
}

// TestSiteOverlay builds the overlay of docs/operations.md and checks its effect.
func TestSiteOverlay(t *testing.T) {
	_, rest, found := strings.Cut(manual(t), "cat > site/kustomization.yaml <<'EOF'\n")
	text, _, ended := strings.Cut(rest, "EOF\n")
	if !found || !ended {
		t.Fatal("docs/operations.md has no overlay")
	}
	site := t.TempDir()
	deploy, err := filepath.Abs("..")
	try(t, err)
	relative, err := filepath.Rel(site, deploy)
	try(t, err)
	text = strings.ReplaceAll(text, "../deploy/", relative+"/")
	try(t, os.WriteFile(filepath.Join(site, "kustomization.yaml"), []byte(text), 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), site)
	try(t, err)
	all, err := built.AsYaml()
	try(t, err)
	for _, want := range []string{
		"\n  namespace: pulsegate\n",
		"image: registry.example/health/pulsegate:0.1.0\n",
		"\n  PULSEGATE_MAX_AHEAD: 10m\n",
		"\n  PULSEGATE_TOKENS: /etc/pulsegate/tokens/tokens\n",
	} {
		if !strings.Contains(string(all), want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
}
