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
	base    = "../../deploy/kubernetes/base"
	example = "../../deploy/kubernetes/example"
)

// build returns the manifests that "kubectl apply -k" sends for a folder.
func build(t *testing.T, dir string) [][]byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var documents [][]byte
	for _, r := range resources.Resources() {
		document, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, document)
	}
	return documents
}

// manifestsOf returns the example's manifests of kind T by name.
func manifestsOf[T any](t *testing.T, kind string) map[string]T {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), example)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]T{}
	for _, r := range resources.Resources() {
		if r.GetKind() != kind {
			continue
		}
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var v T
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		found[r.GetName()] = v
	}
	if len(found) == 0 {
		t.Fatalf("found no manifest of kind %s, want some", kind)
	}
	return found
}

func pods(t *testing.T) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for name, d := range manifestsOf[appsv1.Deployment](t, "Deployment") {
		found[name] = d.Spec.Template
	}
	for name, j := range manifestsOf[batchv1.Job](t, "Job") {
		found[name] = j.Spec.Template
	}
	return found
}

// kinds are the kinds of Kubernetes in the manifests. All other kinds are of KEDA, the autoscaler
// of consumers.
var kinds = map[string]func() any{
	"v1/Namespace":                           func() any { return new(corev1.Namespace) },
	"v1/ServiceAccount":                      func() any { return new(corev1.ServiceAccount) },
	"v1/ConfigMap":                           func() any { return new(corev1.ConfigMap) },
	"v1/Service":                             func() any { return new(corev1.Service) },
	"apps/v1/Deployment":                     func() any { return new(appsv1.Deployment) },
	"batch/v1/Job":                           func() any { return new(batchv1.Job) },
	"policy/v1/PodDisruptionBudget":          func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy":     func() any { return new(networkingv1.NetworkPolicy) },
	"autoscaling/v2/HorizontalPodAutoscaler": func() any { return new(autoscalingv2.HorizontalPodAutoscaler) },
}

// validate rejects unknown fields and wrong types. It uses the types of Kubernetes' API, or KEDA's
// schemas in testdata/crds. Only the schemas state required fields and the values that a text may
// have.
func validate(t *testing.T, document []byte) error {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	if newObject, ok := kinds[kind.APIVersion+"/"+kind.Kind]; ok {
		return yaml.UnmarshalStrict(document, newObject())
	}
	var v any
	if err := yaml.UnmarshalStrict(document, &v); err != nil {
		return err
	}
	return kedaSchema(t, kind).Validate(v)
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
	for _, dir := range []string{base, example} {
		for _, document := range build(t, dir) {
			if err := validate(t, document); err != nil {
				t.Errorf("%s: %v\n%s", dir, err, document)
			}
		}
	}
}

func TestSchemasRefuseMistakes(t *testing.T) {
	documents := build(t, example)
	for right, wrong := range map[string]string{
		" maxSkew: 1": " maxSkews: 1", " periodSeconds: 5": " periodSeconds: five",
		" minReplicaCount: 3": " minReplicaCount: three", " maxUnavailable: 1": " maxUnavailables: 1", " maxReplicaCount: ": " maxReplicasCount: ", " type: kafka\n": "\n",
	} {
		i := slices.IndexFunc(documents, func(d []byte) bool { return bytes.Contains(d, []byte(right)) })
		if i < 0 {
			t.Errorf("no manifest has %q, want one", right)
		} else if err := validate(t, bytes.Replace(documents[i], []byte(right), []byte(wrong), 1)); err == nil {
			t.Errorf("a manifest with %q in place of %q is valid, want an error", wrong, right)
		}
	}
}

func TestPodsKeepTheRestrictedStandard(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for name, pod := range pods(t) {
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
	for name, n := range manifestsOf[corev1.Namespace](t, "Namespace") {
		if n.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("the namespace %s does not enforce restricted pods, want the label pod-security.kubernetes.io/enforce: restricted", name)
		}
	}
}

// environ returns a pod's environment variables. The secrets are made up. The mounted files are in
// a temporary folder.
func environ(t *testing.T, pod corev1.PodSpec) []string {
	t.Helper()
	c := pod.Containers[0]
	variables := map[string]string{}
	settings := manifestsOf[corev1.ConfigMap](t, "ConfigMap")
	for _, from := range c.EnvFrom {
		m, ok := settings[from.ConfigMapRef.Name]
		if !ok {
			t.Errorf("there is no ConfigMap %s", from.ConfigMapRef.Name)
		}
		maps.Copy(variables, m.Data)
	}
	for _, v := range c.Env {
		if variables[v.Name] = v.Value; v.ValueFrom != nil {
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
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
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
func TestSettingsOfThePods(t *testing.T) {
	roles := map[string]string{"leaderboard-api": config.RoleAPI, "leaderboard-consumer": config.RoleConsumer}
	found := pods(t)
	if len(found) != 4 {
		t.Errorf("%d workloads, want 4: API nodes, consumers and two jobs", len(found))
	}
	for name, pod := range found {
		c := pod.Spec.Containers[0]
		s := load(t, environ(t, pod.Spec))
		checkKnown(t, c.Args)
		if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
			t.Errorf("%s gets variables of Services, which may look like settings; want enableServiceLinks: false", name)
		}
		if !s.Cassandra.TLS.Enabled || !s.Redis.TLS.Enabled || !s.Kafka.TLS.Enabled || s.Cassandra.Password == "" || s.Redis.Password == "" || s.Kafka.Password == "" {
			t.Errorf("%s lacks TLS or a password for Cassandra, Redis or Kafka, want both for each", name)
		}
		role, serves := roles[name]
		if !serves {
			continue
		}
		if !slices.Equal(s.Roles, []string{role}) || s.Insecure || (s.AdminKey != "") != s.Has(config.RoleAPI) {
			t.Errorf("%s has the roles %v, insecure %t, admin key %t; want the role %s, insecure false, admin key %t", name, s.Roles, s.Insecure, s.AdminKey != "", role, s.Has(config.RoleAPI))
		}
		checkProbes(t, name, c, s)
		grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
		if longest := s.DrainTime + max(s.ShutdownGrace, batchTime); grace <= longest {
			t.Errorf("%s is killed after %v, want more than the %v that a stop may take", name, grace, longest)
		}
		if unready := time.Duration(c.ReadinessProbe.PeriodSeconds*c.ReadinessProbe.FailureThreshold) * time.Second; s.DrainTime <= unready {
			t.Errorf("%s drains for %v, want more than the %v in which Kubernetes removes it from the Service", name, s.DrainTime, unready)
		}
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
func TestSecretsAreListed(t *testing.T) {
	named := map[string]bool{}
	for _, pod := range pods(t) {
		for _, v := range pod.Spec.Containers[0].Env {
			if v.ValueFrom != nil {
				named[v.ValueFrom.SecretKeyRef.Name+" "+v.ValueFrom.SecretKeyRef.Key] = true
			}
			if strings.Contains(strings.ToLower(v.Name), "password") && v.ValueFrom == nil {
				t.Errorf("%s is in the manifest, want a Secret", v.Name)
			}
		}
		for _, v := range pod.Spec.Volumes {
			for _, item := range v.Secret.Items {
				named[v.Secret.SecretName+" "+item.Key] = true
			}
		}
	}
	private := regexp.MustCompile(`PASSWORD|SECRET|(^|[^S])_KEY$`) // TLS_KEY is a path
	for _, m := range manifestsOf[corev1.ConfigMap](t, "ConfigMap") {
		for name := range m.Data {
			if private.MatchString(name) {
				t.Errorf("%s is in the ConfigMap %s, want a Secret", name, m.Name)
			}
		}
	}
	for _, a := range manifestsOf[triggerAuthentication](t, "TriggerAuthentication") {
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
	if len(named) != 5 {
		t.Errorf("%d keys of Secrets, want 5: %v", len(named), named)
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
func TestPodsAreSpreadAndEvictedOneByOne(t *testing.T) {
	budgets, deployments := manifestsOf[policyv1.PodDisruptionBudget](t, "PodDisruptionBudget"), manifestsOf[appsv1.Deployment](t, "Deployment")
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
			for other, pod := range pods(t) {
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
func TestNetworkOfThePods(t *testing.T) {
	found := pods(t)
	s := load(t, environ(t, found["leaderboard-api"].Spec))
	port := func(address string) int {
		n, err := strconv.Atoi(address[strings.LastIndex(address, ":")+1:])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	service := manifestsOf[corev1.Service](t, "Service")["leaderboard"]
	for _, p := range service.Spec.Ports {
		if want := map[string]string{"http": s.HTTP, "grpc": s.GRPC}[p.Name]; want == "" || int(p.Port) != port(want) || p.TargetPort.StrVal != p.Name {
			t.Errorf("the Service has the port %v, want the port and the name of a setting: http or grpc", p)
		}
	}
	openPorts := map[string][]int{} // by workload
	var calledPorts []int
	for name, pod := range found {
		if got, want := labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)), name == "leaderboard-api"; got != want {
			t.Errorf("the Service selects the pods of %s: %v, want %v", name, got, want)
		}
		egress := false
		for _, p := range manifestsOf[networkingv1.NetworkPolicy](t, "NetworkPolicy") {
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
	for name, want := range map[string][]int{"leaderboard-consumer": {port(s.Admin)}, "leaderboard-api": {port(s.HTTP), port(s.Admin), port(s.GRPC)}} {
		slices.Sort(openPorts[name])
		if !slices.Equal(openPorts[name], want) {
			t.Errorf("%s has the open ports %v, want %v", name, openPorts[name], want)
		}
	}
	for _, address := range slices.Concat(s.Redis.Addresses, s.Kafka.Brokers, []string{"cassandra:9042"}) {
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
func TestConsumersAreScaledByTheirLag(t *testing.T) {
	found := pods(t)
	o := manifestsOf[scaledObject](t, "ScaledObject")["leaderboard-consumer"].Spec
	pod, ok := found[o.ScaleTargetRef.Name]
	if !ok || len(o.Triggers) != 1 || o.Triggers[0].Type != "kafka" {
		t.Fatalf("the autoscaler is %+v, want one trigger of type kafka, for an existing workload", o)
	}
	variables := environ(t, pod.Spec)
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
	args := found["leaderboard-topics"].Spec.Containers[0].Args
	if i := slices.Index(args, "--partitions"); i < 0 || args[i+1] != strconv.Itoa(o.MaxReplicaCount) || o.MinReplicaCount < 2 {
		t.Errorf("the autoscaler runs %d to %d consumers, and a job creates the topics with %v; want at least 2 consumers, and --partitions equal to their maximum", o.MinReplicaCount, o.MaxReplicaCount, args)
	}
	auth := manifestsOf[triggerAuthentication](t, "TriggerAuthentication")[o.Triggers[0].AuthenticationRef.Name].Spec
	if len(auth.Env) != 1 || len(auth.SecretTargetRef) != 2 || !has("LEADERBOARD_KAFKA_BROKERS") || !has(auth.Env[0].Name) {
		t.Errorf("the credentials of the autoscaler are %+v, want one variable of the consumers and two keys of Secrets", auth)
	}
	h := manifestsOf[autoscalingv2.HorizontalPodAutoscaler](t, "HorizontalPodAutoscaler")["leaderboard-api"]
	deployments := manifestsOf[appsv1.Deployment](t, "Deployment")
	if _, ok := deployments[h.Spec.ScaleTargetRef.Name]; !ok {
		t.Errorf("the autoscaler of API nodes scales %v, want an existing Deployment", h.Spec.ScaleTargetRef)
	}
	for name, d := range deployments {
		if d.Spec.Replicas != nil {
			t.Errorf("%s sets the number of pods, want no number: the autoscaler sets it", name)
		}
	}
}
