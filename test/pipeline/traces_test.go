package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.opentelemetry.io/otel/attribute"
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

// traceparent returns the id of trace number n, and the header of a call in this trace.
func traceparent(n int) (header, traceID string) {
	traceID = fmt.Sprintf("%032x", n)
	return "00-" + traceID + "-b7ad6b7169203331-01", traceID
}

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

// A tracedEngine is an API, a producer and a consumer, with Kafka and a store in the same process.
type tracedEngine struct {
	url     string
	brokers []string
	spans   *tracetest.InMemoryExporter
	service *ranking.Service
	gate    sync.RWMutex // stops Apply
	*producer.Producer
}

// Apply of a gatedStore waits while gate is locked.
type gatedStore struct {
	leaderboard.Store
	gate *sync.RWMutex
}

func (s gatedStore) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return s.Store.Apply(ctx, b, results)
}

func startEngine(t *testing.T) *tracedEngine {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.SeedTopics(1, kafka.Topics{}.Results(), kafka.Topics{}.Updates(), kafka.Topics{}.DeadLetters()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	e := &tracedEngine{spans: tracetest.NewInMemoryExporter(), brokers: fake.ListenAddrs()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(e.spans))
	if e.Producer, err = producer.New(e.brokers, kafka.Options{}.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Producer.Close() })
	submitter := producer.NewSubmitter(e.Producer, kafka.Topics{}, time.Minute)
	store, index := embedded.Open(t)
	reg := prometheus.NewRegistry()
	observed := observe.Store(gatedStore{store, &e.gate}, reg)
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

// spanPaths returns the path of each span of a trace: the names of its ancestors and its own name.
func spanPaths(spans tracetest.SpanStubs, traceID string) []string {
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

func waitFor(t *testing.T, event string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", event)
		}
	}
}

func TestSubmitIsOneTrace(t *testing.T) {
	e := startEngine(t)
	parent, id := traceparent(1)
	post(t, e.url+"/v1/scores", "", parent, `{"user_id":"mallory","points":1}`)
	const process = "POST /v1/scores > send match-results > process match-results"
	waitFor(t, "the span of the batch", func() bool { return slices.Contains(spanPaths(e.spans.GetSpans(), id), process) })
	got := spanPaths(e.spans.GetSpans(), id)
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

// A batch has a span in each sampled trace of its messages. Its first span is the parent of the
// store's spans, and its other spans link to the first. A message without a sampled trace causes no trace.
func TestBatchOfSeveralTraces(t *testing.T) {
	e := startEngine(t)
	b, err := e.service.Board(t.Context(), leaderboard.DefaultBoard)
	if err != nil {
		t.Fatal(err)
	}
	spansNamed := func(traceID, name string) (found tracetest.SpanStubs) {
		for _, s := range e.spans.GetSpans() {
			if s.SpanContext.TraceID().String() == traceID && s.Name == name {
				found = append(found, s)
			}
		}
		return found
	}
	const process, attempts = "process match-results", 50
	sampled := map[string]bool{}
	for n := range attempts {
		first, firstID := traceparent(2*n + 1)
		second, secondID := traceparent(2*n + 2)
		sampled[firstID], sampled[secondID] = true, true
		parents := []string{"", strings.TrimSuffix(second, "1") + "0", first, second, second, "nonsense"}
		// While the store does not answer, further messages wait in the consumer, which then reads
		// them in one batch.
		e.gate.Lock()
		sendTraced(t, e, b.ID, attempts+n, parents[:1])
		sendTraced(t, e, b.ID, n, parents)
		time.Sleep(time.Duration(n+1) * 20 * time.Millisecond)
		e.gate.Unlock()
		waitFor(t, "both traces", func() bool { return len(spansNamed(firstID, process)) > 0 && len(spansNamed(secondID, process)) > 0 })
		firstSpans, secondSpans := spansNamed(firstID, process), spansNamed(secondID, process)
		if all := attribute.Int("messaging.batch.message_count", len(parents)); !slices.Contains(firstSpans[0].Attributes, all) {
			continue // the consumer read the messages in several batches
		}
		if len(firstSpans) != 1 || len(secondSpans) != 1 {
			t.Fatalf("the batch has %d and %d spans in the two traces, want one in each", len(firstSpans), len(secondSpans))
		}
		if links := secondSpans[0].Links; len(links) != 1 || links[0].SpanContext.SpanID() != firstSpans[0].SpanContext.SpanID() {
			t.Errorf("the batch's span in the second trace links to %v, want its span in the first trace", links)
		}
		if first, second := len(spansNamed(firstID, "store.Apply")), len(spansNamed(secondID, "store.Apply")); first != 1 || second != 0 {
			t.Errorf("store.Apply has %d spans in the first trace and %d in the second, want 1 and 0", first, second)
		}
		for _, s := range e.spans.GetSpans() {
			if id := s.SpanContext.TraceID().String(); !sampled[id] {
				t.Errorf("%s is in trace %s, want sampled traces only", s.Name, id)
			}
		}
		return
	}
	t.Fatalf("the consumer read the messages of each of %d attempts in several batches, want one batch", attempts)
}

func sendTraced(t *testing.T, e *tracedEngine, board leaderboard.BoardID, n int, parents []string) {
	t.Helper()
	var messages []*sarama.ProducerMessage
	for i, parent := range parents {
		messages = append(messages, &sarama.ProducerMessage{Topic: kafka.Topics{}.Results(), Key: sarama.StringEncoder("u"),
			Value: sarama.StringEncoder(fmt.Sprintf(`{"board_id":%q,"result":{"user_id":"u","match_id":"m%d-%d","points":1}}`, board, n, i)),
			Headers: []sarama.RecordHeader{
				{Key: []byte("content-type"), Value: []byte("application/json")}, {Key: []byte("traceparent"), Value: []byte(parent)},
			}})
	}
	if err := e.Send(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
}

func TestTraceOnRealServers(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	traces := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.URL)
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
		for _, s := range traces.Trace(id) {
			name := s.Name
			if s.Process == "api" || s.Process == "consumer" {
				name = s.Process + " " + strings.Replace(name, d.TopicPrefix, "", 1)
			}
			all[name] = s
		}
		return all
	}
	missingNames := func() (missing []string) {
		got := names()
		for _, name := range want {
			if _, ok := got[name]; !ok {
				missing = append(missing, name)
			}
		}
		return missing
	}
	for deadline := time.Now().Add(time.Minute); len(missingNames()) > 0 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
	}
	got := names()
	if absent := missingNames(); len(absent) > 0 {
		var all []string
		for name, s := range got {
			all = append(all, name+" "+s.Attributes["db.query.text"])
		}
		slices.Sort(all)
		t.Errorf("the trace lacks %q:\n%s", absent, strings.Join(all, "\n"))
	}
	for name, s := range got {
		if s.Failed || strings.Contains(fmt.Sprint(s.Attributes), "mallory") {
			t.Errorf("%s failed or names the user, want neither: %+v", name, s)
		}
	}
}
