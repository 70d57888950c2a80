// Long: the tests build the program, and check its arguments and settings in manifests and units.

package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/authority"
)

const (
	base     = "../../deploy/kubernetes/base"
	example  = "../../deploy/kubernetes/example"
	embedded = "../../deploy/kubernetes/embedded"
)

// build returns the manifests that "kubectl apply -k" sends for a folder, and those that the page of
// operations applies besides.
func build(t *testing.T, dir string) documents {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var all documents
	if dir == embedded {
		text, err := os.ReadFile(filepath.Join(dir, "restore.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	for _, r := range resources.Resources() {
		document, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
	}
	return all
}

// documents are manifests that are applied together.
type documents [][]byte

// distributedSets returns the manifests of the distributed engine, by kustomize and by Helm.
func distributedSets(t *testing.T) map[string]documents {
	t.Helper()
	return map[string]documents{"kustomize, distributed": build(t, example), "Helm, distributed": render(t, "leaderboard", distributedValues)}
}

// embeddedSets returns the manifests of the embedded engine.
func embeddedSets(t *testing.T) map[string]documents {
	t.Helper()
	return map[string]documents{"kustomize, embedded": build(t, embedded), "Helm, embedded": render(t, "leaderboard", embeddedValues)}
}

func allSets(t *testing.T) map[string]documents {
	t.Helper()
	all := distributedSets(t)
	maps.Copy(all, embeddedSets(t))
	return all
}

// each runs a test for each set of manifests.
func each(t *testing.T, sets map[string]documents, test func(t *testing.T, set documents)) {
	t.Helper()
	for name, set := range sets {
		t.Run(name, func(t *testing.T) { test(t, set) })
	}
}

// manifestsOf returns the manifests of kind T by name, or by the prefix of a generated name.
func manifestsOf[T any](t *testing.T, set documents, kind string) map[string]T {
	t.Helper()
	found := map[string]T{}
	for _, document := range set {
		var head struct {
			metav1.TypeMeta
			Metadata struct{ Name, GenerateName string }
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		if head.Kind != kind {
			continue
		}
		var v T
		if err := yaml.Unmarshal(document, &v); err != nil {
			t.Fatal(err)
		}
		found[head.Metadata.Name+head.Metadata.GenerateName] = v
	}
	return found
}

func pods(t *testing.T, set documents) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for name, d := range manifestsOf[appsv1.Deployment](t, set, "Deployment") {
		found[name] = d.Spec.Template
	}
	for name, s := range manifestsOf[appsv1.StatefulSet](t, set, "StatefulSet") {
		found[name] = s.Spec.Template
	}
	for name, j := range manifestsOf[batchv1.Job](t, set, "Job") {
		found[name] = j.Spec.Template
	}
	if len(found) == 0 {
		t.Fatal("the manifests have no pods, want some")
	}
	return found
}

// validate checks a manifest with the schemas of Kubernetes in testdata/kubernetes.json, or of KEDA,
// the autoscaler of consumers, in testdata/crds. All are strict: they reject unknown fields.
func validate(t *testing.T, document []byte) error {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	var v any
	if err := yaml.UnmarshalStrict(document, &v); err != nil {
		return err
	}
	if strings.HasPrefix(kind.APIVersion, "keda.sh/") {
		return kedaSchema(t, kind).Validate(v)
	}
	schema, ok := kubernetesSchemas(t)[kind]
	if !ok {
		return fmt.Errorf("testdata/kubernetes.json has no schema of %s %s", kind.APIVersion, kind.Kind)
	}
	return schema.Validate(v)
}

// kubernetesSchemas returns the schemas of testdata/kubernetes.json. Only those of kinds have an enum
// of kind and apiVersion.
func kubernetesSchemas(t *testing.T) map[metav1.TypeMeta]*jsonschema.Schema {
	t.Helper()
	const file = "testdata/kubernetes.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(file, document); err != nil {
		t.Fatal(err)
	}
	var definitions struct {
		Defs map[string]struct {
			Properties struct{ APIVersion, Kind struct{ Enum []string } }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &definitions); err != nil {
		t.Fatal(err)
	}
	schemas := map[metav1.TypeMeta]*jsonschema.Schema{}
	for name, d := range definitions.Defs {
		if p := d.Properties; len(p.APIVersion.Enum) == 1 && len(p.Kind.Enum) == 1 {
			schema, err := compiler.Compile(file + "#/$defs/" + name)
			if err != nil {
				t.Fatal(err)
			}
			schemas[metav1.TypeMeta{APIVersion: p.APIVersion.Enum[0], Kind: p.Kind.Enum[0]}] = schema
		}
	}
	return schemas
}

func kedaSchema(t *testing.T, kind metav1.TypeMeta) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("testdata/crds/keda.sh_" + strings.ToLower(kind.Kind) + "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Group    string
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	version := crd.Spec.Versions[0]
	if got := crd.Spec.Group + "/" + version.Name; got != kind.APIVersion {
		t.Fatalf("testdata has the kind %s of %s, want %s as in the manifest", kind.Kind, got, kind.APIVersion)
	}
	s := version.Schema.OpenAPIV3Schema
	closeSchema(s)
	delete(s["properties"].(map[string]any)["metadata"].(map[string]any), "additionalProperties")
	c := jsonschema.NewCompiler()
	if err := c.AddResource("keda.json", s); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("keda.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// closeSchema forbids the fields that a schema does not declare.
func closeSchema(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if _, has := s["additionalProperties"]; !has && s["type"] == "object" && s["x-kubernetes-preserve-unknown-fields"] == nil {
			s["additionalProperties"] = false
		}
		for _, v := range s {
			closeSchema(v)
		}
	case []any:
		for _, v := range s {
			closeSchema(v)
		}
	}
}

func TestManifestsMatchTheirSchemas(t *testing.T) {
	sets := allSets(t)
	sets["base"] = build(t, base)
	each(t, sets, func(t *testing.T, set documents) {
		for _, document := range set {
			if err := validate(t, document); err != nil {
				t.Errorf("%v\n%s", err, document)
			}
		}
	})
}

func TestSchemasRefuseMistakes(t *testing.T) {
	documents := build(t, example)
	for right, wrong := range map[string]string{
		" maxSkew: 1": " maxSkews: 1", " periodSeconds: 5": " periodSeconds: five",
		" minReplicaCount: 3": " minReplicaCount: three", " maxUnavailable: 1": " maxUnavailables: 1", " maxReplicaCount: ": " maxReplicasCount: ", " type: kafka\n": "\n", " maxReplicas: 12\n": "\n",
	} {
		i := slices.IndexFunc(documents, func(d []byte) bool { return bytes.Contains(d, []byte(right)) })
		if i < 0 {
			t.Errorf("no manifest has %q, want one", right)
		} else if err := validate(t, bytes.Replace(documents[i], []byte(right), []byte(wrong), 1)); err == nil {
			t.Errorf("a manifest with %q in place of %q is valid, want an error", wrong, right)
		}
	}
}

func TestPodsKeepTheRestrictedStandard(t *testing.T) { each(t, allSets(t), checkRestricted) }

func checkRestricted(t *testing.T, set documents) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for name, pod := range pods(t, set) {
		for _, r := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !r.Allowed {
				t.Errorf("the restricted standard forbids %s: %s: %s", name, r.ForbiddenReason, r.ForbiddenDetail)
			}
		}
		c := pod.Spec.Containers[0]
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s can write to its image, want readOnlyRootFilesystem", name)
		}
		if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("%s gets a token of Kubernetes, want automountServiceAccountToken: false", name)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s lacks a memory limit, a memory request or a CPU request, want all three", name)
		}
		if !regexp.MustCompile(`^[a-z0-9./-]+:(v\d+\.\d+\.\d+|build-\d+)$`).MatchString(c.Image) {
			t.Errorf("%s runs %q, want the version of a release or the number of a build", name, c.Image)
		}
	}
	for name, n := range manifestsOf[corev1.Namespace](t, set, "Namespace") {
		if n.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("the namespace %s does not enforce restricted pods, want the label pod-security.kubernetes.io/enforce: restricted", name)
		}
	}
}

// environ returns a pod's environment variables. The secrets are made up. The mounted files are in
// a temporary folder.
func environ(t *testing.T, set documents, pod corev1.PodSpec) []string {
	t.Helper()
	c := pod.Containers[0]
	variables := map[string]string{}
	settings := manifestsOf[corev1.ConfigMap](t, set, "ConfigMap")
	for _, from := range c.EnvFrom {
		m, ok := settings[from.ConfigMapRef.Name]
		if !ok {
			t.Errorf("there is no ConfigMap %s", from.ConfigMapRef.Name)
		}
		maps.Copy(variables, m.Data)
	}
	for _, v := range c.Env {
		switch {
		case v.ValueFrom == nil:
			variables[v.Name] = v.Value
		case v.ValueFrom.SecretKeyRef.Optional == nil:
			variables[v.Name] = "a made-up secret of " + v.ValueFrom.SecretKeyRef.Key
		}
	}
	root := t.TempDir()
	ca, err := authority.New(root, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue("pod", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string]string{"ca.crt": ca.File, "tls.crt": pair.Cert, "tls.key": pair.Key}
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.Secret != nil })
		if i < 0 {
			continue // the volume of the embedded engine
		}
		for _, item := range pod.Volumes[i].Secret.Items {
			file := filepath.Join(root, m.MountPath, item.Path)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if contents[item.Key] == "" {
				t.Fatalf("the key %q of a mounted secret is not ca.crt, tls.crt or tls.key", item.Key)
			}
			if err := os.Link(contents[item.Key], file); err != nil {
				t.Fatal(err)
			}
		}
	}
	var list []string
	for name, value := range variables {
		if strings.HasPrefix(value, "/etc/") {
			value = filepath.Join(root, value)
		}
		list = append(list, name+"="+value)
	}
	return list
}

// The settings and commands of all pods are valid and secure. They agree with the probes, the ports
// and the grace period of a stop.
func TestSettingsOfThePods(t *testing.T) { each(t, allSets(t), checkSettings) }

func checkSettings(t *testing.T, set documents) {
	t.Helper()
	roles := map[string][]string{"api": {config.RoleAPI}, "consumer": {config.RoleConsumer}, "embedded": {config.RoleAPI, config.RoleConsumer}}
	components := map[string]bool{}
	for name, pod := range pods(t, set) {
		component := pod.Labels["app.kubernetes.io/component"]
		components[component] = true
		c := pod.Spec.Containers[0]
		s := load(t, environ(t, set, pod.Spec))
		checkKnown(t, c.Args)
		if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
			t.Errorf("%s gets variables of Services, which may look like settings; want enableServiceLinks: false", name)
		}
		if s.Distributed() {
			checkBackEnds(t, name, s)
		} else {
			checkVolume(t, name, pod.Spec, s)
		}
		want, serves := roles[component]
		if !serves {
			continue
		}
		if !slices.Equal(s.Roles, want) || s.Insecure || (s.AdminKey != "") != s.ServesAPI() {
			t.Errorf("%s has the roles %v, insecure %t, admin key %t; want the roles %v, insecure false, admin key %t", name, s.Roles, s.Insecure, s.AdminKey != "", want, s.ServesAPI())
		}
		checkProbes(t, name, c, s)
		grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
		if longest := s.DrainTime + max(s.ShutdownGrace, batchTime); grace <= longest {
			t.Errorf("%s is killed after %v, want more than the %v that a stop may take", name, grace, longest)
		}
		if unready := time.Duration(c.ReadinessProbe.PeriodSeconds*c.ReadinessProbe.FailureThreshold) * time.Second; s.DrainTime <= unready {
			t.Errorf("%s drains for %v, want more than the %v in which Kubernetes removes it from the Service", name, s.DrainTime, unready)
		}
		limit, err := resource.ParseQuantity(strings.TrimSuffix(valueOf(c.Env, "GOMEMLIMIT"), "B"))
		if memory := c.Resources.Limits.Memory(); err != nil || limit.Value() < memory.Value()*8/10 || limit.Value() > memory.Value()*95/100 {
			t.Errorf("%s has GOMEMLIMIT %v, error %v; want 80 to 95 %% of the limit %v", name, limit.String(), err, memory)
		}
	}
	if found := slices.Sorted(maps.Keys(components)); !slices.Equal(found, []string{"api", "consumer", "schema", "topics"}) && !slices.Contains(found, "embedded") {
		t.Errorf("the workloads are %v, want API nodes, consumers and two jobs, or the embedded engine", found)
	}
}

func valueOf(variables []corev1.EnvVar, name string) string {
	i := slices.IndexFunc(variables, func(v corev1.EnvVar) bool { return v.Name == name })
	if i < 0 {
		return ""
	}
	return variables[i].Value
}

func checkBackEnds(t *testing.T, name string, s *config.Config) {
	t.Helper()
	if !s.Cassandra.TLS.Enabled || !s.Redis.TLS.Enabled || !s.Kafka.TLS.Enabled || s.Cassandra.Password == "" || s.Redis.Password == "" || s.Kafka.Password == "" {
		t.Errorf("%s lacks TLS or a password for Cassandra, Redis or Kafka, want both for each", name)
	}
}

// checkVolume checks that the embedded engine writes its data and backups below the mount point of its
// volume. A restore renames the folder of the data, so this folder must not be the mount point.
func checkVolume(t *testing.T, name string, pod corev1.PodSpec, s *config.Config) {
	t.Helper()
	mounts := pod.Containers[0].VolumeMounts
	if len(mounts) != 1 || mounts[0].ReadOnly {
		t.Errorf("%s has the volumes %v, want one to which it can write", name, mounts)
		return
	}
	for _, folder := range []string{s.Data, s.BackupFolder()} {
		if !strings.HasPrefix(folder, mounts[0].MountPath+"/") {
			t.Errorf("%s writes to %s, want a folder below the mount point %s", name, folder, mounts[0].MountPath)
		}
	}
	if pod.SecurityContext.FSGroup == nil || *pod.SecurityContext.FSGroup != *pod.SecurityContext.RunAsGroup {
		t.Errorf("%s: its group may not write to the volume, want fsGroup %d", name, *pod.SecurityContext.RunAsGroup)
	}
}

func checkProbes(t *testing.T, name string, c corev1.Container, s *config.Config) {
	t.Helper()
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = fmt.Sprint("0.0.0.0:", p.ContainerPort)
	}
	want := map[string]string{"admin": s.Admin}
	if s.ServesAPI() {
		want["http"], want["grpc"] = s.HTTP, s.GRPC
	}
	if !maps.Equal(ports, want) {
		t.Errorf("%s has the ports %v, want %v", name, ports, want)
	}
	for path, probe := range map[string][]*corev1.Probe{"/healthz": {c.StartupProbe, c.LivenessProbe}, "/readyz": {c.ReadinessProbe}} {
		for _, p := range probe {
			if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.StrVal != "admin" {
				t.Errorf("%s has the probe %v, want a probe of %s at the port admin", name, p, path)
			}
		}
	}
}

// The list at the top of base/kustomization.yaml and the command of docs/operations/kubernetes.md name every
// Secret and key.
func TestSecretsAreListed(t *testing.T) { each(t, allSets(t), checkSecrets) }

func checkSecrets(t *testing.T, set documents) {
	t.Helper()
	named := map[string]bool{}
	for _, pod := range pods(t, set) {
		for _, v := range pod.Spec.Containers[0].Env {
			if v.ValueFrom != nil {
				named[v.ValueFrom.SecretKeyRef.Name+" "+v.ValueFrom.SecretKeyRef.Key] = true
			}
			if strings.Contains(strings.ToLower(v.Name), "password") && v.ValueFrom == nil {
				t.Errorf("%s is in the manifest, want a Secret", v.Name)
			}
		}
		for _, v := range pod.Spec.Volumes {
			if v.Secret == nil {
				continue
			}
			for _, item := range v.Secret.Items {
				named[v.Secret.SecretName+" "+item.Key] = true
			}
		}
	}
	private := regexp.MustCompile(`PASSWORD|SECRET|(^|[^S])_KEY$`) // TLS_KEY is a path
	for _, m := range manifestsOf[corev1.ConfigMap](t, set, "ConfigMap") {
		for name := range m.Data {
			if private.MatchString(name) {
				t.Errorf("%s is in the ConfigMap %s, want a Secret", name, m.Name)
			}
		}
	}
	for _, a := range manifestsOf[triggerAuthentication](t, set, "TriggerAuthentication") {
		for _, s := range a.Spec.SecretTargetRef {
			named[s.Name+" "+s.Key] = true
		}
	}
	for _, file := range []string{filepath.Join(base, "kustomization.yaml"), "../../docs/operations/kubernetes.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for secret := range named {
			name, key, _ := strings.Cut(secret, " ")
			if !regexp.MustCompile(`(?m)\b` + name + `\s.*\b` + regexp.QuoteMeta(key) + `\b`).Match(text) {
				t.Errorf("%s does not list the key %s of the Secret %s", file, key, name)
			}
		}
	}
	want := 6
	if len(manifestsOf[appsv1.StatefulSet](t, set, "StatefulSet")) > 0 {
		want = 1
	}
	if len(named) != want {
		t.Errorf("%d keys of Secrets, want %d: %v", len(named), want, named)
	}
}

func matches(t *testing.T, s *metav1.LabelSelector, pod corev1.PodTemplateSpec) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(pod.Labels))
}

// Each Deployment spreads its pods over zones and machines, and selects only its own pods.
func TestPodsAreSpreadAndEvictedOneByOne(t *testing.T) { each(t, distributedSets(t), checkSpread) }

func checkSpread(t *testing.T, set documents) {
	t.Helper()
	budgets, deployments := manifestsOf[policyv1.PodDisruptionBudget](t, set, "PodDisruptionBudget"), manifestsOf[appsv1.Deployment](t, set, "Deployment")
	for name, d := range deployments {
		b, ok := budgets[name]
		if !ok || b.Spec.MaxUnavailable.IntValue() != 1 {
			t.Errorf("%s has the budget %v, want maxUnavailable 1", name, b.Spec)
			continue
		}
		selectors := map[string]*metav1.LabelSelector{"selector": d.Spec.Selector, "budget": b.Spec.Selector}
		for _, s := range d.Spec.Template.Spec.TopologySpreadConstraints {
			selectors[s.TopologyKey] = s.LabelSelector
		}
		if len(selectors) != 4 {
			t.Errorf("%s has %d spread constraints, want 2: zones and machines", name, len(selectors)-2)
		}
		for purpose, s := range selectors {
			for other, pod := range pods(t, set) {
				if got, want := matches(t, s, pod), other == name; got != want {
					t.Errorf("%s: the label selector %q matches the pods of %s: %t, want %t", name, purpose, other, got, want)
				}
			}
		}
		if u := d.Spec.Strategy.RollingUpdate; u == nil || u.MaxUnavailable.IntValue() != 0 {
			t.Errorf("%s: a rollout removes pods before new pods are ready, want maxUnavailable 0", name)
		}
	}
}

// The Service and the network policies have the ports of the settings. Every pod has policies for
// ingress and egress.
func TestNetworkOfThePods(t *testing.T) { each(t, allSets(t), checkNetwork) }

func checkNetwork(t *testing.T, set documents) {
	t.Helper()
	found := pods(t, set)
	api := "leaderboard-api"
	if _, ok := found["leaderboard"]; ok {
		api = "leaderboard"
	}
	s := load(t, environ(t, set, found[api].Spec))
	port := func(address string) int {
		n, err := strconv.Atoi(address[strings.LastIndex(address, ":")+1:])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	service := manifestsOf[corev1.Service](t, set, "Service")["leaderboard"]
	for _, p := range service.Spec.Ports {
		if want := map[string]string{"http": s.HTTP, "grpc": s.GRPC}[p.Name]; want == "" || int(p.Port) != port(want) || p.TargetPort.StrVal != p.Name {
			t.Errorf("the Service has the port %v, want the port and the name of a setting: http or grpc", p)
		}
	}
	openPorts := map[string][]int{} // by workload
	var calledPorts []int
	for name, pod := range found {
		if got, want := labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)), name == api; got != want {
			t.Errorf("the Service selects the pods of %s: %v, want %v", name, got, want)
		}
		egress := false
		for _, p := range manifestsOf[networkingv1.NetworkPolicy](t, set, "NetworkPolicy") {
			if !matches(t, &p.Spec.PodSelector, pod) {
				continue
			}
			if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
				t.Errorf("policy %s has the types %v, want Ingress among them", p.Name, p.Spec.PolicyTypes)
			}
			for _, rule := range p.Spec.Ingress {
				if len(rule.From) == 0 {
					t.Errorf("%s: policy %s admits every caller, want a list of callers", name, p.Name)
				}
				for _, o := range rule.Ports {
					openPorts[name] = append(openPorts[name], o.Port.IntValue())
				}
			}
			// Without the type Egress, Kubernetes ignores egress rules.
			egress = egress || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			for _, rule := range p.Spec.Egress {
				for _, o := range rule.Ports {
					calledPorts = append(calledPorts, o.Port.IntValue())
				}
			}
		}
		if !egress {
			t.Errorf("%s may call every server, want a policy of the type Egress", name)
		}
	}
	open := map[string][]int{api: {port(s.HTTP), port(s.Admin), port(s.GRPC)}}
	called := []string{"dns:53"}
	if s.Distributed() {
		open["leaderboard-consumer"] = []int{port(s.Admin)}
		called = slices.Concat(called, s.Redis.Addresses, s.Kafka.Brokers, []string{"cassandra:9042"})
	}
	for name, want := range open {
		slices.Sort(openPorts[name])
		if !slices.Equal(openPorts[name], want) {
			t.Errorf("%s has the open ports %v, want %v", name, openPorts[name], want)
		}
	}
	for _, address := range called {
		if !slices.Contains(calledPorts, port(address)) {
			t.Errorf("no policy lets pods call %s, want one", address)
		}
	}
}

type triggerAuthentication struct {
	Spec struct {
		Env             []struct{ Parameter, Name, ContainerName string }
		SecretTargetRef []struct{ Parameter, Name, Key string }
	}
}

type scaledObject struct {
	Spec struct {
		ScaleTargetRef                   struct{ Name, EnvSourceContainerName string }
		MinReplicaCount, MaxReplicaCount int
		Triggers                         []struct {
			Type              string
			Metadata          map[string]string
			AuthenticationRef struct{ Name string }
		}
	}
}

// The autoscaler reads the lag with the consumers' group, topic, brokers and credentials. It starts
// no more consumers than partitions.
func TestConsumersAreScaledByTheirLag(t *testing.T) { each(t, distributedSets(t), checkScaling) }

func checkScaling(t *testing.T, set documents) {
	t.Helper()
	found := pods(t, set)
	o := manifestsOf[scaledObject](t, set, "ScaledObject")["leaderboard-consumer"].Spec
	pod, ok := found[o.ScaleTargetRef.Name]
	if !ok || len(o.Triggers) != 1 || o.Triggers[0].Type != "kafka" {
		t.Fatalf("the autoscaler is %+v, want one trigger of type kafka, for an existing workload", o)
	}
	variables := environ(t, set, pod.Spec)
	s := load(t, variables)
	has := func(variable string) bool {
		return slices.ContainsFunc(variables, func(v string) bool { return strings.HasPrefix(v, variable+"=") })
	}
	m := o.Triggers[0].Metadata
	sasl := strings.ToLower(strings.Replace(strings.Replace(s.Kafka.Mechanism, "-SHA-", "_sha", 1), "-", "_", 1))
	for field, pair := range map[string][2]string{
		"consumerGroup": {m["consumerGroup"], s.ConsumerGroup()}, "topic": {m["topic"], kafka.Topics{Prefix: s.Kafka.TopicPrefix}.Results()},
		"sasl": {m["sasl"], sasl}, "tls": {m["tls"], "enable"}, "brokers": {m["bootstrapServersFromEnv"], "LEADERBOARD_KAFKA_BROKERS"},
		"container": {o.ScaleTargetRef.EnvSourceContainerName, pod.Spec.Containers[0].Name},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %q, want %q", field, pair[0], pair[1])
		}
	}
	var args []string
	for _, p := range found {
		if p.Labels["app.kubernetes.io/component"] == "topics" {
			args = p.Spec.Containers[0].Args
		}
	}
	if i := slices.Index(args, "--partitions"); i < 0 || args[i+1] != strconv.Itoa(o.MaxReplicaCount) || o.MinReplicaCount < 2 {
		t.Errorf("the autoscaler runs %d to %d consumers, and a job creates the topics with %v; want at least 2 consumers, and --partitions equal to their maximum", o.MinReplicaCount, o.MaxReplicaCount, args)
	}
	auth := manifestsOf[triggerAuthentication](t, set, "TriggerAuthentication")[o.Triggers[0].AuthenticationRef.Name].Spec
	if len(auth.Env) != 1 || len(auth.SecretTargetRef) != 2 || !has("LEADERBOARD_KAFKA_BROKERS") || !has(auth.Env[0].Name) {
		t.Errorf("the credentials of the autoscaler are %+v, want one variable of the consumers and two keys of Secrets", auth)
	}
	h := manifestsOf[autoscalingv2.HorizontalPodAutoscaler](t, set, "HorizontalPodAutoscaler")["leaderboard-api"]
	deployments := manifestsOf[appsv1.Deployment](t, set, "Deployment")
	if _, ok := deployments[h.Spec.ScaleTargetRef.Name]; !ok {
		t.Errorf("the autoscaler of API nodes scales %v, want an existing Deployment", h.Spec.ScaleTargetRef)
	}
	for name, d := range deployments {
		if d.Spec.Replicas != nil {
			t.Errorf("%s sets the number of pods, want no number: the autoscaler sets it", name)
		}
	}
}
