package deploy_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	routev1 "github.com/openshift/api/route/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Manifests are the objects that one folder of deploy/kubernetes builds.
type manifests struct {
	overlay   string
	stateful  appsv1.StatefulSet
	account   corev1.ServiceAccount
	settings  corev1.ConfigMap
	services  map[string]corev1.Service
	network   networkingv1.NetworkPolicy
	budget    policyv1.PodDisruptionBudget
	route     routev1.Route
	monitor   monitoringv1.ServiceMonitor
	rules     monitoringv1.PrometheusRule
	kinds     []string // sorted
	namespace []string // of the objects
}

// buildManifests builds a folder as kubectl apply -k does, and reads every object
// into the type that the cluster reads it into, without a field to spare.
func buildManifests(t testing.TB, overlay string) *manifests {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join("../kubernetes", overlay))
	if err != nil {
		t.Fatalf("kustomize build %s: %v", overlay, err)
	}
	m := &manifests{overlay: overlay, services: map[string]corev1.Service{}}
	for _, object := range built.Resources() {
		text, err := object.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
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

// read reads an object of a kind.
func (m *manifests) read(kind string, text []byte) error {
	targets := map[string]any{
		"StatefulSet":         &m.stateful,
		"ServiceAccount":      &m.account,
		"ConfigMap":           &m.settings,
		"NetworkPolicy":       &m.network,
		"PodDisruptionBudget": &m.budget,
		"Route":               &m.route,
		"ServiceMonitor":      &m.monitor,
		"PrometheusRule":      &m.rules,
	}
	if kind == "Service" {
		var s corev1.Service
		err := yaml.UnmarshalStrict(text, &s)
		m.services[s.Name] = s
		return err
	}
	if targets[kind] == nil {
		return errors.New("this kind is not read by the tests")
	}
	return yaml.UnmarshalStrict(text, targets[kind])
}

// pod is what a cluster makes pods from.
func (m *manifests) pod() *corev1.PodTemplateSpec { return &m.stateful.Spec.Template }

// container is the server's.
func (m *manifests) container() *corev1.Container { return &m.pod().Spec.Containers[0] }

// overlays lists the folders, and what each adds to the base.
func overlays() map[string][]string {
	return map[string][]string{
		"base":                nil,
		"overlays/monitoring": {"PrometheusRule", "ServiceMonitor"},
		"overlays/openshift":  {"PrometheusRule", "Route", "ServiceMonitor"},
	}
}

// eachOverlay runs a test on what each folder builds.
func eachOverlay(t *testing.T, test func(t *testing.T, m *manifests)) {
	for _, overlay := range slices.Sorted(maps.Keys(overlays())) {
		t.Run(overlay, func(t *testing.T) { test(t, buildManifests(t, overlay)) })
	}
}

// Each folder builds, into the kinds that the documentation names.
func TestOverlays(t *testing.T) {
	base := []string{"ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service", "ServiceAccount", "StatefulSet"}
	eachOverlay(t, func(t *testing.T, m *manifests) {
		want := append(slices.Clone(base), overlays()[m.overlay]...)
		slices.Sort(want)
		if !slices.Equal(m.kinds, want) {
			t.Errorf("kinds are %q, want %q", m.kinds, want)
		}
		if i := slices.IndexFunc(m.namespace, func(n string) bool { return n != "" }); i >= 0 {
			t.Errorf("an object is bound to the namespace %s: kubectl -n is to decide", m.namespace[i])
		}
		if len(m.pod().Spec.Containers) != 1 || len(m.pod().Spec.InitContainers) != 0 {
			t.Fatal("the pod is not of one container")
		}
	})
}

// Selectors find the pod.
func TestSelectors(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		selectors := map[string]map[string]string{
			"the StatefulSet":         m.stateful.Spec.Selector.MatchLabels,
			"the NetworkPolicy":       m.network.Spec.PodSelector.MatchLabels,
			"the PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels,
		}
		for name, s := range m.services {
			selectors["the Service "+name] = s.Spec.Selector
		}
		for who, selector := range selectors {
			if len(selector) == 0 || !includes(m.pod().Labels, selector) {
				t.Errorf("%s selects %v, and the pod's labels are %v", who, selector, m.pod().Labels)
			}
		}
		if _, ok := m.services[m.stateful.Spec.ServiceName]; !ok {
			t.Errorf("there is no Service %s, which names the pod", m.stateful.Spec.ServiceName)
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
		if !slices.Equal(found, []string{m.stateful.Spec.ServiceName}) {
			t.Errorf("the ServiceMonitor finds the Services %q, want the one that leads to pods that are not ready too", found)
			return
		}
		if got := m.services[found[0]].Labels[m.monitor.Spec.JobLabel]; got != "pulsegate" {
			t.Errorf("the job will be %q, and the alert rules look for pulsegate", got)
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

// Whoever names a port means one that the container has.
func TestPorts(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		ports := map[string]int32{}
		for _, p := range m.container().Ports {
			ports[p.Name] = p.ContainerPort
		}
		for name, setting := range map[string]string{"public": "PULSEGATE_ADDR", "admin": "PULSEGATE_ADMIN_ADDR"} {
			if got, want := m.settings.Data[setting], fmt.Sprintf(":%d", ports[name]); got != want {
				t.Errorf("%s is %q, and the container's port %s is %s", setting, got, name, want)
			}
		}
		for name, s := range m.services {
			for _, p := range s.Spec.Ports {
				if ports[p.TargetPort.StrVal] == 0 || p.Name != p.TargetPort.StrVal {
					t.Errorf("the Service %s leads its port %s to %s, which the container does not have", name, p.Name, p.TargetPort.String())
				}
				if name == "pulsegate" && p.Name == "admin" {
					t.Error("the Service for everybody has the admin port")
				}
			}
		}
		for _, p := range m.monitor.Spec.Endpoints {
			if p.Port != "admin" {
				t.Errorf("the ServiceMonitor asks the port %s, want admin", p.Port)
			}
		}
		if r := m.route; r.Name != "" {
			if s, ok := m.services[r.Spec.To.Name]; !ok || !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
				return p.TargetPort == r.Spec.Port.TargetPort
			}) {
				t.Errorf("the Route leads to %s, %s", r.Spec.To.Name, r.Spec.Port.TargetPort.String())
			}
			if r.Spec.TLS == nil || r.Spec.TLS.Termination == routev1.TLSTerminationEdge || r.Spec.TLS.InsecureEdgeTerminationPolicy == routev1.InsecureEdgeTerminationPolicyAllow {
				t.Error("the Route carries tokens and health data without TLS")
			}
		}
	})
}

// Writers reach the public port, the monitoring the admin port, and nobody else
// anything. The server reaches nobody.
func TestNetworkPolicy(t *testing.T) {
	want := map[string]map[string][]string{
		"base":                {"public": {"pulsegate-client=true"}, "admin": {"kubernetes.io/metadata.name=monitoring"}},
		"overlays/monitoring": {"public": {"pulsegate-client=true"}, "admin": {"kubernetes.io/metadata.name=monitoring"}},
		"overlays/openshift": {
			"public": {"policy-group.network.openshift.io/ingress=", "pulsegate-client=true"},
			"admin":  {"kubernetes.io/metadata.name=openshift-user-workload-monitoring"},
		},
	}
	eachOverlay(t, func(t *testing.T, m *manifests) {
		spec := m.network.Spec
		if len(spec.Egress) != 0 || !slices.Equal(spec.PolicyTypes, []networkingv1.PolicyType{"Ingress", "Egress"}) {
			t.Errorf("policy types %v with egress %v: want both types and no egress", spec.PolicyTypes, spec.Egress)
		}
		got := map[string][]string{}
		for _, rule := range spec.Ingress {
			if len(rule.Ports) != 1 || rule.Ports[0].Port == nil || len(rule.From) == 0 {
				t.Fatalf("a rule is not of one port and some peers: %+v", rule)
			}
			for _, from := range rule.From {
				if from.NamespaceSelector == nil || from.IPBlock != nil || len(from.NamespaceSelector.MatchExpressions) > 0 || len(from.NamespaceSelector.MatchLabels) != 1 {
					t.Errorf("a peer is not told by one label of its namespace: %+v", from)
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
		if !maps.EqualFunc(got, want[m.overlay], slices.Equal[[]string]) {
			t.Errorf("who reaches which port: %v, want %v", got, want[m.overlay])
		}
	})
}

// An overlay may not lose what the base's comments promise.
func TestPodDisruptionBudget(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		if r := m.stateful.Spec.Replicas; r == nil || *r != 1 {
			t.Error("there is not exactly one replica, and a store has one writer")
		}
		b := m.budget.Spec
		if b.MinAvailable != nil || b.MaxUnavailable == nil || b.MaxUnavailable.IntValue() != 1 {
			t.Errorf("the budget is %+v: with one replica, anything but maxUnavailable 1 holds up every drain of a node", b)
		}
	})
}

// The image is a name to be replaced, with a version.
func TestImageName(t *testing.T) {
	eachOverlay(t, func(t *testing.T, m *manifests) {
		name, tag, _ := strings.Cut(m.container().Image, ":")
		if name != "pulsegate" || tag == "" || tag == "latest" {
			t.Errorf("the image is %q, want pulsegate:VERSION", m.container().Image)
		}
	})
}
