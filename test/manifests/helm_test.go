package manifests

import (
	"os"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const (
	chart             = "../../deploy/helm/leaderboard"
	embeddedValues    = "../../deploy/helm/embedded.yaml"
	distributedValues = "../../deploy/helm/distributed.yaml"
)

func valuesOf(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// tryRender returns the manifests that "helm install" sends for a release.
func tryRender(t *testing.T, release string, values map[string]any) (documents, error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: "leaderboard", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	var set documents
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for document := range strings.SplitSeq("\n"+text, "\n---\n") {
			var v any
			if err := yaml.Unmarshal([]byte(document), &v); err != nil {
				return nil, err
			}
			if v != nil {
				set = append(set, []byte(document))
			}
		}
	}
	return set, nil
}

func render(t *testing.T, release, file string) documents {
	t.Helper()
	set, err := tryRender(t, release, valuesOf(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestChartLints(t *testing.T) {
	for _, file := range []string{embeddedValues, distributedValues} {
		for _, m := range lint.All(chart, valuesOf(t, file), "leaderboard", true).Messages {
			if m.Severity >= support.InfoSev {
				t.Errorf("with %s: %v", file, m)
			}
		}
	}
}

// change returns the values of a file with another value at a path, such as image.tag.
func change(t *testing.T, file, path string, value any) map[string]any {
	t.Helper()
	values := valuesOf(t, file)
	keys := strings.Split(path, "/")
	at := values
	for _, key := range keys[:len(keys)-1] {
		next, ok := at[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[key] = next
		}
		at = next
	}
	at[keys[len(keys)-1]] = value
	return values
}

func TestChartRefusesMistakes(t *testing.T) {
	for _, tt := range []struct {
		file, path string
		value      any
		want       string
	}{
		{embeddedValues, "engine", "memory", "engine"},
		{embeddedValues, "replicas", 3, "replicas"},
		{embeddedValues, "image/repository", "", "repository"},
		{embeddedValues, "image/tag", "", "tag"},
		{embeddedValues, "image/digest", "sha256:1", "digest"},
		{embeddedValues, "embedded/storage/size", "-1Gi", "size"},
		{embeddedValues, "embedded/resources/limits/memory", nil, "memory"},
		{embeddedValues, "settings/LEADERBOARD_ADMIN_KEY", "secret", "LEADERBOARD_ADMIN_KEY"},
		{embeddedValues, "settings/LEADERBOARD_DATA", "/", "LEADERBOARD_DATA"},
		{embeddedValues, "settings/limits.key_rate", "100", "limits.key_rate"},
		{embeddedValues, "settings/LEADERBOARD_LIMITS_KEY_RATE", 100, "string"},
		{embeddedValues, "pod/hostNetwork", true, "hostNetwork"},
		{embeddedValues, "networkPolicy/clients", []any{}, "clients"},
		{embeddedValues, "networkPolicy/egressPorts", []any{70000}, "egressPorts"},
		{embeddedValues, "secret", "Not a name", "secret"},
		{distributedValues, "settings", map[string]any{"LEADERBOARD_CASSANDRA_HOSTS": "cassandra"}, "LEADERBOARD_KAFKA_BROKERS"},
		{distributedValues, "settings/LEADERBOARD_REDIS_PASSWORD", "secret", "LEADERBOARD_REDIS_PASSWORD"},
		{distributedValues, "api/replicas", -1, "replicas"},
		{distributedValues, "consumer/autoscaling/minReplicas", 0, "minReplicas"},
		{distributedValues, "topics/partitions", 1.5, "partitions"},
		{distributedValues, "schema/replicas", "3", "replicas"},
		{distributedValues, "service/type", "Loadbalancer", "type"},
	} {
		_, err := tryRender(t, "leaderboard", change(t, tt.file, tt.path, tt.value))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %s: %v, the error is %v, want one that names %s", tt.path, tt.value, err, tt.want)
		}
	}
}

func TestChartUsesItsValues(t *testing.T) {
	pod := func(set documents) corev1.PodTemplateSpec {
		return pods(t, set)["leaderboard"]
	}
	before, err := tryRender(t, "leaderboard", valuesOf(t, embeddedValues))
	if err != nil {
		t.Fatal(err)
	}
	const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, tt := range []struct {
		path  string
		value any
		holds func(p corev1.PodTemplateSpec) bool
	}{
		{"image/digest", digest, func(p corev1.PodTemplateSpec) bool {
			return p.Spec.Containers[0].Image == "registry.example.com/leaderboard@"+digest
		}},
		{"image/pullSecrets", []any{map[string]any{"name": "registry"}}, func(p corev1.PodTemplateSpec) bool { return p.Spec.ImagePullSecrets[0].Name == "registry" }},
		{"pod/priorityClassName", "high", func(p corev1.PodTemplateSpec) bool { return p.Spec.PriorityClassName == "high" }},
		{"embedded/resources/limits/memory", "1.5Gi", func(p corev1.PodTemplateSpec) bool {
			return valueOf(p.Spec.Containers[0].Env, "GOMEMLIMIT") == "1382MiB"
		}},
		{"settings/LEADERBOARD_LOG_LEVEL", "warn", func(p corev1.PodTemplateSpec) bool {
			return p.Annotations["checksum/settings"] != pod(before).Annotations["checksum/settings"]
		}},
	} {
		set, err := tryRender(t, "leaderboard", change(t, embeddedValues, tt.path, tt.value))
		if err != nil {
			t.Error(err)
			continue
		}
		if p := pod(set); !tt.holds(p) {
			t.Errorf("%s: %v has no effect: %+v", tt.path, tt.value, p)
		}
		for _, document := range set {
			if err := validate(t, document); err != nil {
				t.Errorf("%s: %v: %v", tt.path, tt.value, err)
			}
		}
	}
	set, err := tryRender(t, "leaderboard", change(t, embeddedValues, "embedded/storage", map[string]any{"size": "3Ti", "className": "fast"}))
	if err != nil {
		t.Fatal(err)
	}
	claim := manifestsOf[appsv1.StatefulSet](t, set, "StatefulSet")["leaderboard"].Spec.VolumeClaimTemplates[0].Spec
	if *claim.StorageClassName != "fast" || claim.Resources.Requests.Storage().String() != "3Ti" {
		t.Errorf("the volume is %+v, want 3Ti of the class fast", claim)
	}
}

// Releases in one namespace have objects of different names, and select their own pods only.
func TestReleasesOfTheChartAreSeparate(t *testing.T) {
	first, second := render(t, "games", distributedValues), render(t, "races", distributedValues)
	names := func(set documents) map[string]bool {
		found := map[string]bool{}
		for _, d := range set {
			var head struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal(d, &head); err != nil {
				t.Fatal(err)
			}
			found[head.Kind+" "+head.Metadata.Name] = true
		}
		return found
	}
	for name := range names(second) {
		if names(first)[name] {
			t.Errorf("both releases have the %s, want different names", name)
		}
	}
	for name, budget := range manifestsOf[policyv1.PodDisruptionBudget](t, first, "PodDisruptionBudget") {
		for other, pod := range pods(t, second) {
			if matches(t, budget.Spec.Selector, pod) {
				t.Errorf("the budget %s of one release selects the pods of %s of another", name, other)
			}
		}
	}
}
