package cli

import (
	"encoding/json"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"ada": "ada",
		"Zoë 東京 👩\u200d🚀 می\u200cخواهم":                                          "Zoë 東京 👩\u200d🚀 می\u200cخواهم",
		"\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
		"a\x1b[2Jb":             `a\x1b[2Jb`,
		"a\r\nb\tc":             `a\r\nb\tc`,
		"\u009b31m\x7f":         `\u009b31m\x7f`,
		"\u202eabc\u2028\ufeff": `\u202eabc\u2028\ufeff`,
		"\xff\xc3":              `\xff\xc3`,
		"\ufffd":                "\ufffd",
		"":                      "",
	} {
		if got := Escape(text); got != want {
			t.Errorf("Escape(%q) = %q, want %q", text, got, want)
		}
	}
	if got := EscapeLines("a\nb\rc\n"); got != "a\nb\\rc\n" {
		t.Errorf("EscapeLines = %q, want the line breaks kept and \\r escaped", got)
	}
}

func TestEscapeJSONKeepsTheMeaning(t *testing.T) {
	const text = "\u009b\x7f\u202e\U000e0001 é"
	got := EscapeJSON([]byte(`{"a":"` + text + `"}`))
	if want := `{"a":"\u009b\u007f\u202e\udb40\udc01 é"}`; string(got) != want {
		t.Errorf("EscapeJSON = %s, want %s", got, want)
	}
	var decoded struct{ A string }
	if err := json.Unmarshal(got, &decoded); err != nil || decoded.A != text {
		t.Errorf("the escaped JSON decodes to %q (%v), want %q", decoded.A, err, text)
	}
}
