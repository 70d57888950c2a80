package leaderboard

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestProfileCheck(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	long := func(n int) string { return strings.Repeat("a", n) }
	for _, tt := range []struct {
		name   string
		modify func(*Profile)
		field  string // "" if the profile is valid
	}{
		{"an empty profile", func(*Profile) {}, ""},
		{"no user", func(p *Profile) { p.User = "" }, "user_id"},
		{"a user that is a part of a path", func(p *Profile) { p.User = ".." }, "user_id"},
		{"emoji sequences", func(p *Profile) {
			p.DisplayName = "Zoë 🏳️‍🌈 👩🏽‍🚀 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣ 🇬🇧"
		}, ""},
		{"scripts from right to left", func(p *Profile) { p.DisplayName = "שלום عليكم" }, ""},
		{"a script that needs joiners", func(p *Profile) { p.DisplayName = "श्री र्\u200dक می\u200cخواهم" }, ""},
		{"the longest name", func(p *Profile) { p.DisplayName = long(256) }, ""},
		{"a longer name", func(p *Profile) { p.DisplayName = long(257) }, "display_name"},
		{"a control character", func(p *Profile) { p.DisplayName = "a\nb" }, "display_name"},
		{"the C1 control NEL", func(p *Profile) { p.DisplayName = "a\u0085b" }, "display_name"},
		{"a bidi override", func(p *Profile) { p.DisplayName = "a\u202egpj" }, "display_name"},
		{"a bidi isolate", func(p *Profile) { p.DisplayName = "\u2067a\u2069" }, "display_name"},
		{"a zero-width space", func(p *Profile) { p.DisplayName = "a\u200bb" }, "display_name"},
		{"a joiner between letters", func(p *Profile) { p.DisplayName = "a\u200db" }, "display_name"},
		{"no visible character", func(p *Profile) { p.DisplayName = "  " }, "display_name"},
		{"a name that is not UTF-8", func(p *Profile) { p.DisplayName = "a\xff" }, "display_name"},
		{"an https URL", func(p *Profile) { p.AvatarURL = "https://cdn.example:8443/a%20b.png?x=1&y=[2]#f" }, ""},
		{"the longest URL", func(p *Profile) { p.AvatarURL = "https://e.org/" + long(1010) }, ""},
		{"a longer URL", func(p *Profile) { p.AvatarURL = "https://e.org/" + long(1011) }, "avatar_url"},
		{"http", func(p *Profile) { p.AvatarURL = "http://e.org/a.png" }, "avatar_url"},
		{"a script", func(p *Profile) { p.AvatarURL = "javascript:alert(1)" }, "avatar_url"},
		{"a data URL", func(p *Profile) { p.AvatarURL = "data:image/png;base64,AA==" }, "avatar_url"},
		{"a URL without a scheme", func(p *Profile) { p.AvatarURL = "//e.org/a.png" }, "avatar_url"},
		{"a URL without a host", func(p *Profile) { p.AvatarURL = "https:///a.png" }, "avatar_url"},
		{"a URL with a port only", func(p *Profile) { p.AvatarURL = "https://:80/a.png" }, "avatar_url"},
		{"a URL with a password", func(p *Profile) { p.AvatarURL = "https://u:p@e.org/a.png" }, "avatar_url"},
		{"a URL with a quote", func(p *Profile) { p.AvatarURL = `https://e.org/a".png` }, "avatar_url"},
		{"a URL with a space", func(p *Profile) { p.AvatarURL = "https://e.org/a b" }, "avatar_url"},
		{"a URL with a control character", func(p *Profile) { p.AvatarURL = "https://e.org/\x00" }, "avatar_url"},
		{"a URL with a wrong escape", func(p *Profile) { p.AvatarURL = "https://e.org/%zz" }, "avatar_url"},
		{"a country", func(p *Profile) { p.Country = "GBR" }, ""},
		{"a country of two letters", func(p *Profile) { p.Country = "GB" }, "country"},
		{"a country in small letters", func(p *Profile) { p.Country = "gbr" }, "country"},
		{"a country of other letters", func(p *Profile) { p.Country = "ÄÖ" }, "country"},
		{"attributes", func(p *Profile) { p.Attributes = `{"a":[1,{"b":null}]}` }, ""},
		{"the longest attributes", func(p *Profile) { p.Attributes = `{"a":"` + long(2040) + `"}` }, ""},
		{"longer attributes", func(p *Profile) { p.Attributes = `{"a":"` + long(2041) + `"}` }, "attributes"},
		{"attributes that are a list", func(p *Profile) { p.Attributes = `[1]` }, "attributes"},
		{"attributes that are not canonical", func(p *Profile) { p.Attributes = `{"a": 1}` }, "attributes"},
		{"a revision a day ahead", func(p *Profile) { p.Revision = now.Add(MaxAhead).UnixMicro() }, ""},
		{"a later revision", func(p *Profile) { p.Revision = now.Add(MaxAhead).UnixMicro() + 1 }, "revision"},
		{"a negative revision", func(p *Profile) { p.Revision = -1 }, "revision"},
	} {
		p := Profile{User: "u"}
		tt.modify(&p)
		err := p.Check(now)
		var field *FieldError
		switch {
		case tt.field == "" && err != nil:
			t.Errorf("%s: error %v, want none", tt.name, err)
		case tt.field != "" && (!errors.As(err, &field) || field.Field != tt.field):
			t.Errorf("%s: error %v, want one about %s", tt.name, err, tt.field)
		}
	}
}
