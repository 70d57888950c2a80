package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

func TestTextIsHiddenInEveryOutput(t *testing.T) {
	var log strings.Builder
	s := struct{ Key Text }{"hunter2"}
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", "key", s.Key, "all", s)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{
		fmt.Sprint(s), fmt.Sprintf("%+v %#v %s %q %v", s, s, s.Key, s.Key, &s.Key), fmt.Sprintf("%x %d", s.Key, s.Key),
		string(data), log.String(), fmt.Sprint(fmt.Errorf("%v", s)),
	} {
		if strings.Contains(output, "hunter2") || strings.Contains(output, fmt.Sprintf("%x", "hunter2")) || !strings.Contains(output, hidden) {
			t.Errorf("the output is %s, want %s in place of the value", output, hidden)
		}
	}
	if got := Text("").String(); got != "" {
		t.Errorf("an empty Text is shown as %q, want an empty string", got)
	}
	var text Text
	if err := text.UnmarshalText([]byte("hunter2")); err != nil || string(text) != "hunter2" {
		t.Errorf("UnmarshalText(hunter2) sets %q, error %v; want hunter2 and no error", string(text), err)
	}
}
