package names

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	for _, same := range [][]string{
		{"zoe", "Zoë", "ZOE\u0308", "ｚｏｅ", "z\u200do\u0301e"},
		{"strasse", "Straße", "STRASSE"},
		{"σας", "ΣΑΣ", "σασ"},
		{"istanbul", "İstanbul"},
		{"🏳🌈", "🏳️‍🌈"},
		{"file", "ﬁle"},
	} {
		for _, s := range same {
			if got, want := Fold(s), Fold(same[0]); got != want {
				t.Errorf("Fold(%+q) = %+q, want %+q as for %q", s, got, want, same[0])
			}
		}
	}
	if Fold("zoe") == Fold("zoo") {
		t.Error("Fold of zoe and zoo is equal")
	}
	if got, want := Fold("한국"), Fold("하"); !strings.HasPrefix(got, want) {
		t.Errorf("Fold(한국) = %+q, want the beginning %+q of 하", got, want)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDenyList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deny.txt")
	write(t, file, "# names\nAdmin\n\n  Röot  \r\n*moderator*\nofficial*\n*team")
	l, err := ReadDenyList(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"admin": true, "ÁDMIN": true, " ａｄｍｉｎ ": true, "admins": false, "root": true, "the MODERATOR!": true,
		"Official Ann": true, "unofficial": false, "A-Team": true, "teams": false, "": false, "# names": false,
	} {
		if got := l.Denies(name); got != want {
			t.Errorf("Denies(%q) = %v, want %v", name, got, want)
		}
	}
	write(t, file, "ann")
	if err := l.Reload(); err != nil || !l.Denies("Ann") || l.Denies("admin") {
		t.Errorf("after Reload, error %v, Denies(Ann) = %v, Denies(admin) = %v; want true and false", err, l.Denies("Ann"), l.Denies("admin"))
	}
	write(t, file, "**")
	if err := l.Reload(); err == nil || !strings.Contains(err.Error(), `"**"`) || !l.Denies("Ann") {
		t.Errorf("Reload of an entry for every name: error %v, want one that quotes the entry, and the previous entries", err)
	}
	if _, err := ReadDenyList(file + ".missing"); err == nil {
		t.Error("ReadDenyList of a missing file succeeded")
	}
	if l, err := ReadDenyList(""); err != nil || l.Denies("admin") || l.Reload() != nil {
		t.Error("without a file, want a list that denies nothing")
	}
}
