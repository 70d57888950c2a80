package pipeline

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/gocql/gocql"
	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// A consumer that reads all messages again must not change bytes or write times in Cassandra and
// Redis, except ownersColumn, seenField and the hashes of positionsKey. Meanwhile, no reader may
// see a different score or rank.
func TestReadingAllMessagesAgainChangesNothing(t *testing.T) {
	d := deployment.New(t, deployment.Options{})
	api, consumer := serveAPI(t, d), d.Serve(t, "--roles=consumer")
	boards := rewindBoards(t, api)
	source := boards[2]
	s := newStream(t, d)
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	const users, results = 40, 300
	sent := 0
	for i, board := range boards[:3] {
		if err := s.send(t.Context(), board, randomResults(random, i != 1, users, results)); err != nil {
			t.Fatal(err)
		}
		sent += results
	}
	for id := range 10 { // some of these matches have no results
		voidMatch(t, api, source, fmt.Sprint("m", id))
	}
	waitCommitted(t, d)
	stop(t, consumer)
	before := readState(t, d, boards)
	want := make([]string, len(boards))
	for i, board := range boards {
		if want[i] = ladderText(t, api, board); !strings.Contains(want[i], "user_id") {
			t.Fatalf("board %s has no entries:\n%s", board, want[i])
		}
	}

	watching, unwatch := context.WithCancel(t.Context())
	var watchers sync.WaitGroup
	reads := make([]int, len(boards))
	for i, board := range boards {
		watchers.Go(func() {
			for watching.Err() == nil {
				if got := ladderText(t, api, board); !sameLadder(want[i], got) {
					t.Errorf("board %s: a reader got\n%s\nwant\n%s", board, got, want[i])
					return
				}
				reads[i]++
			}
		})
	}
	for replay := 2; replay <= 3; replay++ {
		rewind(t, d)
		if err := consumer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.waitForUpdates(t, replay*sent)
		waitCommitted(t, d)
		stop(t, consumer)
		if diff := cmp.Diff(before, readState(t, d, boards)); diff != "" {
			t.Errorf("pass %d over the messages changed Cassandra or Redis (-before +after):\n%s", replay, diff)
		}
	}
	unwatch()
	watchers.Wait()
	t.Logf("%d rows and keys compared; reads per board: %v", len(before), reads)
	if slices.Min(reads) == 0 {
		t.Errorf("the readers made %v reads of the boards, want at least one each", reads)
	}
}

func rewindBoards(t *testing.T, api *deployment.Node) []string {
	t.Helper()
	ties := []map[string]any{{"name": "wins", "order": "HIGHER_FIRST"}}
	always, monthly := map[string]any{"schedule": "NONE"}, map[string]any{"schedule": "MONTHLY"}
	sum := api.Board(t, "rewind-sum", map[string]any{"order": "HIGHER_FIRST", "policy": "SUM", "season": monthly, "divisions": []string{"region"}, "tie_breakers": ties})
	best := api.Board(t, "rewind-best", map[string]any{"order": "LOWER_FIRST", "policy": "BEST", "season": always})
	source := api.Board(t, "rewind-source", map[string]any{"policy": "SUM", "season": always, "matches": true, "tie_breakers": ties})
	linked := api.Board(t, "rewind-linked", map[string]any{"policy": "BEST", "season": monthly, "source": map[string]any{"board_id": source, "match": map[string]any{"region": "eu"}}})
	waitFilled(t, api.Client, linked)
	return []string{sum, best, source, linked}
}

func voidMatch(t *testing.T, api *deployment.Node, board, id string) {
	t.Helper()
	if status, err := api.Call(t.Context(), http.MethodPost, "/v1/boards/"+board+"/matches/"+id+":void", map[string]any{"reason": "test", "allow_unknown": true}, nil); err != nil || status != http.StatusOK {
		t.Fatalf("void of %s: status %d, error %v", id, status, err)
	}
}

// Some results have several revisions. If sum is true, the users' attributes change.
func randomResults(random *rand.Rand, sum bool, users, n int) []result {
	all := make([]result, n)
	for i := range all {
		user, id := fmt.Sprint("u", random.IntN(users)), fmt.Sprint("m", random.IntN(n))
		value := map[string]any{
			"user_id": user, "match_id": id, "revision": random.IntN(3),
			"achieved_at": time.Date(2026, 9+time.Month(random.IntN(2)), 1+random.IntN(28), 0, 0, random.IntN(3600), 0, time.UTC),
		}
		if score := random.IntN(50) - 10; sum {
			value["points"], value["tie_breakers"] = score, []int{random.IntN(3)}
			value["attributes"] = map[string]string{"region": []string{"eu", "us"}[random.IntN(2)]}
		} else {
			value["score"] = score
		}
		all[i] = result{user, id, value}
	}
	return all
}

func stop(t *testing.T, n *deployment.Node) {
	t.Helper()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := n.ExitCode(); code != 0 {
		t.Fatalf("the node exited with %d, want 0", code)
	}
}

// sameLadder reports whether two texts of ladderText are equal. On a busy machine, an answer may lack
// ranks. Then only the users and scores must be equal.
func sameLadder(want, got string) bool {
	if strings.Contains(got, `"rank":null`) {
		ranks := regexp.MustCompile(`"rank":(null|\d+)`)
		want, got = ranks.ReplaceAllString(want, ""), ranks.ReplaceAllString(got, "")
	}
	return want == got
}

// waitCommitted waits until the group has committed all messages. It does not count updates, because
// messages with index_only cause no update.
func waitCommitted(t *testing.T, d *deployment.Deployment) {
	t.Helper()
	client, err := sarama.NewClient(d.Kafka, kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close() // this closes the client too
	topic := kafka.Topics{Prefix: d.TopicPrefix}.Results()
	var partitions []int32
	for n := range int32(d.Partitions) {
		partitions = append(partitions, n)
	}
	deployment.Eventually(t, func(context.Context) error {
		committed, err := admin.ListConsumerGroupOffsets(d.Group, map[string][]int32{topic: partitions})
		if err != nil {
			return err
		}
		for _, n := range partitions {
			end, err := client.GetOffset(topic, n, sarama.OffsetNewest)
			block := committed.GetBlock(topic, n)
			if err != nil || end > 0 && (block == nil || block.Offset < end) {
				return fmt.Errorf("partition %d: the end is %d, error %v; the group has committed %+v", n, end, err, block)
			}
		}
		return nil
	})
}

// rewind sets the group's offsets to 0. The group must have no members.
func rewind(t *testing.T, d *deployment.Deployment) {
	t.Helper()
	client, err := sarama.NewClient(d.Kafka, kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offsets, err := sarama.NewOffsetManagerFromClient(d.Group, client)
	if err != nil {
		t.Fatal(err)
	}
	topic := kafka.Topics{Prefix: d.TopicPrefix}.Results()
	for n := range d.Partitions {
		p, err := offsets.ManagePartition(topic, int32(n))
		if err != nil {
			t.Fatal(err)
		}
		p.ResetOffset(0, "")
		p.AsyncClose() // AsyncClose first commits the offset
	}
	if err := offsets.Close(); err != nil {
		t.Fatal(err)
	}
}

func ladderText(t *testing.T, api *deployment.Node, board string) string {
	var text strings.Builder
	for _, season := range []string{"202609", "202610", "all"} {
		var page struct {
			Data struct {
				Entries []struct {
					User  string `json:"user_id"`
					Score int64  `json:"score"`
					Rank  *int64 `json:"rank"`
				} `json:"leaderboard"`
			} `json:"data"`
		}
		path := "/v1/boards/" + board + "/scores?" + url.Values{"limit": {"1000"}, "season": {season}}.Encode()
		status, err := api.Call(context.WithoutCancel(t.Context()), http.MethodGet, path, nil, &page)
		if err != nil {
			t.Errorf("read board %s: %v", board, err)
		}
		fmt.Fprintln(&text, season, status, show(page.Data.Entries))
	}
	return text.String()
}

// seenField has the time when the index last checked that Redis is still the same server. Reads
// change it.
const seenField = "seen"

// positionsKey ends the names of the hashes with a shard's positions in the log. The index writes
// positions at intervals.
const positionsKey = ":at"

// readState includes the write time of each column in Cassandra.
func readState(t *testing.T, d *deployment.Deployment, boards []string) map[string]string {
	t.Helper()
	all := map[string]string{}
	cassandraState(t, d, boards, all)
	client := goredis.NewClient(&goredis.Options{Addr: d.Redis[0]})
	defer client.Close()
	keys := client.Scan(t.Context(), 0, d.RedisPrefix+"*", 1000).Iterator()
	for keys.Next(t.Context()) {
		if fields, err := client.HGetAll(t.Context(), keys.Val()).Result(); err == nil && fields[seenField] != "" {
			delete(fields, seenField)
			all["redis "+keys.Val()] = show(fields)
			continue
		}
		if strings.HasSuffix(keys.Val(), positionsKey) {
			continue
		}
		dump, err := client.Dump(t.Context(), keys.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		all["redis "+keys.Val()] = hex.EncodeToString([]byte(dump))
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// ownersColumn has the claims. A claim names a process, so a restarted consumer changes the claims.
const ownersColumn = "owners"

func cassandraState(t *testing.T, d *deployment.Deployment, boards []string, all map[string]string) {
	t.Helper()
	session := d.Session(t)
	meta, err := session.KeyspaceMetadata(d.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for name, table := range meta.Tables {
		if _, ok := table.Columns["board"]; !ok {
			continue
		}
		tables++
		columns := []string{}
		for _, c := range table.OrderedColumns {
			if c == ownersColumn {
				continue
			}
			columns = append(columns, "toJson("+c+")")
			if kind := table.Columns[c].Kind; kind == gocql.ColumnRegular || kind == gocql.ColumnStatic {
				columns = append(columns, "toJson(writetime("+c+"))")
			}
		}
		iter := session.Query("SELECT toJson(board), " + strings.Join(columns, ", ") + " FROM " + name).WithContext(t.Context()).Iter()
		for {
			row := make([]*string, len(columns)+1)
			targets := make([]any, len(row))
			for i := range row {
				targets[i] = &row[i]
			}
			if !iter.Scan(targets...) {
				break
			}
			if !slices.ContainsFunc(boards, func(b string) bool { return *row[0] == `"`+b+`"` }) {
				continue
			}
			line := name
			for i, v := range row[1:] {
				if v == nil {
					continue
				}
				line += fmt.Sprintf(" %s=%s", columns[i], *v)
			}
			all[line] = ""
		}
		if err := iter.Close(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if tables < 5 {
		t.Fatalf("%d tables have a column named board, want at least 5", tables)
	}
}
