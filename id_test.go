package leaderboard

import (
	"strings"
	"testing"
)

// The oracle is the writing of real languages, and the emoji of keyboards.
func TestIDsAreNamesOfRealPeopleAndThings(t *testing.T) {
	const england = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
	for name, id := range map[string]string{
		"Persian": "می\u200cخواهم",
		"Persian, a non-joiner after a vowel sign": "خانهِ\u200cها",
		"Kurdish":                                   "دل\u200cخۆش",
		"Mongolian, two letters that join":          "\u1820\u200c\u1821",
		"Hindi, a joiner after a virama":            "क्\u200dष",
		"Hindi, a non-joiner after a virama":        "क्\u200cष",
		"Sinhala":                                   "ශ්\u200dරී ලංකා",
		"Malayalam, an old chillu at the end":       "അവന്\u200d",
		"Bengali":                                   "র্\u200dযাব",
		"a technologist":                            "👨\u200d💻",
		"a technologist with a skin tone":           "👩🏽\u200d💻",
		"a family":                                  "👨\u200d👩\u200d👧\u200d👦",
		"a flag of two emoji":                       "🏳\ufe0f\u200d🌈",
		"the same without the variation selector":   "🏳\u200d🌈",
		"a couple with a heart":                     "👩\u200d❤\ufe0f\u200d💋\u200d👨",
		"a brown mushroom":                          "🍄\u200d🟫",
		"a name with an emoji inside":               "Zoë 👩\u200d🚀 7",
		"England":                                   england,
		"two flags with tags, and text around them": "a" + england + england + "b",
		"a keycap":                                  "1\ufe0f\u20e3",
		"a decomposed letter":                       "e\u0301",
		"Japanese":                                  "山田 太郎",
		"a name that has lost a letter":             "M\ufffdller",
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{UserID(id).ValidateNew(), BoardID(id).Validate(), MatchID(id).ValidateNew(), checkID("attributes.x", id), SeasonID(id).validate("id")} {
				if err != nil {
					t.Errorf("%q is not valid: %v", id, err)
				}
			}
		})
	}
}

func TestIDsRefuseInvisibleDifferences(t *testing.T) {
	for name, tt := range map[string]struct{ id, want string }{
		"a joiner between Latin letters":             {"a\u200db", "zero-width joiner (U+200D) at byte 1"},
		"a non-joiner between Latin letters":         {"a\u200cb", "zero-width non-joiner (U+200C) at byte 1"},
		"a joiner at the start":                      {"\u200d💻", "zero-width joiner (U+200D) at byte 0"},
		"a joiner after the last emoji":              {"👨\u200d", "zero-width joiner (U+200D) at byte 4"},
		"a joiner between an emoji and a letter":     {"👨\u200da", "zero-width joiner"},
		"two joiners":                                {"👨\u200d\u200d💻", "zero-width joiner"},
		"a joiner after a skin tone without emoji":   {"a🏽\u200d💻", "zero-width joiner"},
		"a joiner between digits":                    {"1\u200d2", "zero-width joiner"},
		"a joiner between Arabic letters":            {"ب\u200dب", "zero-width joiner"},
		"a non-joiner after a letter without a join": {"دا\u200cها", "zero-width non-joiner"},
		"a non-joiner after the last letter":         {"می\u200c", "zero-width non-joiner"},
		"tags of no flag":                            {"\U0001f3f4\U000e0061\U000e007f", "unprintable character (U+E0061)"},
		"tags without the black flag":                {"a\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "unprintable"},
		"tags of a flag without their end":           {"\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067", "unprintable"},
		"a no-break space":                           {"a\u00a0b", "a no-break space (U+00A0) at byte 1; the only space that is allowed is U+0020"},
		"an ideographic space":                       {"山田\u3000太郎", "an ideographic space (U+3000) at byte 6"},
		"a narrow no-break space":                    {"a\u202fb", "a narrow no-break space (U+202F)"},
		"another space":                              {"a\u2003b", "a space of Unicode (U+2003)"},
		"a combining mark alone":                     {"\u0300", "no visible character"},
		"combining marks and spaces":                 {" \u0300\u20dd", "no visible character"},
		"an object replacement character":            {"\ufffc", "no visible character"},
		"a replacement character":                    {"\ufffd", "no visible character"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := UserID(tt.id).ValidateNew(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ValidateNew(%q) = %v, want an error that contains %q", tt.id, err, tt.want)
			}
		})
	}
}

func TestDisplayTextIsFreerThanIDs(t *testing.T) {
	for text, ok := range map[string]bool{
		"山田\u3000杯": true, "1\u00a0000 €": true, "a\u200db": true, "\u05d0\u200e 7": true, "": true, "\u00adx": true,
		"a\nb": false, "a\tb": false, "a\x1b[2J": false, "a\u202eb": false, "\u2066a": false, "a\u2028b": false, "a\xff": false, strings.Repeat("é", 20): false,
	} {
		b := Board{ID: "b", Unit: text}
		if err := b.Validate(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "unit:") {
			t.Errorf("Validate() with the unit %q = %v; want an error: %v", text, err, !ok)
		}
	}
}
