package cli

import (
	"regexp"
	"strings"
	"testing"
)

func TestPlural(t *testing.T) {
	for n, want := range map[int64]string{1: "1 row", 0: "0 rows", 2: "2 rows"} {
		if got := Plural(n, "row", "rows"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFoldKeepsLinesWithinTheColumns(t *testing.T) {
	const line = "board football-yearly · season 1990 · 129 entries · competition ranks · as of 1990-06-08 12:00:00"
	for columns, want := range map[int]string{
		200: line,
		80:  "board football-yearly · season 1990 · 129 entries · competition ranks\nas of 1990-06-08 12:00:00",
		10:  "board football-yearly\nseason 1990\n129 entries\ncompetition ranks\nas of 1990-06-08 12:00:00",
	} {
		if got := Fold(line, " · ", columns); got != want {
			t.Errorf("Fold to %d columns:\n%s\nwant:\n%s", columns, got, want)
		}
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	table := NewTable(Row{"rank", "user", "board"}, "rank")
	table.AppendRow(Row{1, "東京タワー", "marathon"})
	table.AppendRow(Row{10, "👩\u200d🚀", "a board with a long name, which is wrapped"})
	table.AppendRow(Row{1234567890, "e\u0301te\u0301", "x\x1b[2J"})
	want := strings.Join([]string{
		"      RANK  USER        BOARD",
		"         1  東京タワー  marathon",
		"        10  👩\u200d🚀          a board with a long name, which is wrapped",
		`1234567890  e` + "\u0301te\u0301" + `         x\x1b[2J`,
	}, "\n") + "\n"
	if got := table.String(); got != want {
		t.Errorf("in full width:\n%s\nwant:\n%s", got, want)
	}
	for columns := 10; columns < 80; columns++ {
		wrapped, cut := table.render(columns, wrap), table.Cut(columns)
		words := strings.NewReplacer(" ", "", "\n", "")
		for _, text := range []string{"aboardwithalongname,whichiswrapped"} {
			if columns >= 40 && !strings.Contains(words.Replace(regexp.MustCompile(`(?m)^ {20,}`).ReplaceAllString(wrapped, "")), text) {
				t.Errorf("in %d columns, a cell is not whole:\n%s", columns, wrapped)
			}
		}
		for name, text := range map[string]string{"wrapped": wrapped, "cut": cut} {
			for line := range strings.Lines(text) {
				if w := Width(strings.TrimSuffix(line, "\n")); w > columns && (name == "cut" || columns >= 30) {
					t.Errorf("%s to %d columns, a line has %d:\n%s", name, columns, w, text)
				}
			}
		}
		if n := strings.Count(cut, "\n"); n != 4 {
			t.Errorf("cut to %d columns, the table has %d lines, want 4:\n%s", columns, n, cut)
		}
		if columns >= 30 && !strings.Contains(wrapped, "1234567890") {
			t.Errorf("in %d columns, a number is not whole:\n%s", columns, wrapped)
		}
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"ada": 3, "東京": 4, "e\u0301": 1, "👩\u200d🚀": 2, "\x1b[36;1m▲3\x1b[0m": 2, "한글": 4, "ｱ": 1, "": 0} {
		if got := Width(text); got != want {
			t.Errorf("Width(%q) = %d, want %d", text, got, want)
		}
	}
	if got := Cut("東京タワー", 4); got != "東…" {
		t.Errorf("Cut to 4 columns = %q, want 東…", got)
	}
}
