package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/producer"
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
	sendDeadLetter(t, client, "ann", "board", "board not found\x1b[2J\nforged", string(record))
	sendDeadLetter(t, client, "eve", "form", "value is not a MatchResultRecord", "\xff")

	list := ok("list")
	checkContains(t, list, "0:0", "board", "ann", `board not found\x1b[2J\nforged`, "0:1", "form", "eve")
	if strings.Index(list, "0:1") > strings.Index(list, "0:0") {
		t.Errorf("the oldest dead letter is first:\n%s", list)
	}
	if got := ok("list", "--cause", "board", "--jq", ".[] | .dead_letter_id, .user_id, .message.result.match_id"); got != "0:0\nann\nm1\n" {
		t.Errorf("list --jq prints %q", got)
	}
	checkContains(t, ok("list", "--since", "2099-01-01"), "no dead letters")
	checkContains(t, ok("list", "-o", "csv", "--limit", "1"), "dead_letter_id", "0:1", "/w==")
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
		"show 1:-1":                "not the id of a dead letter, such as 3:17",
		"replay":                   "--all",
		"replay 0:0 --all":         "--all",
		"replay 0:0 --cause board": "with --all only",
	} {
		dlq(strings.Fields(args)...).mustFail(t, exitUsage, []string{want}, []string{args})
	}
	dlq("show", "0:99").mustFail(t, exitFailure, []string{"dead letter 0:99: dead letter not found", "dlq list"}, nil)
	dlq("show", "9:0").mustFail(t, exitFailure, []string{"dead letter 9:0: dead letter not found"}, nil)
	command(t, "", nil, "dlq", "list").mustFail(t, exitUsage, []string{"embedded engine has no dead letters", "--config"}, nil)
	command(t, "", append(environ, "LEADERBOARD_KAFKA_BROKERS=127.0.0.1:1"), "dlq", "list", "--kafka-brokers", "127.0.0.1:1").mustFail(t, exitFailure, []string{"127.0.0.1:1"}, nil)
}

func sendDeadLetter(t *testing.T, client *kgo.Client, user, cause, detail, value string) {
	t.Helper()
	topics := kafka.Topics{}
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

// What the API lists, shows and replays is in Kafka.
func TestDeadLettersOfTheAPI(t *testing.T) {
	topics := kafka.Topics{}
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topics.Results(), topics.DeadLetters()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.ConsumeTopics(topics.Results()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	p, err := producer.New(fake.ListenAddrs(), kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	source := &deadLetters{kafka: &config.Kafka{Brokers: fake.ListenAddrs()}, producer: p}
	record := func(user string) string {
		value, err := proto.Marshal(&pb.MatchResultRecord{BoardId: "cup", Result: &pb.Result{UserId: user, MatchId: "m1", Points: proto.Int64(3)}})
		if err != nil {
			t.Fatal(err)
		}
		return string(value)
	}
	sent := map[string]bool{}
	for i := range 25 {
		user := fmt.Sprint("u", i)
		sent[user] = true
		sendDeadLetter(t, client, user, "board", "board not found", record(user))
	}
	sendDeadLetter(t, client, "\xff\x00", "fo\xffrm", "de\xfftail", "\xff")

	var ids []string
	for req := (&pb.ListDeadLettersRequest{}); ; {
		res, err := source.List(t.Context(), req, 4, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range res.GetDeadLetters() {
			if d.Message != nil || d.MessageBytes != nil || d.GetCause() == "board" && (!sent[d.GetUserId()] || d.GetBoard() != "cup" || d.GetMatchId() != "m1" || !d.GetReplayable() || d.GetCure() == "") {
				t.Errorf("the list has %v, want a summary of each dead letter once", d)
			}
			if delete(sent, d.GetUserId()); d.GetCause() == "board" {
				ids = append(ids, d.GetDeadLetterId())
			}
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(sent) > 0 || len(ids) != 25 {
		t.Fatalf("the pages have %d dead letters, and lack those of %v", len(ids), sent)
	}
	list, err := source.Get(t.Context(), []string{ids[7], ids[3]})
	if err != nil || list[0].GetDeadLetterId() != ids[7] || list[1].GetMessage().GetResult().GetPoints() != 3 {
		t.Errorf("Get: %v, %v; want both messages in the order of the ids", list, err)
	}
	if err := source.Replay(t.Context(), []string{ids[7], ids[3]}); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 2; {
		for _, r := range client.PollFetches(t.Context()).Records() {
			if user := string(r.Key); user != list[0].GetUserId() && user != list[1].GetUserId() {
				t.Errorf("the message of %q was sent again", user)
			}
			n++
		}
	}
	var fault *leaderboard.FieldError
	for _, token := range []string{"!", "gA", base64.RawURLEncoding.EncodeToString([]byte{1, 5, 1, 6}), base64.RawURLEncoding.EncodeToString([]byte{1}), strings.Repeat("_", 40)} {
		if _, err := source.List(t.Context(), &pb.ListDeadLettersRequest{PageToken: token}, 4, time.Time{}); !errors.As(err, &fault) || fault.Field != "page_token" {
			t.Errorf("the token %q: %v, want a FieldError for page_token", token, err)
		}
	}
	if _, err := source.List(t.Context(), &pb.ListDeadLettersRequest{Cause: "rain"}, 4, time.Time{}); !errors.As(err, &fault) || fault.Field != "cause" {
		t.Errorf("an unknown cause: %v, want a FieldError for cause", err)
	}
	for _, id := range []string{"7", "1:-1", "3:17:1", strings.Repeat("9", 5000), "\xff"} {
		if _, err := source.Get(t.Context(), []string{id}); !errors.As(err, &fault) || fault.Field != "dead_letter_id" || len(fault.Problem) > 200 {
			t.Errorf("the id %.20q: %v, want a FieldError for dead_letter_id", id, err)
		}
	}
	if _, err := source.Get(t.Context(), []string{ids[0], "2:99"}); !errors.Is(err, leaderboard.ErrDeadLetterNotFound) {
		t.Errorf("a missing id: %v, want ErrDeadLetterNotFound", err)
	}
	down := &deadLetters{kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}}}
	if _, err := down.List(t.Context(), &pb.ListDeadLettersRequest{}, 4, time.Time{}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("without Kafka: %v, want ErrUnavailable", err)
	}
}

func FuzzDeadLetterToken(f *testing.F) {
	f.Add(deadLetterToken(map[int32]int64{0: 0, 7: 1 << 40}))
	f.Add("gA")
	f.Fuzz(func(t *testing.T, token string) {
		before, err := parseDeadLetterToken(token)
		if err != nil {
			return
		}
		for p, offset := range before {
			if p < 0 || offset < 0 {
				t.Errorf("%q has the partition %d and the offset %d", token, p, offset)
			}
		}
		again, err := parseDeadLetterToken(deadLetterToken(before))
		if err != nil || !maps.Equal(again, before) {
			t.Errorf("the token of %v is read as %v, %v", before, again, err)
		}
	})
}
