package consumer_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
)

func TestInvalidMessagesBecomeDeadLetters(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "cup", Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Windows: []leaderboard.Season{{ID: "w", Start: time.Unix(0, 0).UTC(), End: time.Unix(1, 0).UTC()}},
	}}); err != nil {
		t.Fatal(err)
	}
	raw := func(value string, headers ...string) *sarama.ProducerMessage {
		m := &sarama.ProducerMessage{Topic: c.topics.Results(), Key: sarama.StringEncoder("ann"), Value: sarama.StringEncoder(value)}
		for i := 0; i < len(headers); i += 2 {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(headers[i]), Value: []byte(headers[i+1])})
		}
		return m
	}
	score := points("ann", "m3", 0)
	score.Result.Points, score.Result.Score = nil, new(int64)
	unknown := points("ann", "m4", 1)
	unknown.BoardId = "nowhere"
	elsewhere := points("ann", "m6", 1)
	elsewhere.Result.BoardId = new("cup")
	noSeason := points("ann", "m5", 1)
	noSeason.BoardId, noSeason.Result.Points, noSeason.Result.Score = "cup", nil, new(int64)
	bad := []struct {
		m     *sarama.ProducerMessage
		cause string
	}{
		{raw("\xff\xff\xff"), "form"},
		{raw(""), "form"},
		{raw("{", kafka.ContentType, kafka.JSON), "form"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":NaN}}`, kafka.ContentType, kafka.JSON), "form"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":1.5}}`, kafka.ContentType, kafka.JSON), "form"},
		{raw(`{"board_id":"b","unknown":1}`, kafka.ContentType, kafka.JSON), "form"},
		{raw("x", kafka.ContentType, "text/csv"), "form"},
		{raw(strings.Repeat("x", 600<<10)), "form"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":1,"metadata":{"seed":[9007199254740993]}}}`, kafka.ContentType, kafka.JSON), "invalid"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":1,"metadata":{"seed":1e400}}}`, kafka.ContentType, kafka.JSON), "form"},
		{message(score), "invalid"},
		{message(elsewhere), "invalid"},
		{message(points("", "m", 1)), "invalid"},
		{message(points("ann", "", 1)), "invalid"},
		{message(points("ann\x00", "m", 1)), "invalid"},
		{message(unknown), "board"},
		{message(noSeason), "season"},
	}
	c.consume(s)
	for i, b := range bad {
		c.send(b.m, message(points("ann", fmt.Sprint("good", i), 1)))
	}
	got := map[string]int{}
	for _, m := range c.read(c.topics.DeadLetters(), len(bad)) {
		h := headers(m)
		if h["origin-topic"] != c.topics.Results() || h["origin-offset"] == "" || h["origin-partition"] == "" || h["detail"] == "" {
			t.Errorf("a dead letter has the headers %v, want the origin's topic, partition and offset, and a detail", h)
		}
		got[h["cause"]]++
	}
	want := map[string]int{}
	for _, b := range bad {
		want[b.cause]++
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("number of dead letters by cause (-want +got):\n%s", diff)
	}
	c.read(c.topics.Updates(), len(bad))
	if diff := gocmp.Diff([]string{fmt.Sprintf("ann %d", len(bad))}, boardLines(t, s)); diff != "" {
		t.Errorf("lines of the board (-want +got):\n%s", diff)
	}
}

func TestDeadLettersFit(t *testing.T) {
	t.Run("in process", func(t *testing.T) { deadLettersFit(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { deadLettersFit(t, startReal(t)) })
}

func deadLettersFit(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	conf := kafka.Options{}.Config("compressing")
	conf.Producer.Compression, conf.Producer.MaxMessageBytes = sarama.CompressionGZIP, 8<<20
	compressing, err := producer.New(c.brokers, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { compressing.Close() })
	large := func(n int) sarama.Encoder { return sarama.StringEncoder(strings.Repeat("x", n)) }
	messages := []*sarama.ProducerMessage{
		{Key: sarama.StringEncoder("u0"), Value: large(1<<20 - 100)},
		{Key: sarama.StringEncoder("u0"), Value: large(5 << 20)},
		{Key: large(1<<20 - 200), Value: sarama.StringEncoder("u0")},
		{Key: sarama.StringEncoder("u0"), Value: large(3), Headers: []sarama.RecordHeader{{Key: []byte(kafka.ContentType), Value: make([]byte, 900_000)}}},
		{Key: sarama.StringEncoder("u0"), Value: large(990_000)},
	}
	for _, m := range messages {
		m.Topic = c.topics.Results()
	}
	if err := compressing.Send(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	c.send(c.results(0, 1, 1)...)
	c.join(s, consumer.Options{})
	deadLetters := map[string]*sarama.ConsumerMessage{}
	for _, m := range c.read(c.topics.DeadLetters(), len(messages)) {
		h := headers(m)
		deadLetters[h["origin-partition"]+" "+h["origin-offset"]] = m
	}
	cut := []map[string]string{
		{"origin-value-bytes": "1048476"}, {"origin-value-bytes": "5242880"}, {"origin-key-bytes": "1048376"}, {"origin-headers-bytes": "900022"}, {},
	}
	for i, sent := range messages {
		d := deadLetters[fmt.Sprintf("%d %d", sent.Partition, sent.Offset)]
		if d == nil {
			t.Errorf("message %d has no dead letter", i)
			continue
		}
		value, err := sent.Value.Encode()
		if err != nil {
			t.Fatal(err)
		}
		h := headers(d)
		if cut[i]["origin-value-bytes"] != "" {
			cut[i]["origin-value-sha256"] = fmt.Sprintf("%x", sha256.Sum256(value))
		}
		for _, k := range []string{"origin-value-bytes", "origin-value-sha256", "origin-key-bytes", "origin-headers-bytes"} {
			if h[k] != cut[i][k] {
				t.Errorf("message %d: header %s is %q, want %q", i, k, h[k], cut[i][k])
			}
		}
		if !bytes.HasPrefix(value, d.Value) || len(d.Value) < min(len(value), 900_000) || h["cause"] != "form" || h["detail"] == "" {
			t.Errorf("message %d of %d bytes: the dead letter has %d bytes, cause %q and detail %.60q; want the beginning of the message, cause form and a detail", i, len(value), len(d.Value), h["cause"], h["detail"])
		}
	}
	c.read(c.topics.Updates(), 1)
	if diff := gocmp.Diff([]string{"u0 1"}, boardLines(t, s)); diff != "" {
		t.Errorf("lines of the board (-want +got):\n%s", diff)
	}
}

func TestDeadLettersFitATopicWithALowLimit(t *testing.T) {
	t.Run("in process", func(t *testing.T) { deadLettersFitATopicWithALowLimit(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { deadLettersFitATopicWithALowLimit(t, startReal(t)) })
}

func deadLettersFitATopicWithALowLimit(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	small := "10000"
	if err := c.admin.AlterConfig(sarama.TopicResource, c.topics.DeadLetters(), map[string]*string{"max.message.bytes": &small}, false); err != nil {
		t.Fatal(err)
	}
	probes := 0 // messages that the topic accepted before the broker applied the limit
	eventually(t, "the broker applies the limit", func() bool {
		err := c.Send(t.Context(), []*sarama.ProducerMessage{{Topic: c.topics.DeadLetters(), Key: sarama.StringEncoder("probe"), Value: sarama.StringEncoder(strings.Repeat("x", 20_000))}})
		if err == nil {
			probes++
		}
		return err != nil
	})
	var messages []*sarama.ProducerMessage
	for i := range 20 { // a large message exceeds the limit, and so do all messages together
		n := 1000
		if i%5 == 0 {
			n = 100_000
		}
		messages = append(messages, &sarama.ProducerMessage{Topic: c.topics.Results(), Key: sarama.StringEncoder("u0"), Value: sarama.StringEncoder(strings.Repeat("x", n))})
	}
	c.send(append(messages, c.results(0, 1, 1)...)...)
	c.join(s, consumer.Options{})
	c.read(c.topics.Updates(), 1)
	for _, m := range c.read(c.topics.DeadLetters(), len(messages)+probes) {
		if string(m.Key) == "probe" {
			continue
		}
		if h := headers(m); h["cause"] != "form" || h["origin-value-bytes"] != "" && (h["origin-value-bytes"] != "100000" || len(m.Value) < 3000) || h["origin-value-bytes"] == "" && len(m.Value) != 1000 {
			t.Errorf("a dead letter has %d bytes and the headers %v, want a whole message of 1000 bytes or the beginning of a message of 100000 bytes", len(m.Value), h)
		}
	}
}
