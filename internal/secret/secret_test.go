package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestTextIsHiddenWhereverItIsShown(t *testing.T) {
	var log strings.Builder
	s := struct{ Key Text }{"hunter2"}
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", "key", s.Key, "all", s)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		fmt.Sprint(s), fmt.Sprintf("%+v %#v %s %q %v", s, s, s.Key, s.Key, &s.Key), fmt.Sprintf("%x %d", s.Key, s.Key),
		string(data), log.String(), fmt.Sprint(fmt.Errorf("%v", s)),
	} {
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, fmt.Sprintf("%x", "hunter2")) || !strings.Contains(shown, hidden) {
			t.Errorf("a Text is shown as %s, want %s and not the value", shown, hidden)
		}
	}
	if got := Text("").String(); got != "" {
		t.Errorf("an empty Text is shown as %q, want an empty string", got)
	}
	var back Text
	if err := back.UnmarshalText([]byte("hunter2")); err != nil || string(back) != "hunter2" {
		t.Errorf("UnmarshalText(hunter2) sets %q, %v; want hunter2 and no error", string(back), err)
	}
}
