package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

func TestDeadLettersAreLoggedAtARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := deadLetterLog{log: slog.New(slog.NewTextHandler(&text, nil))}
		lines := func() string {
			defer text.Reset()
			var got []string
			for line := range strings.Lines(text.String()) {
				_, fields, _ := strings.Cut(line, "count=")
				got = append(got, strings.TrimSpace(fields))
			}
			return strings.Join(got, "; ")
		}
		add := func(from, to int64) {
			for n := from; n < to; n++ {
				l.add(&item{message: &sarama.ConsumerMessage{Topic: "t", Offset: n}, cause: causeForm, detail: errors.New("bad")})
			}
		}
		line := func(count, offset int) string {
			return fmt.Sprintf("%d topic=t partition=0 offset=%d cause=form err=bad", count, offset)
		}
		add(0, 1000)
		l.flush()
		if got, want := lines(), line(1, 0); got != want {
			t.Errorf("the first line: %s, want %s", got, want)
		}
		time.Sleep(deadLetterLogInterval)
		l.flush()
		if got, want := lines(), line(999, 999); got != want {
			t.Errorf("after the interval: %s, want %s", got, want)
		}
		time.Sleep(deadLetterLogInterval)
		l.flush()
		add(1000, 1001)
		if got, want := lines(), line(1, 1000); got != want {
			t.Errorf("after a quiet interval: %s, want %s", got, want)
		}
	})
}
