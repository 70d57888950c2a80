package web

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pluralForms has the plural categories of each language for cardinal numbers, after CLDR 46.
var pluralForms = map[string][]string{
	"en": {"one", "other"}, "de": {"one", "other"}, "es": {"many", "one", "other"}, "pt": {"many", "one", "other"}, "zh": {"other"},
	"ja": {"other"}, "ar": {"few", "many", "one", "other", "two", "zero"}, "fa": {"one", "other"},
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// placeholders returns the names in a text, without n: a plural form may spell the number out.
func placeholders(text string) []string {
	var names []string
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if m[1] != "n" {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return names
}

func readTexts(t *testing.T, name string) map[string]any {
	t.Helper()
	data, err := dist.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var texts map[string]any
	if err := json.Unmarshal(data, &texts); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return texts
}

func TestEveryLanguageHasEveryText(t *testing.T) {
	for _, folder := range []string{"dist/text", "dist/text/admin"} {
		testTexts(t, folder)
	}
}

func testTexts(t *testing.T, folder string) {
	names, err := fs.Glob(dist, folder+"/*.json")
	if err != nil || len(names) != len(pluralForms) {
		t.Fatalf("the languages are %q, error %v; want those of %v", names, err, slices.Sorted(maps.Keys(pluralForms)))
	}
	english := readTexts(t, folder+"/en.json")
	keys := slices.Sorted(maps.Keys(english))
	for _, name := range names {
		language, texts := strings.TrimSuffix(path.Base(name), ".json"), readTexts(t, name)
		if got := slices.Sorted(maps.Keys(texts)); !slices.Equal(got, keys) {
			t.Errorf("%s has the keys %q, want those of English: %q", name, got, keys)
		}
		for key, text := range texts {
			forms, plural := text.(map[string]any)
			if !plural {
				forms = map[string]any{"": text}
			} else if got := slices.Sorted(maps.Keys(forms)); !slices.Equal(got, pluralForms[language]) {
				t.Errorf("%s: %s has the plural forms %q, want %q", name, key, got, pluralForms[language])
			}
			want, _ := english[key].(string)
			if englishForms, ok := english[key].(map[string]any); ok != plural {
				t.Errorf("%s: %s has plural forms: %v; in English: %v", name, key, plural, ok)
			} else if ok {
				want, _ = englishForms["other"].(string)
			}
			for _, form := range forms {
				if got, _ := form.(string); got == "" || !slices.Equal(placeholders(got), placeholders(want)) {
					t.Errorf("%s: %s is %q, want a text with the names of %q", name, key, got, want)
				}
			}
		}
	}
}

// The budgets are those of the first view of the page, and of the element for other sites.
func TestScriptsAreSmall(t *testing.T) {
	first := size(t, "/{$}", "/web/page.js", "/web/page.css", "/web/icon.svg", "/web/text/fa.json")
	admin := size(t, "/admin", "/web/admin.js", "/web/page.css", "/web/icon.svg", "/web/text/fa.json", "/web/text/admin/fa.json")
	if embed := size(t, "/embed.js"); first > 60<<10 || admin > 60<<10 || embed > 40<<10 {
		t.Errorf("the first view has %d bytes, that of /admin %d and embed.js %d, want at most 60 KiB, 60 KiB and 40 KiB", first, admin, embed)
	} else {
		t.Logf("the first view has %d bytes, that of /admin %d, embed.js %d", first, admin, embed)
	}
}

// size returns the number of compressed bytes of files.
func size(t *testing.T, names ...string) (n int) {
	t.Helper()
	for _, name := range names {
		f := files()[name]
		if len(f.compressed) == 0 {
			t.Fatalf("%s is missing", name)
		}
		n += len(f.compressed)
	}
	return n
}
