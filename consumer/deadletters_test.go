package consumer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

func (c *cluster) openDeadLetters() *consumer.DeadLetters {
	c.t.Helper()
	l, err := consumer.OpenDeadLetters(c.brokers, kafka.Options{}, c.topics)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return l
}

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

		source := c.openDeadLetters()
		read := func(q consumer.DeadLetterQuery) map[string]*consumer.DeadLetter {
			t.Helper()
			list, next, err := source.Page(t.Context(), q)
			if err != nil || next != nil {
				t.Fatalf("Page(%+v): next page %v, error %v; want one page", q, next, err)
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
		if record, raw := all["bob"].Value(); raw != nil || record.GetResult().GetMatchId() != "m1" || record.GetResult().GetPoints() != 3 {
			t.Errorf("the value of bob's dead letter is %v, %q", record, raw)
		}
		if record, raw := all["eve"].Value(); record != nil || string(raw) != "\xff" {
			t.Errorf("the value of a broken dead letter is %v, %q; want its bytes", record, raw)
		}
		for user, want := range map[string]string{"ann": "cup m1 true", "bob": "cup m1 true", "eve": "  false", "big": "  false"} {
			if d := all[user]; fmt.Sprint(d.Board, " ", d.Match, " ", d.Replayable) != want {
				t.Errorf("the dead letter of %s has board %q and match %q, replayable %v; want %s", user, d.Board, d.Match, d.Replayable, want)
			}
		}
		bob := all["bob"].ID()
		if list, err := source.Get(t.Context(), []consumer.DeadLetterID{bob, all["eve"].ID(), bob}); err != nil || len(list) != 3 || list[0].User != "bob" || list[1].User != "eve" || list[2].User != "bob" {
			t.Errorf("Get returns %+v, %v; want those of bob, eve and bob", list, err)
		}
		for _, missing := range []consumer.DeadLetterID{{bob.Partition, bob.Offset + 100}, {partitions, 0}, {bob.Partition, -1}} {
			if list, err := source.Get(t.Context(), []consumer.DeadLetterID{bob, missing}); !errors.Is(err, leaderboard.ErrDeadLetterNotFound) {
				t.Errorf("the dead letter %v: %+v, %v; want ErrDeadLetterNotFound", missing, list, err)
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
	if _, err := consumer.OpenDeadLetters(c.brokers, kafka.Options{}, kafka.Topics{Prefix: "none-"}); err == nil || !strings.Contains(err.Error(), "none-match-results.dlq") {
		t.Errorf("without the topic: %v, want an error that names it", err)
	}
}

// The pages list each dead letter once, the newest first, in each partition by offset, whatever their size, how many
// letters they examine, and what arrives meanwhile.
func TestPagesOfDeadLetters(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) {
		rng := rand.New(rand.NewPCG(seed.New(t), 0))
		var sent []*sarama.ProducerMessage
		at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		send := func(cause string) {
			m := &sarama.ProducerMessage{
				Topic: c.topics.DeadLetters(), Key: sarama.StringEncoder(fmt.Sprint("u", rng.IntN(9))), Value: sarama.StringEncoder("x"), Timestamp: at,
				Headers: []sarama.RecordHeader{{Key: []byte("cause"), Value: []byte(cause)}},
			}
			c.send(m)
			sent = append(sent, m)
		}
		for range 150 {
			send([]string{"form", "board"}[min(rng.IntN(6), 1)])
			at = at.Add(time.Duration(rng.IntN(2000)) * time.Millisecond) // some are of one time
		}
		all := slices.Clone(sent)
		source := c.openDeadLetters()
		for round := range 8 {
			q := consumer.DeadLetterQuery{Limit: 8 + rng.IntN(40), Examine: int64(rng.IntN(3) * 10), Summary: rng.IntN(2) == 0}
			if round%2 == 0 {
				q.Cause = "form"
			}
			if rng.IntN(4) == 0 {
				q.User = fmt.Sprint("u", rng.IntN(9))
			}
			if rng.IntN(2) == 0 {
				q.Since = all[rng.IntN(len(all))].Timestamp
			}
			want := map[string]bool{}
			for _, m := range all {
				key, _ := m.Key.Encode()
				if (q.Cause == "" || string(m.Headers[0].Value) == q.Cause) && (q.User == "" || string(key) == q.User) && !m.Timestamp.Before(q.Since) {
					want[fmt.Sprintf("%d:%d", m.Partition, m.Offset)] = true
				}
			}
			var got []*consumer.DeadLetter
			for page := 0; ; page++ {
				list, next, err := source.Page(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) > q.Limit || q.Examine == 0 && next != nil && len(list) < q.Limit {
					t.Errorf("round %d: a page of %d dead letters with the limit %d has a next page", round, len(list), q.Limit)
				}
				if got = append(got, list...); next == nil {
					break
				}
				if q.Before = next; page == 0 && round == 0 {
					send("form") // after the pages began
				}
			}
			last := map[int32]int64{}
			for i, d := range got {
				if !want[d.ID().String()] {
					t.Fatalf("round %d, %+v: %v is listed twice, or should not be", round, q, d.ID())
				}
				delete(want, d.ID().String())
				if offset, ok := last[d.Partition]; ok && d.Offset > offset || i > 0 && d.At.After(got[i-1].At) {
					t.Fatalf("round %d, %+v: %v of %v follows %v of %v, which is older", round, q, d.ID(), d.At, got[i-1].ID(), got[i-1].At)
				}
				last[d.Partition] = d.Offset
			}
			if len(want) > 0 {
				t.Fatalf("round %d, %+v: %d dead letters are not listed", round, q, len(want))
			}
			all = slices.Clone(sent)
		}
	})
}

func TestDeadLetterIDs(t *testing.T) {
	for _, id := range []consumer.DeadLetterID{{0, 0}, {3, 17}, {1<<31 - 1, 1<<63 - 1}} {
		if got, err := consumer.ParseDeadLetterID(id.String()); err != nil || got != id {
			t.Errorf("ParseDeadLetterID(%q) = %v, %v", id.String(), got, err)
		}
	}
	for _, text := range []string{"", ":", "1:", ":1", "-1:0", "0:-1", "+1:0", "1:2:3", "1.5:0", "NaN:0", "2147483648:0", "0:9223372036854775808", "3-17", " 3:17", strings.Repeat("9", 5000)} {
		if got, err := consumer.ParseDeadLetterID(text); !errors.Is(err, leaderboard.ErrInvalid) || len(err.Error()) > 200 {
			t.Errorf("ParseDeadLetterID(%.20q) = %v, %v; want ErrInvalid", text, got, err)
		}
	}
}
