package cli

import "testing"

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
