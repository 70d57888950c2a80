package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/api/server"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/test/collector"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// traceparent returns the header of a caller in trace number n, and the id of this trace.
func traceparent(n int) (header, traceID string) {
	traceID = fmt.Sprintf("%032x", n)
	return "00-" + traceID + "-b7ad6b7169203331-01", traceID
}

// post submits a result in a trace.
func post(t *testing.T, url, key, parent, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Traceparent", parent)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("submit: status %d, want 200", res.StatusCode)
	}
}

// engine is the API, the producer and the consumer in this process, on a Kafka and a
// store in this process.
type engine struct {
	url     string
	brokers []string
	spans   *tracetest.InMemoryExporter
	service *ranking.Service
	*producer.Producer
}

func startEngine(t *testing.T) *engine {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.SeedTopics(1, kafka.Topics{}.Results(), kafka.Topics{}.Updates(), kafka.Topics{}.DeadLetters()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	e := &engine{spans: tracetest.NewInMemoryExporter(), brokers: fake.ListenAddrs()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(e.spans))
	if e.Producer, err = producer.New(e.brokers, kafka.Options{}.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Producer.Close() })
	submitter := producer.NewSubmitter(e.Producer, kafka.Topics{}, time.Minute)
	store, index := embedded.Open(t)
	reg := prometheus.NewRegistry()
	observed := observe.Store(store, reg)
	e.service = ranking.New(observed, observe.Index(index, reg), ranking.Options{Results: submitter})
	if err := e.service.EnsureDefaultBoard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.service.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	follower, err := consumer.Follow(e.brokers, kafka.Options{}.Config("test"), kafka.Topics{}, slog.New(slog.DiscardHandler), submitter.Deliver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follower.Close() })
	con, err := consumer.New(consumer.Options{Brokers: e.brokers, TracerProvider: traces}, e.service.Applier, e.Producer)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- con.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	api, err := server.New(t.Context(), e.service, observed, server.Options{Insecure: true, TracerProvider: traces})
	if err != nil {
		t.Fatal(err)
	}
	rest := httptest.NewServer(api.Handler())
	t.Cleanup(rest.Close)
	e.url = rest.URL
	return e
}

// tree returns the spans of a trace, each as its path from the span of the call.
func tree(spans tracetest.SpanStubs, traceID string) []string {
	byID := map[trace.SpanID]tracetest.SpanStub{}
	for _, s := range spans {
		byID[s.SpanContext.SpanID()] = s
	}
	var paths []string
	for _, s := range spans {
		if s.SpanContext.TraceID().String() != traceID {
			continue
		}
		path := s.Name
		for parent, ok := byID[s.Parent.SpanID()]; ok; parent, ok = byID[parent.Parent.SpanID()] {
			path = parent.Name + " > " + path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// waitFor waits until ok is true.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// A submit over REST is one trace through Kafka to the store and the index.
func TestSubmitIsOneTrace(t *testing.T) {
	e := startEngine(t)
	parent, id := traceparent(1)
	post(t, e.url+"/v1/scores", "", parent, `{"user_id":"mallory","points":1}`)
	const process = "POST /v1/scores > send match-results > process match-results"
	waitFor(t, "the span of the batch", func() bool { return slices.Contains(tree(e.spans.GetSpans(), id), process) })
	got := tree(e.spans.GetSpans(), id)
	for _, want := range []string{
		"POST /v1/scores", "POST /v1/scores > send match-results", process,
		process + " > store.Apply", process + " > index.Update", process + " > send leaderboard-updates",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("the trace lacks %s: %s", want, strings.Join(got, "\n"))
		}
	}
	for _, s := range e.spans.GetSpans() {
		if strings.Contains(fmt.Sprint(s.Attributes), "mallory") {
			t.Errorf("%s names the user, want no user: %v", s.Name, s.Attributes)
		}
	}
}

// A batch with messages of several traces has a span in each of these traces. The first
// span is the parent of the store's spans. The other spans link to the first. Messages
// without a sampled trace begin no trace.
func TestBatchOfSeveralTraces(t *testing.T) {
	e := startEngine(t)
	b, err := e.service.Board(t.Context(), leaderboard.DefaultBoard)
	if err != nil {
		t.Fatal(err)
	}
	first, firstID := traceparent(1)
	second, secondID := traceparent(2)
	unsampled := strings.TrimSuffix(second, "1") + "0"
	var messages []*sarama.ProducerMessage
	for n, parent := range []string{"", unsampled, first, second, second, "nonsense"} {
		m := &sarama.ProducerMessage{Topic: kafka.Topics{}.Results(), Key: sarama.StringEncoder("u"),
			Value: sarama.StringEncoder(fmt.Sprintf(`{"board_id":%q,"result":{"user_id":"u","match_id":"m%d","points":1}}`, b.ID, n)),
			Headers: []sarama.RecordHeader{
				{Key: []byte("content-type"), Value: []byte("application/json")}, {Key: []byte("traceparent"), Value: []byte(parent)},
			}}
		messages = append(messages, m)
	}
	if err := e.Send(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	named := func(traceID, name string) (found tracetest.SpanStubs) {
		for _, s := range e.spans.GetSpans() {
			if s.SpanContext.TraceID().String() == traceID && s.Name == name {
				found = append(found, s)
			}
		}
		return found
	}
	waitFor(t, "both traces", func() bool {
		return len(named(firstID, "process match-results")) > 0 && len(named(secondID, "process match-results")) > 0
	})
	one, two := named(firstID, "process match-results"), named(secondID, "process match-results")
	if len(one) != 1 || len(two) != 1 {
		t.Fatalf("%d and %d spans, want one in each trace", len(one), len(two))
	}
	if len(two[0].Links) == 1 { // one batch had all messages, as it mostly does
		if got := two[0].Links[0].SpanContext.SpanID(); got != one[0].SpanContext.SpanID() {
			t.Errorf("the second trace links to %v, want the span of the batch in the first trace", got)
		}
		if first, second := len(named(firstID, "store.Apply")), len(named(secondID, "store.Apply")); first != 1 || second != 0 {
			t.Errorf("store.Apply has %d spans in the first trace and %d in the second, want 1 and 0", first, second)
		}
	}
	ids := map[string]bool{}
	for _, s := range e.spans.GetSpans() {
		ids[s.SpanContext.TraceID().String()] = true
	}
	if diff := gocmp.Diff(map[string]bool{firstID: true, secondID: true}, ids); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}
}

// On real servers, the trace of a submit has the spans of two processes, and those of
// Cassandra and Redis.
func TestTraceOnRealServers(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	to := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	t.Setenv("OTEL_SERVICE_NAME", "api")
	api := serveAPI(t, d)
	t.Setenv("OTEL_SERVICE_NAME", "consumer")
	d.Serve(t, "--roles=consumer")
	board := api.Board(t, "traces", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": map[string]any{"schedule": "NONE"}})
	parent, id := traceparent(1)
	post(t, api.URL+"/v1/boards/"+board+"/scores", d.Key, parent, `{"user_id":"mallory","match_id":"m1","points":1}`)
	want := []string{
		"api POST /v1/boards/{board}/scores", "api send match-results", "consumer process match-results",
		"consumer store.Apply", "consumer cassandra INSERT", "consumer index.Update", "consumer redis evalsha", "api redis evalsha",
	}
	names := func() map[string]collector.Span {
		all := map[string]collector.Span{}
		for _, s := range to.Trace(id) {
			name := s.Name
			if s.Process == "api" || s.Process == "consumer" {
				name = s.Process + " " + strings.Replace(name, d.TopicPrefix, "", 1)
			}
			all[name] = s
		}
		return all
	}
	missing := func() (missing []string) {
		got := names()
		for _, name := range want {
			if _, ok := got[name]; !ok {
				missing = append(missing, name)
			}
		}
		return missing
	}
	for deadline := time.Now().Add(20 * time.Second); len(missing()) > 0 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
	}
	got := names()
	if lacks := missing(); len(lacks) > 0 {
		var all []string
		for name, s := range got {
			all = append(all, name+" "+s.Attributes["db.query.text"])
		}
		slices.Sort(all)
		t.Errorf("the trace lacks %q:\n%s", lacks, strings.Join(all, "\n"))
	}
	for name, s := range got {
		if s.Failed || strings.Contains(fmt.Sprint(s.Attributes), "mallory") {
			t.Errorf("%s failed or names the user: %+v", name, s)
		}
	}
}
