package consumer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/cockroachdb/pebble/v2/vfs"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/cache/memory"
	"github.com/open-leaderboard/leaderboard/consumer"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/producer"
	"github.com/open-leaderboard/leaderboard/storage/pebble"
)

const partitions = 4

// cluster is a Kafka with the service's topics.
type cluster struct {
	t       *testing.T
	brokers []string
	topics  producer.Topics
	admin   sarama.ClusterAdmin
	*producer.Producer
}

// start is a cluster in this process.
func start(t *testing.T, topics ...string) *cluster {
	t.Helper()
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	return startOn(t, kafka.ListenAddrs(), producer.Topics{}, topics...)
}

// startOn makes the service's topics, and others, on brokers.
func startOn(t *testing.T, brokers []string, names producer.Topics, topics ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, brokers: brokers, topics: names}
	var err error
	if c.admin, err = sarama.NewClusterAdmin(c.brokers, producer.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.admin.Close() })
	for _, topic := range append(topics, names.Results(), names.Updates(), names.DeadLetters()) {
		if err := c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
			t.Fatal(err)
		}
	}
	if c.Producer, err = producer.New(c.brokers, producer.Config("test")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Producer.Close() })
	return c
}

// group is the consumer group of the cluster's test.
func (c *cluster) group() string { return c.topics.Prefix + "leaderboard" }

func (c *cluster) send(messages ...*sarama.ProducerMessage) {
	c.t.Helper()
	if err := c.Send(c.t.Context(), messages); err != nil {
		c.t.Fatal(err)
	}
}

// newService returns the service over an embedded store and index, with board b.
func newService(t *testing.T, o ranking.Options) (*ranking.Service, leaderboard.Store) {
	t.Helper()
	s, store, _ := newServiceIndex(t, o)
	return s, store
}

func newServiceIndex(t *testing.T, o ranking.Options) (*ranking.Service, leaderboard.Store, leaderboard.Index) {
	t.Helper()
	store, err := pebble.Open("data", pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	index := memory.New()
	s := ranking.New(store, index, o)
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "b", Policy: leaderboard.Sum}); err != nil {
		t.Fatal(err)
	}
	return s, store, index
}

// consume runs a consumer until the test ends or stop is called.
func (c *cluster) consume(s serviceAPI, set ...func(*consumer.Options)) (stop func()) {
	c.t.Helper()
	o := consumer.Options{
		Brokers: c.brokers, SessionTimeout: 6 * time.Second, Log: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	}
	for _, f := range set {
		f(&o)
	}
	con, err := consumer.New(o, s, c.Producer)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- con.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				c.t.Errorf("Run: %v", err)
			}
		})
	}
	c.t.Cleanup(stop)
	return stop
}

// serviceAPI is what a consumer needs of the service.
type serviceAPI interface {
	Board(ctx context.Context, id leaderboard.BoardID) (leaderboard.Board, error)
	Complete(ctx context.Context, b *leaderboard.Board, r leaderboard.MatchResult) (leaderboard.MatchResult, error)
	Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error)
	RanksOf(ctx context.Context, s leaderboard.Scope, keys []leaderboard.RankKey) ([]int64, error)
	Refresh(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, user leaderboard.UserID) (leaderboard.Change, error)
	Settled() bool
}

// read reads n messages of a topic from its beginning.
func (c *cluster) read(topic string, n int) []*sarama.ConsumerMessage {
	c.t.Helper()
	reader, err := sarama.NewConsumer(c.brokers, producer.Config("reader"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer reader.Close()
	all := make(chan *sarama.ConsumerMessage)
	stop := make(chan struct{})
	var done sync.WaitGroup
	for p := range int32(partitions) {
		pc, err := reader.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			c.t.Fatal(err)
		}
		done.Go(func() {
			defer pc.Close()
			for {
				select {
				case m := <-pc.Messages():
					select {
					case all <- m:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		})
	}
	var messages []*sarama.ConsumerMessage
	deadline := time.After(5 * time.Minute)
	for len(messages) < n {
		select {
		case m := <-all:
			messages = append(messages, m)
		case <-deadline:
			c.t.Fatalf("%s has %d messages, want %d", topic, len(messages), n)
		}
	}
	close(stop)
	done.Wait()
	return messages
}

func points(user, match string, n int64) *pb.MatchResultRecord {
	return &pb.MatchResultRecord{BoardId: "b", Result: &pb.Result{UserId: user, MatchId: match, Points: &n}}
}

func message(record *pb.MatchResultRecord) *sarama.ProducerMessage {
	value, err := proto.Marshal(record)
	if err != nil {
		panic(err)
	}
	return &sarama.ProducerMessage{Topic: producer.Results, Key: sarama.StringEncoder(record.GetResult().GetUserId()), Value: sarama.ByteEncoder(value)}
}

func board(t *testing.T, s *ranking.Service) []string {
	t.Helper()
	page, err := s.Page(t.Context(), ranking.PageQuery{Query: ranking.Query{Board: "b"}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, l := range page.Lines {
		lines = append(lines, fmt.Sprintf("%s %d", l.User, l.Score))
	}
	slices.Sort(lines)
	return lines
}

// Results that come twice and in any order are applied as if they came once.
func TestConsumeShuffledAndDuplicated(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	c := start(t, "eu.match-results")
	s, _ := newService(t, ranking.Options{})
	sums := map[string]int64{}
	var messages []*sarama.ProducerMessage
	for i := range 600 {
		user, n := fmt.Sprint("u", rng.IntN(40)), rng.Int64N(9)+1
		sums[user] += n
		m := message(points(user, fmt.Sprint("m", i), n))
		if i%3 == 0 { // from another region, through the mirror
			m.Topic = "eu.match-results"
		}
		messages = append(messages, m)
		if rng.IntN(5) == 0 {
			again := *m
			messages = append(messages, &again)
		}
	}
	rng.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	c.consume(s)
	c.send(messages...)
	updates := c.read(producer.Updates, len(messages))
	var want []string
	for user, n := range sums {
		want = append(want, fmt.Sprintf("%s %d", user, n))
	}
	slices.Sort(want)
	if diff := gocmp.Diff(want, board(t, s)); diff != "" {
		t.Errorf("seed %d (-want +got):\n%s", seed, diff)
	}
	applied := 0
	for _, m := range updates {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		if u.GetStatus() == pb.Outcome_APPLIED {
			applied++
		}
	}
	if applied != 600 {
		t.Errorf("%d updates say applied, want 600", applied)
	}
}

// What is no result goes to the dead letters, with its cause and where it was,
// and its neighbors are applied.
func TestDeadLetters(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{ID: "cup", Season: leaderboard.Schedule{
		Kind: leaderboard.Explicit, Windows: []leaderboard.Season{{ID: "w", Start: time.Unix(0, 0).UTC(), End: time.Unix(1, 0).UTC()}},
	}}); err != nil {
		t.Fatal(err)
	}
	raw := func(value string, headers ...string) *sarama.ProducerMessage {
		m := &sarama.ProducerMessage{Topic: producer.Results, Key: sarama.StringEncoder("ann"), Value: sarama.StringEncoder(value)}
		for i := 0; i < len(headers); i += 2 {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(headers[i]), Value: []byte(headers[i+1])})
		}
		return m
	}
	score := points("ann", "m3", 0)
	score.Result.Points, score.Result.Score = nil, new(int64)
	unknown := points("ann", "m4", 1)
	unknown.BoardId = "nowhere"
	noSeason := points("ann", "m5", 1)
	noSeason.BoardId, noSeason.Result.Points, noSeason.Result.Score = "cup", nil, new(int64)
	bad := []struct {
		m     *sarama.ProducerMessage
		cause string
	}{
		{raw("\xff\xff\xff"), "form"},
		{raw(""), "form"},
		{raw("{", producer.ContentType, producer.JSON), "form"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":NaN}}`, producer.ContentType, producer.JSON), "form"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":1.5}}`, producer.ContentType, producer.JSON), "form"},
		{raw(`{"board_id":"b","unknown":1}`, producer.ContentType, producer.JSON), "form"},
		{raw("x", producer.ContentType, "text/csv"), "form"},
		{raw(strings.Repeat("x", 600<<10)), "form"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":1,"metadata":{"seed":[9007199254740993]}}}`, producer.ContentType, producer.JSON), "invalid"},
		{raw(`{"board_id":"b","result":{"user_id":"a","match_id":"m","points":1,"metadata":{"seed":1e400}}}`, producer.ContentType, producer.JSON), "form"},
		{message(score), "invalid"},
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
	for _, m := range c.read(producer.DeadLetters, len(bad)) {
		h := headers(m)
		if h["origin-topic"] != producer.Results || h["origin-offset"] == "" || h["origin-partition"] == "" || h["detail"] == "" {
			t.Errorf("dead letter with headers %v", h)
		}
		got[h["cause"]]++
	}
	want := map[string]int{}
	for _, b := range bad {
		want[b.cause]++
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c.read(producer.Updates, len(bad))
	if diff := gocmp.Diff([]string{fmt.Sprintf("ann %d", len(bad))}, board(t, s)); diff != "" {
		t.Error(diff)
	}
}

// A message that is too large for a dead letter is cut to fit, and its neighbors
// do not wait.
func TestDeadLettersFit(t *testing.T) {
	t.Run("in process", func(t *testing.T) { deadLettersFit(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { deadLettersFit(t, startReal(t)) })
}

func deadLettersFit(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	conf := producer.Config("compressing")
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
		{Key: sarama.StringEncoder("u0"), Value: large(3), Headers: []sarama.RecordHeader{{Key: []byte(producer.ContentType), Value: make([]byte, 900_000)}}},
		{Key: sarama.StringEncoder("u0"), Value: large(990_000)}, // whole
	}
	for _, m := range messages {
		m.Topic = c.topics.Results()
	}
	if err := compressing.Send(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	c.send(c.results(0, 1, 1)...)
	c.join(s, consumer.Options{})
	letters := map[string]*sarama.ConsumerMessage{}
	for _, m := range c.read(c.topics.DeadLetters(), len(messages)) {
		h := headers(m)
		letters[h["origin-partition"]+" "+h["origin-offset"]] = m
	}
	cut := []map[string]string{
		{"origin-value-bytes": "1048476"}, {"origin-value-bytes": "5242880"}, {"origin-key-bytes": "1048376"}, {"origin-headers-bytes": "900022"}, {},
	}
	for i, sent := range messages {
		letter := letters[fmt.Sprintf("%d %d", sent.Partition, sent.Offset)]
		if letter == nil {
			t.Errorf("message %d has no dead letter", i)
			continue
		}
		value, err := sent.Value.Encode()
		if err != nil {
			t.Fatal(err)
		}
		h := headers(letter)
		if cut[i]["origin-value-bytes"] != "" {
			cut[i]["origin-value-sha256"] = fmt.Sprintf("%x", sha256.Sum256(value))
		}
		for _, k := range []string{"origin-value-bytes", "origin-value-sha256", "origin-key-bytes", "origin-headers-bytes"} {
			if h[k] != cut[i][k] {
				t.Errorf("message %d: header %s is %q, want %q", i, k, h[k], cut[i][k])
			}
		}
		if !bytes.HasPrefix(value, letter.Value) || len(letter.Value) < min(len(value), 900_000) || h["cause"] != "form" || h["detail"] == "" {
			t.Errorf("message %d of %d bytes: %d of them are in a letter that says %q, %.60q", i, len(value), len(letter.Value), h["cause"], h["detail"])
		}
	}
	c.read(c.topics.Updates(), 1)
	if diff := gocmp.Diff([]string{"u0 1"}, board(t, s)); diff != "" {
		t.Error(diff)
	}
}

// Where the topic of dead letters takes less than the others, they are cut to
// that, and what is in one batch with them is told all the same.
func TestDeadLettersFitASmallTopic(t *testing.T) {
	t.Run("in process", func(t *testing.T) { deadLettersFitASmallTopic(t, start(t)) })
	t.Run("Kafka", func(t *testing.T) { deadLettersFitASmallTopic(t, startReal(t)) })
}

func deadLettersFitASmallTopic(t *testing.T, c *cluster) {
	s, _ := newService(t, ranking.Options{})
	small := "10000"
	if err := c.admin.AlterConfig(sarama.TopicResource, c.topics.DeadLetters(), map[string]*string{"max.message.bytes": &small}, false); err != nil {
		t.Fatal(err)
	}
	var messages []*sarama.ProducerMessage
	for i := range 20 { // which are too much together, too
		n := 1000
		if i%5 == 0 {
			n = 100_000
		}
		messages = append(messages, &sarama.ProducerMessage{Topic: c.topics.Results(), Key: sarama.StringEncoder("u0"), Value: sarama.StringEncoder(strings.Repeat("x", n))})
	}
	c.send(append(messages, c.results(0, 1, 1)...)...)
	c.join(s, consumer.Options{})
	c.read(c.topics.Updates(), 1)
	for _, m := range c.read(c.topics.DeadLetters(), len(messages)) {
		if h := headers(m); h["cause"] != "form" || h["origin-value-bytes"] != "" && (h["origin-value-bytes"] != "100000" || len(m.Value) < 3000) || h["origin-value-bytes"] == "" && len(m.Value) != 1000 {
			t.Errorf("%d bytes in a letter with %v", len(m.Value), h)
		}
	}
}

func headers(m *sarama.ConsumerMessage) map[string]string {
	h := map[string]string{}
	for _, x := range m.Headers {
		h[string(x.Key)] = string(x.Value)
	}
	return h
}

// Updates tell the scores and rank bands before and after.
func TestUpdates(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	for i := range 20 {
		if _, err := s.Submit(t.Context(), "b", []leaderboard.MatchResult{{
			ResultKey: leaderboard.ResultKey{User: leaderboard.UserID(fmt.Sprint("u", i)), Match: "m"}, Score: leaderboard.Score(100 - i),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	c.consume(s)
	c.send(message(points("ann", "m1", 90)))
	c.read(producer.Updates, 1)
	c.send(message(points("ann", "m2", 50)))
	updates := map[string]*pb.LeaderboardUpdate{}
	for _, m := range c.read(producer.Updates, 2) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		updates[u.GetMatchId()] = u
	}
	if u := updates["m1"]; u.OldScore != nil || u.GetNewScore() != 90 || u.GetNewRankBand() != 100 {
		t.Errorf("the first: %v", u)
	}
	if u := updates["m2"]; u.GetOldScore() != 90 || u.GetNewScore() != 140 || u.GetOldRankBand() != 100 || u.GetNewRankBand() != 1 {
		t.Errorf("the second: %v", u)
	}
}

// A result that a limit of the board forbids is refused on the record.
func TestRefusalsAreAnswered(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	c.consume(s)
	c.send(message(points("ann", "m", 1<<53+1)))
	u := &pb.LeaderboardUpdate{}
	if err := proto.Unmarshal(c.read(producer.Updates, 1)[0].Value, u); err != nil || u.GetReason() != string(leaderboard.ReasonInvalid) {
		t.Errorf("update %v, %v", u, err)
	}
	got, err := s.Result(t.Context(), leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "ann", Match: "m"}, nil)
	if err != nil || got.Status != leaderboard.Rejected {
		t.Errorf("result %+v, %v", got, err)
	}
}

// The JSON form, a retraction, and the bare notification of a result that its
// owner wrote into the store.
func TestForms(t *testing.T) {
	c := start(t)
	s, store := newService(t, ranking.Options{})
	c.consume(s)
	json := &sarama.ProducerMessage{
		Topic: producer.Results, Key: sarama.StringEncoder("ann"),
		Value:   sarama.StringEncoder(`{"board_id":"b","result":{"user_id":"ann","match_id":"m1","points":5,"achieved_at":"2026-11-20T10:00:00Z","metadata":{"lap":[71.25,9007199254740992]}}}`),
		Headers: []sarama.RecordHeader{{Key: []byte(producer.ContentType), Value: []byte(producer.JSON)}},
	}
	undo := points("bob", "m1", 7)
	undo.Retracted, undo.Result.Revision, undo.Result.Points = true, 1, nil
	c.send(json, message(points("bob", "m1", 7)), message(points("bob", "m2", 2)), message(undo))
	c.read(producer.Updates, 4)
	if diff := gocmp.Diff([]string{"ann 5", "bob 2"}, board(t, s)); diff != "" {
		t.Error(diff)
	}

	b, err := s.Board(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	written := leaderboard.MatchResult{
		ResultKey: leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b", Season: leaderboard.SeasonAll}, User: "eve", Match: "m"},
		Score:     9, AchievedAt: time.Now().UTC(), ReceivedAt: time.Now().UTC(),
	}
	if _, err := store.Apply(t.Context(), &b, []leaderboard.MatchResult{written}); err != nil {
		t.Fatal(err)
	}
	note := points("eve", "m", 0)
	note.Notification, note.Result.Points = true, nil
	c.send(message(note), message(points("eve", "m2", 1)))
	told := false
	for _, m := range c.read(producer.Updates, 6) {
		u := &pb.LeaderboardUpdate{}
		if err := proto.Unmarshal(m.Value, u); err != nil {
			t.Fatal(err)
		}
		told = told || u.GetUserId() == "eve" && u.GetSeason() == "all" && u.GetMatchId() == "" && u.GetStatus() == pb.Outcome_APPLIED && u.GetNewScore() == 9
	}
	if !told {
		t.Error("no update tells of the notification")
	}
	if diff := gocmp.Diff([]string{"ann 5", "bob 2", "eve 10"}, board(t, s)); diff != "" {
		t.Error(diff)
	}
}

// flaky is a service whose store is down at first, and now and then for one
// result of a batch. It records what it applied.
type flaky struct {
	*ranking.Service
	mu      sync.Mutex
	down    int
	rng     *rand.Rand
	applied []leaderboard.MatchID
}

func (f *flaky) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down > 0 {
		f.down--
		return leaderboard.ApplyReport{}, fmt.Errorf("flaky: %w", leaderboard.ErrUnavailable)
	}
	report, err := f.Service.Apply(ctx, b, results)
	for i := range report.Outcomes {
		f.applied = append(f.applied, results[i].Match)
		if f.rng.IntN(10) == 0 {
			report.Outcomes[i] = leaderboard.Outcome{Err: leaderboard.ErrUnavailable} // it was, or was not
		}
	}
	return report, err
}

func TestStoreOutageLosesNothing(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	f := &flaky{Service: s, down: 6, rng: rand.New(rand.NewPCG(1, 1))}
	c.consume(f)
	var messages []*sarama.ProducerMessage
	for i := range 100 {
		messages = append(messages, message(points(fmt.Sprint("u", i%3), fmt.Sprint("m", i), 1)))
	}
	c.send(messages...)
	c.read(producer.Updates, 100)
	if diff := gocmp.Diff([]string{"u0 34", "u1 33", "u2 33"}, board(t, s)); diff != "" {
		t.Error(diff)
	}
}

// unsettled is a service whose rank index lacks something while behind is true.
type unsettled struct {
	*gate
	behind atomic.Bool
}

func (u *unsettled) Settled() bool { return !u.behind.Load() }

// While the rank index lacks what only this consumer knows of, nothing is
// committed, so that the next one is given it all again.
func TestNothingIsCommittedWhileTheIndexIsBehind(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	u := &unsettled{gate: newGate(s, always)}
	u.behind.Store(true)
	leave := c.consume(u)
	c.send(c.results(0, 40, 10)...)
	eventually(t, "all is applied", func() bool { return u.count() == 40 })
	time.Sleep(3 * time.Second) // in which offsets would have been committed
	leave()
	if c.committed() != [partitions]int64{} {
		t.Errorf("%v is committed, and the index is behind", c.committed())
	}
	again := &unsettled{gate: newGate(s, always)}
	again.behind.Store(true)
	c.consume(again)
	eventually(t, "all is applied again", func() bool { return again.count() == 40 })
	again.behind.Store(false)
	eventually(t, "all is committed", func() bool {
		all := int64(0)
		for _, offset := range c.committed() {
			all += offset
		}
		return all == 40
	})
	if got := board(t, s); len(got) != 10 {
		t.Errorf("board %q", got)
	}
}

// slow is a service that takes too long for more than a few results at once.
type slow struct {
	*ranking.Service
	few int
}

func (s slow) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	if len(results) > s.few {
		<-ctx.Done()
		return leaderboard.ApplyReport{}, ctx.Err()
	}
	return s.Service.Apply(ctx, b, results)
}

// A store that cannot do a whole batch in time is given less at once: tried
// again as it is, the batch would never end.
func TestSlowStoreIsGivenLess(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	const n = 500
	var messages []*sarama.ProducerMessage
	for i := range n {
		messages = append(messages, message(points(fmt.Sprintf("u%d", i%50), fmt.Sprint("m", i), 1)))
	}
	c.send(messages...)
	stop := c.consume(slow{s, 3}, func(o *consumer.Options) { o.ApplyTimeout = 200 * time.Millisecond })
	c.read(c.topics.Updates(), n)
	stop()
	for _, line := range board(t, s) {
		if !strings.HasSuffix(line, " 10") {
			t.Errorf("%s, want a score of 10", line)
		}
	}
	if got := len(board(t, s)); got != 50 {
		t.Errorf("%d users, want 50", got)
	}
}

// A consumer that leaves in order hands its partitions over where it stood, and
// reading the whole log again changes nothing.
func TestHandOverAndReplay(t *testing.T) {
	c := start(t)
	s, _ := newService(t, ranking.Options{})
	first := &flaky{Service: s, rng: rand.New(rand.NewPCG(1, 1))}
	stop := c.consume(first)
	send := func(from, to int) {
		var messages []*sarama.ProducerMessage
		for i := from; i < to; i++ {
			messages = append(messages, message(points(fmt.Sprint("u", i%7), fmt.Sprint("m", i), 1)))
		}
		c.send(messages...)
	}
	send(0, 50)
	c.read(producer.Updates, 50)
	stop()
	before := board(t, s)

	second := &flaky{Service: s, rng: rand.New(rand.NewPCG(1, 2))}
	stop = c.consume(second)
	send(50, 60)
	c.read(producer.Updates, 60)
	stop()
	for _, m := range second.applied {
		if slices.Contains(first.applied, m) {
			t.Errorf("%s was applied by the first consumer, and delivered to the second", m)
		}
	}

	want := board(t, s)
	if slices.Equal(before, want) {
		t.Fatal("the second consumer applied nothing")
	}
	if err := c.admin.DeleteConsumerGroup("leaderboard"); err != nil {
		t.Fatal(err)
	}
	c.consume(s)
	c.read(producer.Updates, 120)
	if diff := gocmp.Diff(want, board(t, s)); diff != "" {
		t.Errorf("the replay changed the board:\n%s", diff)
	}
}

// A submit by way of the log answers with the score, and reads see it.
func TestSubmitThroughTheLog(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, producer.Topics{}, 20*time.Second)
	s, store, index := newServiceIndex(t, ranking.Options{Submit: submitter.Submit})
	applying := ranking.New(store, index, ranking.Options{})
	follower, err := producer.Follow(c.brokers, producer.Config("api"), producer.Topics{}, slog.New(slog.DiscardHandler), submitter.Deliver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := follower.Close(); err != nil {
			t.Error(err)
		}
	})
	c.consume(applying)
	result := func(match string, n leaderboard.Score) []leaderboard.MatchResult {
		return []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: leaderboard.MatchID(match)}, Score: n}}
	}
	for i, want := range []leaderboard.Score{5, 10, 15} {
		got, err := s.Submit(t.Context(), "b", result(fmt.Sprint("m", i), 5))
		if err != nil || got[0].Status != leaderboard.Applied || got[0].Score != want || got[0].Err != nil {
			t.Fatalf("submit %d: %+v, %v; want %d", i, got, err, want)
		}
	}
	got, err := s.Submit(t.Context(), "b", result("m1", 5))
	if err != nil || got[0].Status != leaderboard.Duplicate || got[0].Score != 15 {
		t.Errorf("sent again: %+v, %v", got, err)
	}
	key := leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "ann", Match: "m0"}
	if got, err := s.Retract(t.Context(), key, nil); err != nil || got.Status != leaderboard.Applied || got.Score != 10 {
		t.Errorf("retract: %+v, %v", got, err)
	}
}

// A process that starts while no broker is there fails to submit, and does all
// its work once one is.
func TestKafkaComesLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	brokers := []string{l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var kafka *kfake.Cluster
	t.Cleanup(func() { // after its clients
		if kafka != nil {
			kafka.Close()
		}
	})
	p, err := producer.New(brokers, producer.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	submitter := producer.NewSubmitter(p, producer.Topics{}, 5*time.Second)
	follower, err := producer.Follow(brokers, producer.Config("api"), producer.Topics{}, slog.New(slog.NewTextHandler(t.Output(), nil)), submitter.Deliver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { follower.Close() })
	s, store, index := newServiceIndex(t, ranking.Options{Submit: submitter.Submit})
	c := &cluster{t: t, brokers: brokers, Producer: p}
	c.consume(ranking.New(store, index, ranking.Options{}))
	submit := func(match string) ([]ranking.Receipt, error) {
		return s.Submit(t.Context(), "b", []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: leaderboard.MatchID(match)}, Score: 1}})
	}
	if _, err := submit("m"); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("a submit without Kafka: %v", err)
	}
	kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.SeedTopics(partitions, producer.Results, producer.Updates, producer.DeadLetters))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	eventually(t, "a submit is applied", func() bool {
		n++
		got, err := submit(fmt.Sprint("m", n))
		return err == nil && got[0].Status == leaderboard.Applied
	})
}

// A caller who does not wait is told that the result is accepted once the log
// has it, though nobody is there to apply it; later it is.
func TestAcceptDoesNotWait(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, producer.Topics{}, time.Hour)
	s, store, index := newServiceIndex(t, ranking.Options{Submit: submitter.Submit, Accept: submitter.Accept})
	got, err := s.Accept(t.Context(), "b", []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: "m"}, Score: 7}})
	if err != nil || got[0].Status != leaderboard.Accepted || got[0].HasScore || got[0].Err != nil {
		t.Fatalf("accept: %+v, %v", got, err)
	}
	if _, err := s.Result(t.Context(), leaderboard.ResultKey{Scope: leaderboard.Scope{Board: "b"}, User: "ann", Match: "m"}, nil); !errors.Is(err, leaderboard.ErrResultNotFound) {
		t.Errorf("before it is applied: %v", err)
	}
	c.consume(ranking.New(store, index, ranking.Options{}))
	c.read(producer.Updates, 1)
	if diff := gocmp.Diff([]string{"ann 7"}, board(t, s)); diff != "" {
		t.Errorf("once it is applied:\n%s", diff)
	}
}

// Without a consumer nobody applies the result: the answer is accepted, never a
// false success.
func TestSubmitInVainIsAccepted(t *testing.T) {
	c := start(t)
	submitter := producer.NewSubmitter(c.Producer, producer.Topics{}, 50*time.Millisecond)
	s, _ := newService(t, ranking.Options{Submit: submitter.Submit})
	got, err := s.Submit(t.Context(), "b", []leaderboard.MatchResult{{ResultKey: leaderboard.ResultKey{User: "ann", Match: "m"}, Score: 1}})
	if err != nil || got[0].Status != leaderboard.Accepted || got[0].HasScore {
		t.Errorf("submit: %+v, %v", got, err)
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Send(given, []*sarama.ProducerMessage{message(points("a", "m", 1))}); !errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("a send that is given up: %v", err)
	}
}

// A result without a time of its own that is sent again just after midnight
// counts once, in the season of its first try, also where both are read at once.
func TestRetryAcrossTheSeasonsEnd(t *testing.T) {
	c := start(t)
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	s, _ := newService(t, ranking.Options{Now: func() time.Time { return end.Add(time.Minute) }})
	if _, err := s.CreateBoard(t.Context(), leaderboard.Board{
		ID: "monthly", Policy: leaderboard.Sum, Season: leaderboard.Schedule{Kind: leaderboard.Monthly, TimeZone: "UTC", Grace: time.Hour},
	}); err != nil {
		t.Fatal(err)
	}
	at := func(offset time.Duration, match string, n int64) *sarama.ProducerMessage {
		r := points("ann", match, n)
		r.BoardId = "monthly"
		m := message(r)
		m.Timestamp = end.Add(offset)
		return m
	}
	c.send(at(-2*time.Second, "m", 5), at(time.Second, "other", 1), at(2*time.Second, "m", 5), at(3*time.Second, "another", 2))
	c.consume(s)
	c.read(producer.Updates, 4)
	for season, want := range map[leaderboard.SeasonID]leaderboard.Score{"202611": 5, "202612": 3} {
		page, err := s.User(t.Context(), ranking.Query{Board: "monthly", Season: season}, "ann", 0, false)
		if err != nil || page.Score != want {
			t.Errorf("season %s: %d, want %d (%v)", season, page.Score, want, err)
		}
	}
}
