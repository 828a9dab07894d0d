package deploy_test

import (
	"maps"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A database is a Cluster of CloudNativePG. It has only the fields that the manifests use, as in
// api/v1/cluster_types.go of CloudNativePG 1.30 (Apache License 2.0), so that a misspelt field is
// an error.
type database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Instances  int `json:"instances"`
		PostgreSQL struct {
			Synchronous struct {
				Method         string `json:"method"` // any, first
				Number         int    `json:"number"`
				DataDurability string `json:"dataDurability"` // required, preferred
				FailoverQuorum bool   `json:"failoverQuorum"`
			} `json:"synchronous"`
			Parameters map[string]string `json:"parameters"`
		} `json:"postgresql"`
		Bootstrap struct {
			InitDB struct {
				Database               string   `json:"database"`
				Owner                  string   `json:"owner"`
				DataChecksums          bool     `json:"dataChecksums"`
				PostInitApplicationSQL []string `json:"postInitApplicationSQL"`
			} `json:"initdb"`
		} `json:"bootstrap"`
		Affinity struct {
			PodAntiAffinityType string `json:"podAntiAffinityType"` // preferred, required
			TopologyKey         string `json:"topologyKey"`
		} `json:"affinity"`
		Storage    struct{ Size string }       `json:"storage"`
		WALStorage struct{ Size string }       `json:"walStorage"`
		Resources  corev1.ResourceRequirements `json:"resources"`
	} `json:"spec"`
}

// TestDatabase checks that the database acknowledges nothing that one machine alone has, and that
// the servers reach it with the secrets that CloudNativePG creates.
func TestDatabase(t *testing.T) {
	m := buildManifests(t, "overlays/postgres", false)
	spec := m.database.Spec
	if m.database.APIVersion != "postgresql.cnpg.io/v1" {
		t.Errorf("the API version is %s", m.database.APIVersion)
	}
	s := spec.PostgreSQL.Synchronous
	if spec.Instances != 3 || s.Method != "any" || s.Number != 1 || s.DataDurability != "required" || !s.FailoverQuorum {
		t.Errorf("%d instances, %+v: want a quorum of 1 of 2 standbys, required, also for a failover", spec.Instances, s)
	}
	if a := spec.Affinity; a.PodAntiAffinityType != "required" || a.TopologyKey != "kubernetes.io/hostname" {
		t.Errorf("two instances may be on one node: %+v", a)
	}
	if !spec.Bootstrap.InitDB.DataChecksums {
		t.Error("the data has no checksums")
	}
	// pgstore.Lanes and 2 more connections for writing, pgstore.Readers for reading.
	const ofServer, others = 14, 20
	allowed, err := strconv.Atoi(spec.PostgreSQL.Parameters["max_connections"])
	if want := int(m.scaler.Spec.MaxReplicas)*ofServer + others; err != nil || allowed < want {
		t.Errorf("max_connections is %d, want at least %d", allowed, want)
	}

	store, err := url.Parse(m.settings.Data["PULSEGATE_STORE"])
	try(t, err)
	db := spec.Bootstrap.InitDB
	if store.Host != m.database.Name+"-rw" || store.User.String() != db.Owner || store.Path != "/"+db.Database ||
		store.Query().Get("sslmode") != "verify-full" {
		t.Errorf("the servers connect to %s", store)
	}
	secrets := map[string]string{}
	for _, v := range m.pod().Spec.Volumes {
		if v.Secret != nil {
			secrets[v.Name] = v.Secret.SecretName
			if v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440 {
				t.Errorf("the volume %s is not readable by the group only", v.Name)
			}
		}
	}
	for path, secret := range map[string]string{
		store.Query().Get("sslrootcert"):    m.database.Name + "-ca",
		m.settings.Data["PGPASSFILE"]:       m.database.Name + "-app",
		m.settings.Data["PULSEGATE_TOKENS"]: "pulsegate-tokens",
	} {
		i := slices.IndexFunc(m.container().VolumeMounts,
			func(v corev1.VolumeMount) bool { return strings.HasPrefix(path, v.MountPath+"/") })
		if i < 0 || secrets[m.container().VolumeMounts[i].Name] != secret {
			t.Errorf("%s is not in the secret %s", path, secret)
		}
	}
	remembered := m.settings.Data["PULSEGATE_REMEMBER_DIR"]
	i := slices.IndexFunc(m.container().VolumeMounts, func(v corev1.VolumeMount) bool {
		return v.Name == "data" && strings.HasPrefix(remembered, v.MountPath+"/")
	})
	if i < 0 {
		t.Errorf("what is remembered, in %q, does not survive the container", remembered)
	}
	for _, v := range m.pod().Spec.Volumes {
		if limit := m.container().Resources.Limits.StorageEphemeral(); v.EmptyDir != nil &&
			v.EmptyDir.SizeLimit.Cmp(*limit) >= 0 {
			t.Errorf("the volume %s may have %v, and the container has %v", v.Name, v.EmptyDir.SizeLimit, limit)
		}
	}
	// The settings are accepted, so that the server tries to connect.
	serve := exec.Command(program(t), "serve")
	for name, value := range m.settings.Data {
		if name != "PULSEGATE_TOKENS" && !strings.HasPrefix(name, "PULSEGATE_TLS") {
			serve.Env = append(serve.Env, name+"="+value)
		}
	}
	store.Host, store.RawQuery = "127.0.0.1:1", "sslmode=disable"
	serve.Env = append(serve.Env, "PULSEGATE_STORE="+store.String(), "PULSEGATE_INSECURE=true",
		"PULSEGATE_ADDR=127.0.0.1:0", "PULSEGATE_ADMIN_ADDR=127.0.0.1:0", "PULSEGATE_AUDIT=",
		"PULSEGATE_REMEMBER_DIR="+t.TempDir())
	if out, code := run(t, serve); code != 1 || !strings.Contains(out, "open database") {
		t.Errorf("serve without a database: exit code %d, want 1\n%s", code, out)
	}
}

// TestServersSpread checks that servers are replaced without a gap, share no node while others are
// free, and that the autoscaler alone sets their number.
func TestServersSpread(t *testing.T) {
	m := buildManifests(t, "overlays/postgres", false)
	d, s := m.deployed, m.scaler.Spec
	if d.Spec.Replicas != nil {
		t.Errorf("the Deployment has %d replicas, which each apply would set again", *d.Spec.Replicas)
	}
	if s.ScaleTargetRef.Kind != "Deployment" || s.ScaleTargetRef.Name != d.Name ||
		s.ScaleTargetRef.APIVersion != "apps/v1" {
		t.Errorf("the autoscaler scales %+v", s.ScaleTargetRef)
	}
	if s.MinReplicas == nil || *s.MinReplicas < 3 || len(s.Metrics) != 1 || s.Metrics[0].Resource == nil ||
		s.Metrics[0].Resource.Name != corev1.ResourceCPU {
		t.Errorf("the autoscaler is %+v, want three servers at least, by CPU", s)
	}
	if r := d.Spec.Strategy.RollingUpdate; r == nil || r.MaxUnavailable.IntValue() != 0 || r.MaxSurge.IntValue() != 1 {
		t.Errorf("servers are replaced by %+v", r)
	}
	keys := map[string]corev1.UnsatisfiableConstraintAction{}
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		keys[c.TopologyKey] = c.WhenUnsatisfiable
		if !includes(m.pod().Labels, c.LabelSelector.MatchLabels) {
			t.Errorf("the spread over %s does not select the pod", c.TopologyKey)
		}
	}
	want := map[string]corev1.UnsatisfiableConstraintAction{"kubernetes.io/hostname": corev1.DoNotSchedule,
		"topology.kubernetes.io/zone": corev1.ScheduleAnyway}
	if !maps.Equal(keys, want) {
		t.Errorf("servers are spread over %v, want %v", keys, want)
	}
}

// checkDatabaseEgress checks that the servers connect to the database and to DNS only, and that
// only they, the operator, the other instances and the monitoring connect to the database.
func checkDatabaseEgress(t *testing.T, m *manifests) {
	t.Helper()
	var to []string
	for _, rule := range m.network.Spec.Egress {
		for _, peer := range rule.To {
			for _, p := range rule.Ports {
				to = append(to, peerName(peer)+" "+p.Port.String())
			}
		}
	}
	slices.Sort(to)
	instances := "cnpg.io/cluster=" + m.database.Name
	if want := []string{instances + " 5432", "kubernetes.io/metadata.name=kube-system 53",
		"kubernetes.io/metadata.name=kube-system 53"}; !slices.Equal(to, want) {
		t.Errorf("the servers may connect to %q, want %q", to, want)
	}
	var from []string
	for _, rule := range m.guard.Spec.Ingress {
		for _, peer := range rule.From {
			for _, p := range rule.Ports {
				from = append(from, peerName(peer)+" "+p.Port.String())
			}
		}
	}
	slices.Sort(from)
	want := []string{"app.kubernetes.io/name=pulsegate 5432", instances + " 5432", instances + " 8000",
		"kubernetes.io/metadata.name=cnpg-system 5432",
		"kubernetes.io/metadata.name=cnpg-system 8000", "kubernetes.io/metadata.name=monitoring 9187"}
	if !slices.Equal(from, want) || m.guard.Spec.PodSelector.MatchLabels["cnpg.io/cluster"] != m.database.Name {
		t.Errorf("the database accepts %q, want %q", from, want)
	}
}

// peerName returns the label that selects a peer.
func peerName(p networkingv1.NetworkPolicyPeer) string {
	for _, s := range []*metav1.LabelSelector{p.PodSelector, p.NamespaceSelector} {
		if s != nil {
			for k, v := range s.MatchLabels {
				return k + "=" + v
			}
		}
	}
	return "anything"
}
