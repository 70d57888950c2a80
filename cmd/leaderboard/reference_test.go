package main

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.yaml.in/yaml/v3"

	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/cache/redis"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/observe"
	"github.com/open-leaderboard/leaderboard/storage/cql"
)

var update = flag.Bool("update", false, "write docs/reference.md, and the table of docs/operations/capacity.md")

// Update docs/reference.md with: go test ./cmd/leaderboard -run TestReference -update
func TestReference(t *testing.T) {
	const path = "../../docs/reference.md"
	want := reference(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; run go test ./cmd/leaderboard -run TestReference -update (-want +got):\n%s", path, diff)
	}
}

// checkText fails the test if a text does not have both a meaning and a cure, each a sentence.
func checkText(t *testing.T, what, name, text, add string) {
	t.Helper()
	if len(sentenceEnd.FindAllString(text, 2)) < 2 {
		t.Errorf("the %s %s has the text %q, want its meaning and a cure: add what to do to %s", what, name, text, add)
	}
}

var sentenceEnd = regexp.MustCompile(`\.( |$)`)

// checkStale fails the test if texts has a name that is not known.
func checkStale[V any](t *testing.T, texts map[string]string, known map[string]V, list string) {
	t.Helper()
	for name := range texts {
		if _, ok := known[name]; !ok {
			t.Errorf("%s has %s, which no longer exists: remove it", list, name)
		}
	}
}

// reasonCures says what to do, for the reasons whose comment does not.
var reasonCures = map[string]string{
	"METHOD_NOT_ALLOWED":    "Use one of them.",
	"REVISION_CHANGED":      "Read the result, and repeat the change with the next revision if it is still right.",
	"PROFILE_NOT_FOUND":     "Show the user's id, or store a profile.",
	"INVALID":               "Correct the result, and send it with a new `match_id` or a higher `revision`.",
	"UNAUTHENTICATED":       "Send `Authorization: Bearer KEY`. `leaderboard key create` creates keys.",
	"SCOPE_REQUIRED":        "Use a key with the scope that the message names.",
	"BOARD_DENIED":          "Use a key for this board.",
	"CROSS_ORIGIN":          "Call from a server, or add the origin to the setting `web.cors_origins`.",
	"BOARD_NOT_FOUND":       "Correct the id, or create the board.",
	"SEASON_NOT_FOUND":      "`leaderboard season list` shows the seasons; on an `EXPLICIT` board, add a window.",
	"ENTRY_NOT_FOUND":       "Show the user as unranked.",
	"MATCH_NOT_FOUND":       "Correct the id; to void a match before its results arrive, set `allow_unknown`.",
	"DEAD_LETTER_NOT_FOUND": "`leaderboard dlq list` shows the dead letters.",
	"API_KEY_NOT_FOUND":     "`leaderboard key list` shows the keys.",
	"NO_SUCH_ROUTE":         "Compare the path with `/docs`.",
	"EMPTY_ID":              "Put the id into the path.",
	"FLOOR":                 "Do not send the result again: it would be rejected again.",
	"OUT_OF_RANGE":          "Do not send the result again: it would be rejected again.",
	"SEASON_CLOSED":         "Send results sooner, or raise the board's `season.grace`. An administrator may correct a closed season.",
	"SEASON_ENDED":          "Do not send the result again.",
	"SEASON_LIMIT":          "Correct the time of the result, or use a board with longer seasons.",
	"USER_ERASED":           "Do not send the result again.",
	"DELETED":               "Do not send the result again.",
	"NOT_SEALED":            "Repeat the call after the season is sealed.",
	"BODY_TOO_LARGE":        "Send smaller batches.",
	"HOST_DENIED":           "Call `localhost`, or run the server with keys.",
	"INTERNAL":              "Search it for the `X-Request-Id` of the answer.",
	"FORMAT":                "Run `leaderboard verify`; restore damaged data from a backup.",
	"UNSUPPORTED":           "Use the tools that the message names.",
	"CANCELED":              "It appears in logs only.",
}

// statusCures says what to do, for the statuses whose comment does not.
var statusCures = map[string]string{
	"APPLIED":    "There is nothing to do.",
	"DUPLICATE":  "There is nothing to do.",
	"SUPERSEDED": "To change the result, send a higher revision.",
	"CONFLICT":   "If `stands` is false, send a higher revision to let this result count.",
	"REJECTED":   "Do not send the same result again.",
	"ACCEPTED":   "Read the result later, or send it again to learn its outcome.",
}

// eventCures are the meanings and cures of server-sent events.
var eventCures = map[string]string{
	"reconnect": "The server ends the stream: see the reason in its data. Reconnect after the milliseconds in `retry`.",
	"error":     "The stream cannot go on: see the reason in its data. Reconnect only after its cause is removed.",
}

// metricCures says what to do, for the metrics that no alert uses.
var metricCures = map[string]string{
	"leaderboard_api_running_calls":                      "If it grows while the rate of calls does not, see `leaderboard_store_call_seconds` and `leaderboard_index_call_seconds`.",
	"leaderboard_archive_last_success_timestamp_seconds": "If it is old in all processes, see [ArchiveFails](runbook.md#archivefails).",
	"leaderboard_archive_seasons_total":                  "If it grows without seals, results of sealed seasons are corrected again and again: `leaderboard audit`.",
	"leaderboard_boards":                                 "If it grows without a cause, look for the program that creates boards: `leaderboard audit`.",
	"leaderboard_build_info":                             "Compare it after an upgrade.",
	"leaderboard_cassandra_connections":                  "If it is 0, see [CassandraNodeDown](runbook.md#cassandranodedown).",
	"leaderboard_cassandra_connects_total":               "If failed grows, test the network to the nodes, and their certificates.",
	"leaderboard_consumer_apply_seconds":                 "If it grows, see `leaderboard_store_call_seconds`.",
	"leaderboard_consumer_batch_results":                 "If batches are always full, the consumer is behind: add partitions and consumers.",
	"leaderboard_consumer_fetch_seconds":                 "If it is near `canonical.timeout`, the game's own store is slow or overloaded.",
	"leaderboard_consumer_parked_fetches_total":          "If breaker grows, see [GameStoreFails](runbook.md#gamestorefails); if full grows, raise `canonical.concurrency` or add consumers.",
	"leaderboard_consumer_pending_fetches":               "If it only grows, raise `canonical.concurrency` or add consumers.",
	"leaderboard_consumer_results_total":                 "If REJECTED or CONFLICT grows, look for the producer: `leaderboard match list`.",
	"leaderboard_consumer_visible_seconds":               "If it grows, see `leaderboard_consumer_lag_messages`. If it is negative, correct the clocks.",
	"leaderboard_embedded_compaction_debt_bytes":         "If it only grows, the disk is too slow for the writes.",
	"leaderboard_embedded_compaction_seconds_total":      "If it grows by more than a second per second, use a faster disk.",
	"leaderboard_embedded_compactions_total":             "Compare it with `leaderboard_embedded_flushes_total`.",
	"leaderboard_embedded_disk_used_bytes":               "Enlarge the disk in time, or shorten the retention of boards.",
	"leaderboard_embedded_flushes_total":                 "A high rate means many writes.",
	"leaderboard_embedded_memtable_bytes":                "Leave this memory free for the process.",
	"leaderboard_index_call_seconds":                     "If it grows, the process lacks processor time, or Redis or its network is slow.",
	"leaderboard_index_entries":                          "Plan the memory of the index with it: see [benchmarks](benchmarks.md).",
	"leaderboard_index_filled_users_total":               "While seasons are loading, its rate shows the progress.",
	"leaderboard_index_fills":                            "Seasons that are loading have no ranks. Wait until it is 0.",
	"leaderboard_index_last_change_timestamp_seconds":    "If it does not change while results arrive, see `leaderboard_consumer_lag_messages`.",
	"leaderboard_index_running_calls":                    "If it grows, see `leaderboard_index_call_seconds`.",
	"leaderboard_linked_damaged_total":                   "",
	"leaderboard_redis_building_shards":                  "If it stays above 0, look for errors of rebuilds in the logs.",
	"leaderboard_redis_connections":                      "Keep it below the limit `maxclients` of Redis.",
	"leaderboard_redis_idle_connections":                 "If it is 0 for long, calls wait for connections: see `leaderboard_redis_pool_timeouts_total`.",
	"leaderboard_redis_keys":                             "If other programs use this Redis, give the service its own.",
	"leaderboard_redis_newest_generation":                "If it grows often, look for what loses the index: restarts or evictions in Redis.",
	"leaderboard_redis_position_lag_messages":            "If it grows for minutes, look for errors of the consumers in their logs.",
	"leaderboard_redis_replicas":                         "If it is below the number that you run, look at the logs of Redis.",
	"leaderboard_redis_users":                            "Plan the memory of Redis with it: see [benchmarks](benchmarks.md).",
	"leaderboard_store_call_seconds":                     "If it grows, the disk or Cassandra is slow or overloaded.",
	"leaderboard_store_running_calls":                    "If it grows, see `leaderboard_store_call_seconds`.",
	"leaderboard_sweep_orphan_rows_removed_total":        "If it grows at a steady rate, look for consumers that pause for long.",
	"leaderboard_verify_last_timestamp_seconds":          "If it is old, run `leaderboard verify`.",
}

// updateFields are the meanings of fields whose comment is above the message or above another field.
var updateFields = map[string]string{
	"board_id": "The board.", "season": "The season.", "user_id": "The user, who is also the key of the message.",
	"match_id": "The match; empty if the update is not the outcome of one result.", "revision": "The revision of the result.", "status": "The status of the result: see above.",
	"new_score": "See `old_score`.", "new_rank_band": "See `old_rank_band`.", "previous_rank": "See `previous_score`.", "rank_key_after": "See `rank_key_before`.",
}

func reference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Reference

<!-- Generated by: go test ./cmd/leaderboard -run TestReference -update -->

For people who call or run the service: each reason of an error, status of a result, event and metric, with its meaning and what to do. The texts come
from the protos and from the declarations of the metrics.

## Reasons of errors

An error over REST has the HTTP status and, in ` + "`details`, a `reason`" + `; gRPC has the same reason in ` + "`google.rpc.ErrorInfo`" + `. See
[Errors](api.md#errors). A retry helps only where the text says so.

| reason | HTTP | meaning and cure |
| --- | --- | --- |
`)
	const protos = "../../api/proto/leaderboard/v1/"
	reasons := enumValues(t, protos+"errors.proto", "Reason")
	known := map[string]bool{}
	for _, v := range reasons {
		known[v.name] = true
		text := strings.TrimSpace(v.comment + " " + reasonCures[v.name])
		checkText(t, "reason", v.name, text, "reasonCures")
		if v.status == "" {
			t.Errorf("the reason %s has no HTTP status in the proto", v.name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, v.status, text)
	}
	checkStale(t, reasonCures, known, "reasonCures")
	b.WriteString("\n## Statuses of results\n\nThe answer to a submit, a correction or a retraction has one of these. For `REJECTED`, the field `reason` is one of the reasons above.\nFor other statuses, the reason `USER_BANNED` means that the result is kept, and counts after the ban is lifted.\n\n| status | meaning and cure |\n| --- | --- |\n")
	known = map[string]bool{}
	for _, v := range enumValues(t, protos+"types.proto", "Status") {
		known[v.name] = true
		text := strings.TrimSpace(v.comment + " " + statusCures[v.name])
		checkText(t, "status", v.name, text, "statusCures")
		fmt.Fprintf(&b, "| `%s` | %s |\n", v.name, text)
	}
	checkStale(t, statusCures, known, "statusCures")
	writeEvents(t, &b, protos)
	writeMetrics(t, &b)
	return b.String()
}

func writeEvents(t *testing.T, b *strings.Builder, protos string) {
	t.Helper()
	b.WriteString(`
## Events

Server-sent events of [watch](api.md#live):

| event | meaning and cure |
| --- | --- |
| without a name | The top of the ranking after a change. Show it. |
`)
	events := namesIn(t, "../../api/server/answer.go", `event: ([a-z]+)\\n`)
	for _, name := range slices.Sorted(maps.Keys(events)) {
		checkText(t, "event", name, eventCures[name], "eventCures")
		fmt.Fprintf(b, "| `%s` | %s |\n", name, eventCures[name])
	}
	checkStale(t, eventCures, events, "eventCures")
	b.WriteString(`
Messages on the topic ` + "`leaderboard-updates`" + ` of a distributed server have these fields ([examples](../examples/README.md)):

| field | meaning |
| --- | --- |
`)
	known := map[string]bool{}
	for _, v := range commented(t, protos+"log.proto", "message LeaderboardUpdate {", protoField) {
		known[v.name] = true
		meaning := cmp.Or(v.comment, updateFields[v.name])
		if meaning == "" {
			t.Errorf("the field %s of LeaderboardUpdate has no meaning: write a comment in the proto, or add it to updateFields", v.name)
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", v.name, meaning)
	}
	checkStale(t, updateFields, known, "updateFields")
	writeDeadLetters(t, b)
}

func writeDeadLetters(t *testing.T, b *strings.Builder) {
	t.Helper()
	b.WriteString("\nDead letters on the topic `match-results.dlq` have one of these causes. `leaderboard dlq`, the API and `/admin` list, show and replay them.\n\n| cause | meaning and cure |\n| --- | --- |\n")
	const file = "../../consumer/deadletter.go"
	meanings := namesIn(t, file, `cause = "([a-z_]+)" *// (.*)`)
	sentence := func(text string) string {
		if text == "" {
			return ""
		}
		return strings.ToUpper(text[:1]) + text[1:] + "."
	}
	for _, cause := range slices.Sorted(maps.Keys(namesIn(t, file, `cause = "([a-z_]+)"`))) {
		text := sentence(meanings[cause]) + " " + sentence(deadLetterCures[cause])
		checkText(t, "cause", cause, text, "the constant's comment, and to deadLetterCures")
		fmt.Fprintf(b, "| `%s` | %s |\n", cause, text)
	}
	checkStale(t, deadLetterCures, meanings, "deadLetterCures")
}

// namesIn returns the names that form finds in a file of code, each with the text that form finds.
func namesIn(t *testing.T, file, form string) map[string]string {
	t.Helper()
	code, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(string(code), -1) {
		names[m[1]] = strings.Join(m[2:], "")
	}
	if len(names) == 0 {
		t.Errorf("%s has no %s", file, form)
	}
	return names
}

type named struct{ name, comment, status string }

var (
	enumValue   = regexp.MustCompile(`^ +([A-Z][A-Z0-9_]*) = ([0-9]+)`)
	protoField  = regexp.MustCompile(`^  (?:optional |repeated )?[A-Za-z0-9.]+ ([a-z][a-z0-9_]*) = [0-9]+`)
	causeStatus = regexp.MustCompile(`status: ([0-9]+)`)
)

// enumValues returns the values of an enum with their comments, except for the value 0.
func enumValues(t *testing.T, path, enum string) []named {
	t.Helper()
	var values []named
	for _, v := range commented(t, path, "enum "+enum+" {", enumValue) {
		if !strings.HasSuffix(v.name, "_UNSPECIFIED") {
			values = append(values, v)
		}
	}
	return values
}

// commented returns the names that form finds in the block that begins with a line, each with the
// comment before it.
func commented(t *testing.T, path, begin string, form *regexp.Regexp) []named {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), begin+"\n")
	if !ok {
		t.Fatalf("%s has no line %q", path, begin)
	}
	var values []named
	comment, depth := "", 1
	for line := range strings.Lines(block) {
		trimmed := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(trimmed, "//"); ok {
			comment = strings.TrimSpace(comment + " " + strings.TrimSpace(rest))
			continue
		}
		if m := form.FindStringSubmatch(line); m != nil && depth == 1 {
			values = append(values, named{name: m[1], comment: strings.ReplaceAll(comment, "|", `\|`)})
		}
		if m := causeStatus.FindStringSubmatch(line); m != nil && len(values) > 0 {
			values[len(values)-1].status = m[1]
		}
		comment = ""
		if depth += strings.Count(line, "{") - strings.Count(line, "}"); depth == 0 {
			return values
		}
	}
	t.Fatalf("%s: the block %q does not end", path, begin)
	return nil
}

func writeMetrics(t *testing.T, b *strings.Builder) {
	t.Helper()
	b.WriteString("\n## Metrics\n\nEach process serves them at `/metrics`. Names that end in `_total` are counters. The last column has the alerts that use a metric, whose\nsections in the [runbook](runbook.md) have the cure, or else what to do. `/metrics` also has the metrics of Go and of the process.\n\n| metric | labels | meaning | alerts, or what to do |\n| --- | --- | --- | --- |\n")
	alerts := alertExpressions(t)
	metrics := declaredMetrics(t)
	if len(metrics) < 50 {
		t.Errorf("found %d metrics, want at least 50", len(metrics))
	}
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m := metrics[name]
		var links []string
		use := regexp.MustCompile(`\b` + name + `(_count|_sum|_bucket)?\b`)
		for _, alert := range slices.Sorted(maps.Keys(alerts)) {
			if use.MatchString(alerts[alert]) {
				links = append(links, fmt.Sprintf("[%s](runbook.md#%s)", alert, strings.ToLower(alert)))
			}
		}
		if m.help == "" {
			t.Errorf("the metric %s has no text", name)
		}
		cure := cmp.Or(strings.Join(links, ", "), metricCures[name])
		if len(links) == 0 {
			checkText(t, "metric", name, m.help+" "+cure, "metricCures, or to an alert")
		} else if _, both := metricCures[name]; both {
			t.Errorf("metricCures has %s, which has the alert %s: remove it", name, links[0])
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, strings.Join(m.labels, ", "), strings.ReplaceAll(m.help, "|", `\|`), cure)
	}
	checkStale(t, metricCures, metrics, "metricCures")
	checkSources(t, metrics)
}

// checkSources fails the test if the code declares a metric that no registry of the test has.
func checkSources(t *testing.T, metrics map[string]metric) {
	t.Helper()
	declared := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && slices.Contains([]string{".git", "node_modules", "test", "tools", "examples", "web"}, d.Name()) {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		code, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(code), "client_golang/prometheus") {
			return err
		}
		for _, m := range metricName.FindAllStringSubmatch(string(code), -1) {
			declared++
			if !slices.ContainsFunc(slices.Collect(maps.Keys(metrics)), func(name string) bool { return strings.HasSuffix(name, "_"+m[1]) }) {
				t.Errorf("%s declares the metric %s, which is in no registry of this test: register it in registries", path, m[1])
			}
		}
		return nil
	})
	if err != nil || declared < 30 {
		t.Errorf("found %d metrics in the code, %v; want at least 30", declared, err)
	}
}

var metricName = regexp.MustCompile(`Name: +"([a-z][a-z0-9_]*)"`)

func alertExpressions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	expressions := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				expressions[r.Alert] = r.Expr
			}
		}
	}
	return expressions
}

type metric struct {
	help   string
	labels []string
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// declaredMetrics returns the metrics of both engines.
func declaredMetrics(t *testing.T) map[string]metric {
	t.Helper()
	descriptions, all := make(chan *prometheus.Desc), registries(t)
	go func() {
		defer close(descriptions)
		for _, registry := range all {
			registry.Describe(descriptions)
		}
		cql.DescribeMetrics(descriptions)
		redis.DescribeMetrics(descriptions)
	}()
	metrics := map[string]metric{}
	for d := range descriptions {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("cannot read the description %s", d)
			continue
		}
		help, err := strconv.Unquote(m[2])
		if err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(m[1], "leaderboard_") {
			continue
		}
		labels := []string{}
		for _, list := range []string{m[3], m[4]} {
			for label := range strings.SplitSeq(list, ",") {
				if name, _, _ := strings.Cut(label, "="); name != "" {
					labels = append(labels, "`"+name+"`")
				}
			}
		}
		metrics[m[1]] = metric{help, labels}
	}
	return metrics
}

// registries returns the registries of an embedded server, and of a distributed server on fakes.
func registries(t *testing.T) []*prometheus.Registry {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c := config.Default()
	c.Data, c.HTTP, c.GRPC, c.Insecure = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", "127.0.0.1:0", true
	embedded, err := openServer(t.Context(), &c, log, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = embedded.close() })
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, kafka.Topics{}.Results(), kafka.Topics{}.DeadLetters(), kafka.Topics{}.Updates()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	d := config.Default()
	d.Kafka.Brokers = fake.ListenAddrs()
	distributed := &server{config: &d, log: log, metrics: prometheus.NewRegistry(), startBy: time.Now().Add(time.Minute), store: embedded.store}
	if err := distributed.openService(t.Context(), observe.Index(memory.New(), distributed.metrics)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = distributed.close() })
	return []*prometheus.Registry{embedded.metrics, distributed.metrics}
}
