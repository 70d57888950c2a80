package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

func TestDeadLetters(t *testing.T) {
	topics := kafka.Topics{}
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topics.Results(), topics.DeadLetters(), topics.Updates()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	// The commands use Kafka only.
	environ := []string{"LEADERBOARD_KAFKA_BROKERS=" + strings.Join(fake.ListenAddrs(), ","), "LEADERBOARD_CASSANDRA_HOSTS=127.0.0.1:1", "LEADERBOARD_CASSANDRA_DATA_CENTER=dc1", "LEADERBOARD_REDIS_ADDRESSES=127.0.0.1:1"}
	dlq := func(args ...string) commandResult {
		return command(t, "", environ, append([]string{"dlq"}, args...)...)
	}
	ok := func(args ...string) string {
		t.Helper()
		r := dlq(args...)
		if r.code != exitOK {
			t.Fatalf("dlq %q exited with %d: %s", args, r.code, r.stderr)
		}
		return r.stdout
	}
	checkContains(t, ok("list"), "no dead letters")

	record, err := proto.Marshal(&pb.MatchResultRecord{BoardId: "cup", Result: &pb.Result{UserId: "ann", MatchId: "m1", Points: proto.Int64(3)}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.ConsumeTopics(topics.Results()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	send := func(user, cause, detail, value string) {
		t.Helper()
		r := &kgo.Record{Topic: topics.DeadLetters(), Key: []byte(user), Value: []byte(value)}
		for _, h := range [][2]string{
			{"cause", cause}, {"detail", detail}, {"origin-topic", topics.Results()}, {"origin-partition", "0"}, {"origin-offset", "7"}, {"origin-timestamp", "2026-11-20T10:00:00Z"},
		} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	send("ann", "board", "board not found\x1b[2J\nforged", string(record))
	send("eve", "form", "value is not a MatchResultRecord", "\xff")

	list := ok("list")
	checkContains(t, list, "0:0", "board", "ann", `board not found\x1b[2J\nforged`, "0:1", "form", "eve")
	if strings.Index(list, "0:1") > strings.Index(list, "0:0") {
		t.Errorf("the oldest dead letter is first:\n%s", list)
	}
	if got := ok("list", "--cause", "board", "--jq", ".[] | .id, .user_id, .value.result.match_id"); got != "0:0\nann\nm1\n" {
		t.Errorf("list --jq prints %q", got)
	}
	checkContains(t, ok("list", "--since", "2099-01-01"), "no dead letters")
	checkContains(t, ok("show", "0:0"), "create the board, then replay", "match-results, partition 0, offset 7, 2026-11-20T10:00:00Z", `"board_id"`)
	checkContains(t, ok("show", "0:1"), "correct the producer", "/w==")

	checkContains(t, ok("replay", "0:0", "--dry-run"), "dry run, nothing was sent: 1 message replayed, 0 skipped")
	checkContains(t, ok("replay", "0:0"), "1 message replayed, 0 skipped")
	all := dlq("replay", "--all", "-o", "json")
	all.mustFail(t, exitFailure, []string{"0:1", "correct their producer"}, nil)
	checkContains(t, all.stdout, `{"replayed":1,"skipped":["0:1"],"dry_run":false}`)

	var replayed []*kgo.Record
	for len(replayed) < 2 { // and none of the dry run
		replayed = append(replayed, client.PollFetches(t.Context()).Records()...)
	}
	for _, r := range replayed {
		got := &pb.MatchResultRecord{}
		if err := proto.Unmarshal(r.Value, got); err != nil || string(r.Key) != "ann" || got.GetBoardId() != "cup" || got.GetResult().GetPoints() != 3 {
			t.Errorf("the replayed message is %v with the key %q (%v), want the original one", got, r.Key, err)
		}
		if at := got.GetResult().GetAchievedAt().AsTime().Format("2006-01-02T15"); at != "2026-11-20T10" {
			t.Errorf("the replayed result counts at %s, want the time of its message", at)
		}
	}

	for args, want := range map[string]string{
		"list --limit 0":           "not between 1 and 100000",
		"list --cause rain":        "not one of form, invalid, board, season, fetch, damaged",
		"list --since yesterday":   "--since",
		"show":                     "ID is missing",
		"show 7":                   "not the id of a dead letter, such as 3:17",
		"replay":                   "--all",
		"replay 0:0 --all":         "--all",
		"replay 0:0 --cause board": "with --all only",
	} {
		dlq(strings.Fields(args)...).mustFail(t, exitUsage, []string{want}, []string{args})
	}
	dlq("show", "0:99").mustFail(t, exitFailure, []string{"no dead letter 0:99", "dlq list"}, nil)
	dlq("show", "9:0").mustFail(t, exitFailure, []string{"no dead letter 9:0"}, nil)
	command(t, "", nil, "dlq", "list").mustFail(t, exitUsage, []string{"embedded engine has no dead letters", "--config"}, nil)
	command(t, "", append(environ, "LEADERBOARD_KAFKA_BROKERS=127.0.0.1:1"), "dlq", "list", "--kafka-brokers", "127.0.0.1:1").mustFail(t, exitFailure, []string{"127.0.0.1:1"}, nil)
}
