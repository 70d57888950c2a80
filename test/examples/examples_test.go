// Package examples builds the modules in folder examples, and a program that submits results, as other modules
// would, and runs them with a Kafka broker in the process.
package examples

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/producer"
)

const root = "../.."

var topics = kafka.Topics{Prefix: "x-"}

type broker struct {
	t       *testing.T
	address string
	conf    *sarama.Config
}

func startBroker(t *testing.T) *broker {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	b := &broker{t, strings.Join(fake.ListenAddrs(), ","), kafka.Options{}.Config("test")}
	admin, err := sarama.NewClusterAdmin(fake.ListenAddrs(), b.conf)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, topic := range []string{topics.Updates(), topics.Results()} {
		if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *broker) publish(updates ...*pb.LeaderboardUpdate) {
	b.t.Helper()
	p, err := producer.New(strings.Split(b.address, ","), b.conf)
	if err != nil {
		b.t.Fatal(err)
	}
	defer p.Close()
	var messages []*sarama.ProducerMessage
	for _, u := range updates {
		m, err := kafka.NewMessage(topics.Updates(), u.GetUserId(), u)
		if err != nil {
			b.t.Fatal(err)
		}
		messages = append(messages, m)
	}
	if err := p.Send(b.t.Context(), messages); err != nil {
		b.t.Fatal(err)
	}
}

// build builds the main package in folder and returns the path of the program.
func build(t *testing.T, folder string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build in %s: %v\n%s", folder, err, out)
	}
	return program
}

// run runs a program until done returns true, and then interrupts it. The program must exit with code 0.
func run(t *testing.T, program string, done func() bool, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(2 * time.Minute)
	for !done() {
		select {
		case err := <-exited:
			t.Fatalf("%s ended: %v\n%s", program, err, out.String())
		case <-deadline:
			_ = cmd.Process.Kill()
			<-exited
			t.Fatalf("%s did not do its work in time:\n%s", program, out.String())
		case <-ticker.C:
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-exited; err != nil {
		t.Errorf("%s ended after SIGTERM: %v, want code 0", program, err)
	}
}

func update(user string, match int, oldBand, newBand int64) *pb.LeaderboardUpdate {
	u := &pb.LeaderboardUpdate{
		BoardId: "cup", Season: "202611", UserId: user, MatchId: fmt.Sprint("m", match), Status: pb.Outcome_APPLIED,
		NewScore: new(int64(match)), NewRankBand: &newBand, AppliedAt: timestamppb.New(time.Date(2026, 11, 20, 10, 0, match, 0, time.UTC)),
	}
	if oldBand > 0 {
		u.OldRankBand = &oldBand
	}
	return u
}

// The CSV file has every update, also those that arrive while the program does not run.
func TestAnalytics(t *testing.T) {
	b := startBroker(t)
	program, file := build(t, root+"/examples/analytics"), filepath.Join(t.TempDir(), "updates.csv")
	want := map[string][]string{} // the line of each match
	for round := range 2 {
		var updates []*pb.LeaderboardUpdate
		for i := range 20 {
			u := update(fmt.Sprint("user,", i), round*20+i, 0, 10)
			updates = append(updates, u)
			want[u.GetMatchId()] = []string{
				fmt.Sprintf("2026-11-20T10:00:%02dZ", round*20+i), "cup", "202611", u.GetUserId(), u.GetMatchId(), "0", "APPLIED", "", "", fmt.Sprint(round*20 + i), "", "10", "",
			}
		}
		b.publish(updates...)
		lines := func() map[string][]string {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil
			}
			records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
			if err != nil {
				return nil // a line is incomplete
			}
			byMatch := map[string][]string{}
			for _, record := range records[min(1, len(records)):] {
				byMatch[record[4]] = record
			}
			return byMatch
		}
		run(t, program, func() bool { return len(lines()) == len(want) }, "-brokers", b.address, "-prefix", topics.Prefix, "-file", file)
		for match, line := range lines() {
			if !slices.Equal(line, want[match]) {
				t.Errorf("the line of match %s is %q, want %q", match, line, want[match])
			}
		}
	}
}

func TestNotifications(t *testing.T) {
	b := startBroker(t)
	program := build(t, root+"/examples/notifications")
	var mu sync.Mutex
	var got []string
	failures := 2
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n struct {
			ID   string `json:"id"`
			User string `json:"user_id"`
			Text string `json:"text"`
		}
		mu.Lock()
		defer mu.Unlock()
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil || failures > 0 {
			failures--
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		got = append(got, n.Text)
	}))
	defer hook.Close()
	hidden := update("eve", 6, 0, 1)
	hidden.Hidden = true
	b.publish(update("ann", 1, 0, 10), update("bob", 2, 10, 10), update("ann", 3, 10, 1), update("cyd", 4, 1, 100), hidden, update("dan", 7, 0, 3))
	want := []string{"ann is in the top 10 of cup in season 202611 with 1", "ann leads cup in season 202611 with 3", "dan is in the top 3 of cup in season 202611 with 7"}
	delivered := func() []string {
		mu.Lock()
		defer mu.Unlock()
		list := slices.Clone(got)
		slices.Sort(list)
		return slices.Compact(list) // notifications may be repeated
	}
	run(t, program, func() bool { return len(delivered()) >= len(want) }, "-brokers", b.address, "-prefix", topics.Prefix, "-webhook", hook.URL)
	if list := delivered(); !slices.Equal(list, want) {
		t.Errorf("the notifications are %q, want %q", list, want)
	}
}

const submitProgram = `package main

import (
	"context"
	"fmt"
	"os"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/producer"
)

func main() {
	p, err := producer.New(os.Args[1:2], producer.Options{}.Config("my game"))
	if err == nil {
		defer p.Close()
		points := int64(3)
		record := &pb.MatchResultRecord{BoardId: "cup", Result: &pb.Result{UserId: "ann", MatchId: "m", Points: &points}}
		err = p.SendResults(context.Background(), producer.Topics{Prefix: os.Args[2]}, record)
		record.Result.MatchId = ""
		fmt.Println(p.SendResults(context.Background(), producer.Topics{Prefix: os.Args[2]}, record))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
`

func TestSubmitFromAnotherModule(t *testing.T) {
	b := startBroker(t)
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(repository, "examples/analytics", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, text := range map[string]string{"main.go": submitProgram, "go.sum": read("go.sum"), "go.mod": strings.Replace(read("go.mod"), "../..", repository, 1)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), build(t, folder), b.address, topics.Prefix).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "results[0].match_id: is required") {
		t.Fatalf("the program printed %s (error %v), want that a result needs a match_id", out, err)
	}
	reader, err := sarama.NewConsumer(strings.Split(b.address, ","), b.conf)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	n, err := kafka.PartitionOf([]byte("ann"), 3)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := reader.ConsumePartition(topics.Results(), n, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Close()
	select {
	case m := <-messages.Messages():
		got := &pb.MatchResultRecord{}
		if err := proto.Unmarshal(m.Value, got); err != nil || string(m.Key) != "ann" || got.GetBoardId() != "cup" || got.GetResult().GetPoints() != 3 {
			t.Errorf("the message is %s %v (error %v), want the result of ann", m.Key, got, err)
		}
	case <-time.After(time.Minute):
		t.Error("no message arrived on the partition of ann")
	}
}
