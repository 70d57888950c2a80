package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/kafka"
	"github.com/open-leaderboard/leaderboard/producer"
)

func TestTooLargeIsNotUnavailable(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	send := func(limit, n int) error {
		conf := kafka.Options{}.Config("test")
		conf.Producer.MaxMessageBytes = limit
		p, err := producer.New(fake.ListenAddrs(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return p.Send(t.Context(), []*sarama.ProducerMessage{{Topic: "t", Value: sarama.StringEncoder(strings.Repeat("x", n))}})
	}
	if err := send(1<<20, 2<<20); err == nil || errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Send of a message over the client's limit: error %v, want an error other than ErrUnavailable", err)
	}
	if err := send(4<<20, 2<<20); !errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, leaderboard.ErrUnavailable) {
		t.Errorf("Send of a message over the broker's limit: error %v, want ErrMessageSizeTooLarge and not ErrUnavailable", err)
	}
	if err := send(1<<20, 1000); err != nil {
		t.Errorf("Send of a message within the limits: %v", err)
	}
}

// Late acknowledgements of a Send that timed out must not block a later Send.
func TestSendAgainAfterTimeout(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	p, err := producer.New(fake.ListenAddrs(), kafka.Options{}.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	answered := make(chan struct{})
	fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		fake.SleepControl(func() { <-answered })
		return nil, nil, false
	})
	var messages []*sarama.ProducerMessage
	for i := range 10 {
		messages = append(messages, &sarama.ProducerMessage{Topic: "t", Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := p.Send(ctx, messages); !errors.Is(err, leaderboard.ErrUnavailable) {
			t.Errorf("Send without an acknowledgement: %v, want ErrUnavailable", err)
		}
		cancel()
	}
	close(answered)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Send(ctx, messages); err != nil {
		t.Errorf("Send again after the broker answers: %v", err)
	}
	if err := p.Send(ctx, []*sarama.ProducerMessage{{Topic: "t", Value: sarama.StringEncoder("another")}}); err != nil {
		t.Errorf("Send of another message: %v", err)
	}
}
