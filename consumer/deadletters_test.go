package consumer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

// A result for a missing board is a dead letter, until the board exists and the dead letter is replayed.
func TestReplayDeadLetters(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) {
		s, store := newService(t, ranking.Options{})
		c.consume(s)
		late := points("ann", "m1", 5)
		late.BoardId = "cup"
		asJSON := &sarama.ProducerMessage{
			Topic: c.topics.Results(), Key: sarama.StringEncoder("bob"),
			Value:   sarama.StringEncoder(`{"board_id":"cup","result":{"user_id":"bob","match_id":"m1","points":3}}`),
			Headers: []sarama.RecordHeader{{Key: []byte(kafka.ContentType), Value: []byte(kafka.JSON)}, {Key: []byte("own"), Value: []byte("x")}},
		}
		broken := &sarama.ProducerMessage{Topic: c.topics.Results(), Key: sarama.StringEncoder("eve"), Value: sarama.StringEncoder("\xff")}
		large := &sarama.ProducerMessage{Topic: c.topics.Results(), Key: sarama.StringEncoder("big"), Value: sarama.StringEncoder(strings.Repeat("x", 300<<10))}
		asProtobuf := message(late)
		asProtobuf.Topic = c.topics.Results()
		c.send(asProtobuf, asJSON, broken, large)
		c.read(c.topics.DeadLetters(), 4)

		read := func(q consumer.DeadLetterQuery) map[string]*consumer.DeadLetter {
			t.Helper()
			list, err := consumer.ReadDeadLetters(t.Context(), c.brokers, kafka.Options{}, c.topics, q)
			if err != nil {
				t.Fatal(err)
			}
			byUser := map[string]*consumer.DeadLetter{}
			for i, d := range list {
				byUser[d.User] = d
				if i > 0 && d.At.After(list[i-1].At) {
					t.Errorf("dead letter %d is newer than the one before it", i)
				}
			}
			return byUser
		}
		all := read(consumer.DeadLetterQuery{Limit: 10})
		if len(all) != 4 {
			t.Fatalf("read %d dead letters, want 4", len(all))
		}
		for user, want := range map[string]string{"ann": "board", "bob": "board", "eve": "form", "big": "form"} {
			d := all[user]
			if d.Cause != want || d.Detail == "" || d.Origin.Topic != c.topics.Results() || d.Origin.At.IsZero() {
				t.Errorf("the dead letter of %s is %+v, want the cause %s, a detail and an origin", user, d, want)
			}
		}
		for _, tt := range []struct {
			q    consumer.DeadLetterQuery
			want int
		}{
			{consumer.DeadLetterQuery{Limit: 10, Cause: "board"}, 2},
			{consumer.DeadLetterQuery{Limit: 10, User: "eve"}, 1},
			{consumer.DeadLetterQuery{Limit: 10, User: "eve", Cause: "board"}, 0},
			{consumer.DeadLetterQuery{Limit: 10, Since: time.Now().Add(-time.Hour)}, 4},
			{consumer.DeadLetterQuery{Limit: 10, Since: time.Now().Add(time.Hour)}, 0},
		} {
			if got := read(tt.q); len(got) != tt.want {
				t.Errorf("%+v selects %d dead letters, want %d", tt.q, len(got), tt.want)
			}
		}
		if value, err := all["bob"].Value(); err != nil || !strings.Contains(string(value), `"match_id":"m1"`) && !strings.Contains(string(value), `"match_id": "m1"`) {
			t.Errorf("the value of bob's dead letter is %s, %v", value, err)
		}
		if value, err := all["eve"].Value(); err != nil || string(value) != `{"base64":"/w=="}` {
			t.Errorf("the value of a broken dead letter is %s, %v; want its bytes", value, err)
		}
		bob := all["bob"]
		if one, err := consumer.ReadDeadLetter(t.Context(), c.brokers, kafka.Options{}, c.topics, bob.Partition, bob.Offset); err != nil || one == nil || one.User != "bob" {
			t.Errorf("ReadDeadLetter returns %+v, %v; want that of bob", one, err)
		}
		for _, missing := range [][2]int64{{int64(bob.Partition), bob.Offset + 100}, {partitions, 0}, {int64(bob.Partition), -1}} {
			if one, err := consumer.ReadDeadLetter(t.Context(), c.brokers, kafka.Options{}, c.topics, int32(missing[0]), missing[1]); err != nil || one != nil {
				t.Errorf("the dead letter %v: %+v, %v; want none", missing, one, err)
			}
		}
		board := leaderboard.Board{ID: "cup", Policy: leaderboard.Sum}
		if _, err := s.CreateBoard(t.Context(), board); err != nil {
			t.Fatal(err)
		}
		list := []*consumer.DeadLetter{all["ann"], all["eve"], all["bob"], all["big"], all["bob"]} // a second replay changes nothing
		for _, send := range []bool{false, true} {
			var skipped []*consumer.DeadLetter
			var err error
			if send {
				skipped, err = consumer.ReplayDeadLetters(t.Context(), c.Producer, c.topics, list)
			} else {
				skipped, err = consumer.ReplayDeadLetters(t.Context(), nil, c.topics, list)
			}
			if err != nil || len(skipped) != 2 || skipped[0].User != "eve" || skipped[1].User != "big" {
				t.Errorf("ReplayDeadLetters skips %v, %v; want the dead letters of eve and big", skipped, err)
			}
			if n, err := c.countMessages(c.topics.Results()); err != nil || n != map[bool]int64{false: 4, true: 7}[send] {
				t.Errorf("with sending %v, the topic of results has %d messages (%v)", send, n, err)
			}
		}
		eventually(t, "both results count", func() bool {
			page, err := s.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "cup"}, Limit: 10})
			return err == nil && len(page.Lines) == 2 && page.Lines[0].Score == 5 && page.Lines[1].Score == 3
		})
		key := leaderboard.ResultKey{SeasonKey: leaderboard.SeasonKey{Board: "cup", Season: "all"}, User: "bob", Match: "m1"}
		r, err := store.Result(t.Context(), key)
		if err != nil || r.Result == nil {
			t.Fatalf("the replayed result is %+v, %v", r, err)
		}
		if at := all["bob"].Origin.At; !r.Result.AchievedAt.Equal(at) || r.Result.ReceivedAt.After(at) {
			t.Errorf("the replayed result has the times %v and %v, want those of the message, %v", r.Result.AchievedAt, r.Result.ReceivedAt, at)
		}
	})
}

func TestReadDeadLettersWithoutATopic(t *testing.T) {
	c := start(t)
	if _, err := consumer.ReadDeadLetters(t.Context(), c.brokers, kafka.Options{}, kafka.Topics{Prefix: "none-"}, consumer.DeadLetterQuery{Limit: 1}); err == nil || !strings.Contains(err.Error(), "none-match-results.dlq") {
		t.Errorf("without the topic: %v, want an error that names it", err)
	}
}
