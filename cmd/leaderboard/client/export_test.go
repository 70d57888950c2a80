package client

import "testing"

func TestDefuse(t *testing.T) {
	for field, want := range map[string]string{
		`=HYPERLINK("http://x")`: `'=HYPERLINK("http://x")`,
		"+cmd|' /C calc'!A0":     "'+cmd|' /C calc'!A0",
		"-2+3":                   "'-2+3",
		"@SUM(A1)":               "'@SUM(A1)",
		"\t=1":                   "'\t=1",
		"\r\n =1":                "'\r\n =1",
		"＝1":                     "'＝1",
		"-12":                    "-12",
		"-Inf":                   "'-Inf",
		"ada":                    "ada",
		"a=b":                    "a=b",
		"":                       "",
	} {
		if got := defuse(field); got != want {
			t.Errorf("defuse(%q) = %q, want %q", field, got, want)
		}
	}
}
