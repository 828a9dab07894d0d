package deploy_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	routev1 "github.com/openshift/api/route/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// A manifests holds the objects built from one directory of deploy/kubernetes.
type manifests struct {
	overlay   string
	inputs    bool // with components/mqtt and components/mllp
	stateful  appsv1.StatefulSet
	deployed  appsv1.Deployment // in place of stateful in overlays/postgres
	scaler    autoscalingv2.HorizontalPodAutoscaler
	database  database
	account   corev1.ServiceAccount
	settings  corev1.ConfigMap
	services  map[string]corev1.Service
	network   networkingv1.NetworkPolicy // of the server
	guard     networkingv1.NetworkPolicy // of the database
	budget    policyv1.PodDisruptionBudget
	route     routev1.Route
	monitor   monitoringv1.ServiceMonitor
	rules     monitoringv1.PrometheusRule
	kinds     []string // sorted
	namespace []string // of the objects
}

// buildManifests builds a directory as kubectl apply -k does, and decodes every object
// into its API type. Unknown fields are errors.
func buildManifests(t testing.TB, overlay string, inputs bool) *manifests {
	t.Helper()
	more := ""
	if inputs {
		more = "components: [../components/mqtt, ../components/mllp]\n"
	}
	m := buildSite(t, overlay, more)
	m.inputs = inputs
	return m
}

// buildSite builds a directory with what a site adds to it.
func buildSite(t testing.TB, overlay, more string) *manifests {
	t.Helper()
	files := filesys.MakeFsInMemory()
	site := "resources: [../" + overlay + "]\n" + more
	err := files.WriteFile("/site/kustomization.yaml", []byte(site))
	if err == nil {
		err = copyFiles(files, "../kubernetes")
	}
	try(t, err)
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/site")
	if err != nil {
		t.Fatalf("kustomize build %s: %v", overlay, err)
	}
	m := &manifests{overlay: overlay, services: map[string]corev1.Service{}}
	for _, object := range built.Resources() {
		text, err := object.AsYAML()
		try(t, err)
		kind := object.GetKind()
		if err := m.read(kind, text); err != nil {
			t.Errorf("%s: %s %s: %v", overlay, kind, object.GetName(), err)
		}
		m.kinds = append(m.kinds, kind)
		m.namespace = append(m.namespace, object.GetNamespace())
	}
	slices.Sort(m.kinds)
	return m
}

// copyFiles copies the files under dir to the root of a file system.
func copyFiles(to filesys.FileSystem, dir string) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		return to.WriteFile("/"+path, text)
	})
}

// read decodes an object of the given kind.
func (m *manifests) read(kind string, text []byte) error {
	if kind == "NetworkPolicy" {
		var n networkingv1.NetworkPolicy
		err := yaml.UnmarshalStrict(text, &n)
		if n.Name == "pulsegate" {
			m.network = n
		} else {
			m.guard = n
		}
		return err
	}
	targets := map[string]any{
		"StatefulSet":             &m.stateful,
		"Deployment":              &m.deployed,
		"HorizontalPodAutoscaler": &m.scaler,
		"Cluster":                 &m.database,
		"ServiceAccount":          &m.account,
		"ConfigMap":               &m.settings,
		"PodDisruptionBudget":     &m.budget,
		"Route":                   &m.route,
		"ServiceMonitor":          &m.monitor,
		"PrometheusRule":          &m.rules,
	}
	if kind == "Service" {
		var s corev1.Service
		err := yaml.UnmarshalStrict(text, &s)
		m.services[s.Name] = s
		return err
	}
	if targets[kind] == nil {
		return errors.New("the tests do not support this kind")
	}
	return yaml.UnmarshalStrict(text, targets[kind])
}

// pod returns the template of the pod.
func (m *manifests) pod() *corev1.PodTemplateSpec {
	if m.deployed.Name != "" {
		return &m.deployed.Spec.Template
	}
	return &m.stateful.Spec.Template
}

// container returns the server's container.
func (m *manifests) container() *corev1.Container { return &m.pod().Spec.Containers[0] }

// overlays returns the kinds that each directory adds to what all have.
func overlays() map[string][]string {
	return map[string][]string{
		"base":                {"StatefulSet"},
		"overlays/monitoring": {"StatefulSet", "PrometheusRule", "ServiceMonitor"},
		"overlays/openshift":  {"StatefulSet", "PrometheusRule", "Route", "ServiceMonitor"},
		"overlays/postgres": {"Cluster", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PrometheusRule",
			"ServiceMonitor"},
	}
}

// eachOverlay runs a test on the manifests of each directory, without and with MQTT and MLLP.
func eachOverlay(t *testing.T, test func(t *testing.T, m *manifests)) {
	for _, overlay := range slices.Sorted(maps.Keys(overlays())) {
		t.Run(overlay, func(t *testing.T) { test(t, buildManifests(t, overlay, false)) })
		t.Run(overlay+" with MQTT and MLLP", func(t *testing.T) { test(t, buildManifests(t, overlay, true)) })
	}
}

// TestOverlays checks the kinds of objects built from each directory.
func TestOverlays(t *testing.T) {
	base := []string{"ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service", "ServiceAccount"}
	eachOverlay(t, func(t *testing.T, m *manifests) {
		want := append(slices.Clone(base), overlays()[m.overlay]...)
		slices.Sort(want)
		if !slices.Equal(m.kinds, want) {
			t.Errorf("kinds are %q, want %q", m.kinds, want)
		}
		if i := slices.IndexFunc(m.namespace, func(n string) bool { return n != "" }); i >= 0 {
			t.Errorf("an object sets the namespace %s, which kubectl -n should choose", m.namespace[i])
		}
		if len(m.pod().Spec.Containers) != 1 || len(m.pod().Spec.InitContainers) != 0 {
			t.Fatal("the pod does not have exactly one container")
		}
	})
}

// TestSelectors checks that all selectors match the pod.
func TestSelectors(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		const pods = "pulsegate-pods" // the Service
		controller := m.stateful.Spec.Selector
		if m.deployed.Name != "" {
			controller = m.deployed.Spec.Selector
		} else if m.stateful.Spec.ServiceName != pods {
			t.Errorf("the StatefulSet's Service is %s, want %s, which provides the pod's DNS name",
				m.stateful.Spec.ServiceName, pods)
		}
		selectors := map[string]map[string]string{
			"the controller":          controller.MatchLabels,
			"the NetworkPolicy":       m.network.Spec.PodSelector.MatchLabels,
			"the PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels,
		}
		for name, s := range m.services {
			selectors["the Service "+name] = s.Spec.Selector
		}
		for name, selector := range selectors {
			if len(selector) == 0 || !includes(m.pod().Labels, selector) {
				t.Errorf("%s selects %v, but the pod's labels are %v", name, selector, m.pod().Labels)
			}
		}
		if m.pod().Spec.ServiceAccountName != m.account.Name {
			t.Errorf("the pod's account is %s, want %s", m.pod().Spec.ServiceAccountName, m.account.Name)
		}
		if m.monitor.Name == "" {
			return
		}
		var found []string
		for name, s := range m.services {
			if includes(s.Labels, m.monitor.Spec.Selector.MatchLabels) {
				found = append(found, name)
			}
		}
		if !slices.Equal(found, []string{pods}) {
			t.Errorf("the ServiceMonitor selects the Services %q, want only the one that includes pods that are not ready",
				found)
			return
		}
		if got := m.services[found[0]].Labels[m.monitor.Spec.JobLabel]; got != "pulsegate" {
			t.Errorf("the job is %q, but the alert rules select pulsegate", got)
		}
	})
}

func includes(labels, part map[string]string) bool {
	for k, v := range part {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// TestPorts checks that settings, Services, the ServiceMonitor and the Route use ports
// of the container.
func TestPorts(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		ports := map[string]int32{}
		for _, p := range m.container().Ports {
			ports[p.Name] = p.ContainerPort
		}
		settings := map[string]string{"public": "PULSEGATE_ADDR", "admin": "PULSEGATE_ADMIN_ADDR"}
		if m.inputs {
			for _, name := range []string{"mqtt", "mllp"} {
				settings[name] = "PULSEGATE_" + strings.ToUpper(name) + "_ADDR"
				if !slices.ContainsFunc(m.services["pulsegate"].Spec.Ports,
					func(p corev1.ServicePort) bool { return p.Name == name }) {
					t.Errorf("the public Service does not have the port %s", name)
				}
			}
		}
		if len(ports) != len(settings) {
			t.Errorf("the container has the ports %v, want those of the settings %v", ports, settings)
		}
		for name, setting := range settings {
			if got, want := m.settings.Data[setting], fmt.Sprintf(":%d", ports[name]); got != want {
				t.Errorf("%s is %q, but the container's port %s is %s", setting, got, name, want)
			}
		}
		for name, s := range m.services {
			for _, p := range s.Spec.Ports {
				if ports[p.TargetPort.StrVal] == 0 || p.Name != p.TargetPort.StrVal {
					t.Errorf("the Service %s forwards its port %s to %s, which the container does not have", name, p.Name,
						p.TargetPort.String())
				}
				if name == "pulsegate" && p.Name == "admin" {
					t.Error("the public Service has the admin port")
				}
			}
		}
		for _, p := range m.monitor.Spec.Endpoints {
			if p.Port != "admin" {
				t.Errorf("the ServiceMonitor scrapes the port %s, want admin", p.Port)
			}
		}
		if r := m.route; r.Name != "" {
			if s, ok := m.services[r.Spec.To.Name]; !ok || !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
				return p.TargetPort == r.Spec.Port.TargetPort
			}) {
				t.Errorf("the Route forwards to %s, %s, which does not exist", r.Spec.To.Name, r.Spec.Port.TargetPort.String())
			}
			if r.Spec.TLS == nil || r.Spec.TLS.Termination == routev1.TLSTerminationEdge ||
				r.Spec.TLS.InsecureEdgeTerminationPolicy == routev1.InsecureEdgeTerminationPolicyAllow {
				t.Error("the Route forwards tokens and health data without TLS")
			}
		}
	})
}

// TestNetworkPolicy checks that only clients can connect to the public port and those of MQTT and MLLP, that only
// the monitoring can connect to the admin port, and that the server can connect to
// nothing.
func TestNetworkPolicy(t *testing.T) {
	want := map[string]map[string][]string{
		"base":                {"public": {"pulsegate-client=true"}, "admin": {"kubernetes.io/metadata.name=monitoring"}},
		"overlays/monitoring": {"public": {"pulsegate-client=true"}, "admin": {"kubernetes.io/metadata.name=monitoring"}},
		"overlays/postgres":   {"public": {"pulsegate-client=true"}, "admin": {"kubernetes.io/metadata.name=monitoring"}},
		"overlays/openshift": {
			"public": {"policy-group.network.openshift.io/ingress=", "pulsegate-client=true"},
			"admin":  {"kubernetes.io/metadata.name=openshift-user-workload-monitoring"},
		},
	}
	eachOverlay(t, func(t *testing.T, m *manifests) {
		spec := m.network.Spec
		if m.deployed.Name != "" {
			checkDatabaseEgress(t, m)
			spec.Egress = nil
		}
		if len(spec.Egress) != 0 || !slices.Equal(spec.PolicyTypes, []networkingv1.PolicyType{"Ingress", "Egress"}) {
			t.Errorf("policy types %v with egress %v: want both types and no egress", spec.PolicyTypes, spec.Egress)
		}
		got := map[string][]string{}
		for _, rule := range spec.Ingress {
			if len(rule.Ports) != 1 || rule.Ports[0].Port == nil || len(rule.From) == 0 {
				t.Fatalf("a rule does not have exactly one port and at least one peer: %+v", rule)
			}
			for _, from := range rule.From {
				if from.NamespaceSelector == nil || from.IPBlock != nil || len(from.NamespaceSelector.MatchExpressions) > 0 ||
					len(from.NamespaceSelector.MatchLabels) != 1 {
					t.Errorf("a peer is not selected by one label of its namespace: %+v", from)
					continue
				}
				for k, v := range from.NamespaceSelector.MatchLabels {
					port := rule.Ports[0].Port.StrVal
					got[port] = append(got[port], k+"="+v)
				}
			}
		}
		for _, peers := range got {
			slices.Sort(peers)
		}
		want := maps.Clone(want[m.overlay])
		if m.inputs {
			want["mqtt"], want["mllp"] = []string{"pulsegate-client=true"}, []string{"pulsegate-client=true"}
		}
		if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("allowed peers by port are %v, want %v", got, want)
		}
	})
}

// TestPodDisruptionBudget checks the number of replicas and the disruption budget,
// which no overlay may change.
func TestPodDisruptionBudget(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		if r := m.stateful.Spec.Replicas; m.deployed.Name == "" && (r == nil || *r != 1) {
			t.Error("there is not exactly one replica, but a store has one writer")
		}
		b := m.budget.Spec
		if b.MinAvailable != nil || b.MaxUnavailable == nil || b.MaxUnavailable.IntValue() != 1 {
			t.Errorf("the budget is %+v: with one replica, anything but maxUnavailable 1 blocks every drain of a node", b)
		}
	})
}
