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

// TestPodSecurity checks that the pod meets the Pod Security Standard "restricted", and
// some requirements beyond the standard.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	try(t, err)
	eachOverlay(t, func(t *testing.T, m *manifests) {
		pod := m.pod()
		level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
		for _, result := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				t.Errorf("restricted: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
			}
		}
		if c := m.container().SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
			t.Error("the root file system is writable")
		}
		if a := pod.Spec.AutomountServiceAccountToken; a == nil || *a || m.account.AutomountServiceAccountToken == nil ||
			*m.account.AutomountServiceAccountToken {
			t.Error("the pod gets a service account token, which it does not need")
		}
		if l := pod.Spec.EnableServiceLinks; l == nil || *l {
			t.Error("variables of Services such as PULSEGATE_PORT would be read as settings")
		}
		user := pod.Spec.SecurityContext
		ids := user.RunAsUser != nil || user.RunAsGroup != nil || user.FSGroup != nil
		if openshift := m.overlay == "overlays/openshift"; ids == openshift {
			t.Errorf("user and group are set: %v; want them unset on OpenShift, which assigns them, and set elsewhere", ids)
		}
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if m.container().Resources.Requests.Name(r, "").IsZero() || m.container().Resources.Limits.Name(r, "").IsZero() {
				t.Errorf("%s has no request or no limit", r)
			}
		}
	})
}

// TestProbes checks that a running server answers the probes on the admin listener,
// which has no connection limit and requires no certificate.
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
			probe := tt.probe.HTTPGet
			if probe == nil || probe.Path != tt.path || probe.Port.StrVal != "admin" || probe.Scheme != "" {
				t.Errorf("the %s probe requests %+v, want %s on admin over plain HTTP", tt.name, probe, tt.path)
				continue
			}
			if status, body := get(t, http.DefaultClient, s.admin+probe.Path); status != http.StatusOK {
				t.Errorf("the %s probe is answered %d %s", tt.name, status, body)
			}
		}
		if patience := time.Duration(c.LivenessProbe.PeriodSeconds*c.LivenessProbe.FailureThreshold) *
			time.Second; patience < time.Minute {
			t.Errorf("a server that does not answer for %v is killed, want at least a minute", patience)
		}
	})
}

// TestSettings checks that the settings exist, that the files they name are mounted,
// and that their durations are consistent.
func TestSettings(t *testing.T) {
	help, code := run(t, exec.Command(program(t), "serve", "--help"))
	if code != 0 {
		t.Fatalf("serve --help: exit code %d", code)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(help, -1) {
		known["PULSEGATE_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))] = true
	}
	eachOverlay(t, func(t *testing.T, m *manifests) {
		c := m.container()
		if !slices.Equal(c.Args, []string{"serve"}) || len(c.Command) != 0 || len(c.Env) != 0 {
			t.Errorf("the command is %q %q with %v, want serve with settings from the ConfigMap only", c.Command, c.Args, c.Env)
		}
		if len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef == nil || c.EnvFrom[0].ConfigMapRef.Name != m.settings.Name {
			t.Errorf("the settings come from %+v, want %s", c.EnvFrom, m.settings.Name)
		}
		for name, value := range m.settings.Data {
			if !known[name] && name != "PGPASSFILE" {
				t.Errorf("serve has no setting %s", name)
			}
			if filepath.IsAbs(value) && !mounted(c, value) {
				t.Errorf("%s is %s, which is not in a volume", name, value)
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
			t.Errorf("the pod is killed %v after SIGTERM, but draining may take %v and closing a minute", grace, wait)
		}
	})
}

// mounted reports whether a path is in a volume that is mounted as a whole. With a
// subPath, changes of a secret would not appear.
func mounted(c *corev1.Container, path string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(v corev1.VolumeMount) bool {
		return strings.HasPrefix(path, v.MountPath+"/") && v.SubPath == ""
	})
}
