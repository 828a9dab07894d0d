package deploy_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// The pod is let in by the Pod Security Standard "restricted", and does what the
// standard does not ask for.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	eachOverlay(t, func(t *testing.T, m *manifests) {
		pod := m.pod()
		level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
		for _, result := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				t.Errorf("restricted: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
		if c := m.container().SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
			t.Error("the root file system can be written to")
		}
		if a := pod.Spec.AutomountServiceAccountToken; a == nil || *a || m.account.AutomountServiceAccountToken == nil || *m.account.AutomountServiceAccountToken {
			t.Error("the pod gets a token for the cluster, and needs none")
		}
		if l := pod.Spec.EnableServiceLinks; l == nil || *l {
			t.Error("variables of Services would look like settings: PULSEGATE_PORT and others")
		}
		user := pod.Spec.SecurityContext
		ids := user.RunAsUser != nil || user.RunAsGroup != nil || user.FSGroup != nil
		if openshift := m.overlay == "overlays/openshift"; ids == openshift {
			t.Errorf("user and group are set: %v; want them from the project's range on OpenShift, and set elsewhere", ids)
		}
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if m.container().Resources.Requests.Name(r, "").IsZero() || m.container().Resources.Limits.Name(r, "").IsZero() {
				t.Errorf("%s has no request or no limit", r)
			}
		}
	})
}

// The probes ask what a running server answers, on the listener that is never full
// and asks for no certificate.
func TestProbes(t *testing.T) {
	s := serve(t)
	awaitReady(t, http.DefaultClient, s.admin)
	eachOverlay(t, func(t *testing.T, m *manifests) {
		c := m.container()
		for _, tt := range []struct {
			name  string
			probe *corev1.Probe
			path  string
		}{
			{"startup", c.StartupProbe, "/livez"},
			{"liveness", c.LivenessProbe, "/livez"},
			{"readiness", c.ReadinessProbe, "/readyz"},
		} {
			ask := tt.probe.HTTPGet
			if ask == nil || ask.Path != tt.path || ask.Port.StrVal != "admin" || ask.Scheme != "" {
				t.Errorf("the %s probe asks %+v, want %s on admin over plain HTTP", tt.name, ask, tt.path)
				continue
			}
			if status, body := get(t, http.DefaultClient, s.admin+ask.Path); status != http.StatusOK {
				t.Errorf("the %s probe would be answered %d %s", tt.name, status, body)
			}
		}
		if patience := time.Duration(c.LivenessProbe.PeriodSeconds*c.LivenessProbe.FailureThreshold) * time.Second; patience < time.Minute {
			t.Errorf("a server that does not answer for %v is killed, want a minute at least", patience)
		}
	})
}

// The settings are the program's, the files that they name are mounted, and the
// times fit each other.
func TestSettings(t *testing.T) {
	help, code := run(t, exec.Command(program(t), "serve", "--help"))
	if code != 0 {
		t.Fatalf("serve --help: exit code %d", code)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$(PULSEGATE_[A-Z_]+)`).FindAllStringSubmatch(help, -1) {
		known[m[1]] = true
	}
	eachOverlay(t, func(t *testing.T, m *manifests) {
		c := m.container()
		if !slices.Equal(c.Args, []string{"serve"}) || len(c.Command) != 0 || len(c.Env) != 0 {
			t.Errorf("the command is %q %q with %v, want serve, with settings from the ConfigMap alone", c.Command, c.Args, c.Env)
		}
		if len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef == nil || c.EnvFrom[0].ConfigMapRef.Name != m.settings.Name {
			t.Errorf("the settings come from %+v, want %s", c.EnvFrom, m.settings.Name)
		}
		for name, value := range m.settings.Data {
			if !known[name] {
				t.Errorf("serve has no setting %s", name)
			}
			if filepath.IsAbs(value) && !mounted(c, value) {
				t.Errorf("%s is %s, which is on no volume", name, value)
			}
		}
		var wait time.Duration
		for _, name := range []string{"PULSEGATE_DRAIN_DELAY", "PULSEGATE_DRAIN_TIMEOUT"} {
			d, err := time.ParseDuration(m.settings.Data[name])
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wait += d
		}
		// docs/lifecycle.md: a minute to close the store.
		if grace := time.Duration(*m.pod().Spec.TerminationGracePeriodSeconds) * time.Second; grace < wait+time.Minute {
			t.Errorf("the pod is killed %v after SIGTERM, and draining may take %v and a minute", grace, wait)
		}
	})
}

// mounted reports whether a path lies in a volume of a container, as a whole volume:
// single files of secrets do not follow a change.
func mounted(c *corev1.Container, path string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool {
		return strings.HasPrefix(path, v.MountPath+"/") && v.SubPath == ""
	})
}
