package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func printed(t *testing.T, d Document, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := &cobra.Command{Use: "c", SilenceErrors: true, SilenceUsage: true}
	o := (&App{Stdout: &out}).AddOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := o.Check(cmd); err != nil {
			return err
		}
		for range 2 {
			if err := o.Print(func() (Document, error) { return d, nil }, func() { out.WriteString("table\n") }); err != nil {
				return err
			}
		}
		return nil
	}
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

const hard = `{"z":1,"a":"no","list":[{"id":"=1+1","n":9007199254740993,"t":"x\u001b[2J\r\n\u202e","o":{"k":[1,true]}},{"id":"1:20","n":-5,"t":"a\nb: c","e":[]}],` +
	`"null":null,"empty":{},"float":0.1,"text":["true","007","","~","👩‍🚀","2026-11-20","- x","#","😀\u0000"]}`

func TestYAMLHasTheValuesOfJSON(t *testing.T) {
	out, err := printed(t, Document{JSON: []byte(hard)}, "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out, "\x1b\r\u202e\x00") {
		t.Errorf("the output has raw control characters:\n%q", out)
	}
	first, second, ok := strings.Cut(out, "---\n")
	if !ok || first != second {
		t.Errorf("two documents are printed as\n%s\nwant the same twice, separated by ---", out)
	}
	if !strings.HasPrefix(first, "z: 1\na: \"no\"\nlist:\n") {
		t.Errorf("the fields are not in the order of the JSON, or a text is not quoted:\n%s", first)
	}
	var got, want any
	if err := yaml.Unmarshal([]byte(first), &got); err != nil {
		t.Fatalf("%v in\n%s", err, first)
	}
	asJSON, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(asJSON, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(hard), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the YAML differs from the JSON (-want +got):\n%s\n%s", diff, first)
	}
	if !strings.Contains(first, ": 9007199254740993\n") {
		t.Errorf("a large number is not as in the JSON:\n%s", first)
	}
}

func TestCSVHasOneHeaderAndNoFormulas(t *testing.T) {
	out, err := printed(t, Document{JSON: []byte(hard), Rows: "list", Columns: []string{"id", "n", "t", "o", "o.k", "e", "missing"}}, "-o", "csv")
	if err != nil {
		t.Fatal(err)
	}
	got, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := [][]string{
		{"'=1+1", "9007199254740993", `x\x1b[2J\r\n\u202e`, `{"k":[1,true]}`, "[1,true]", "", ""},
		{"1:20", "-5", `a\nb: c`, "", "", "", ""},
	}
	want := [][]string{{"id", "n", "t", "o", "o.k", "e", "missing"}, rows[0], rows[1], rows[0], rows[1]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CSV (-want +got):\n%s", diff)
	}
	if out, err = printed(t, Document{JSON: []byte(hard), Columns: []string{"z", "a"}}, "-o", "csv"); err != nil || out != "z,a\n1,no\n1,no\n" {
		t.Errorf("the CSV of an object is %q, %v", out, err)
	}
}

func TestCSVOfAStream(t *testing.T) {
	d := Document{JSON: []byte(`{"as_of":"t","rows":[{"id":"a"},{"id":"b"}]}`), Rows: "rows", Columns: []string{"id"}, Stream: "as_of"}
	out, err := printed(t, d, "-o", "csv")
	if want := "change,as_of,id\n1,t,a\n1,t,b\n2,t,a\n2,t,b\n"; err != nil || out != want {
		t.Errorf("two documents are printed as %q, error %v; want %q", out, err, want)
	}
}

func TestJQ(t *testing.T) {
	for _, tt := range []struct{ expression, want string }{
		{".z", "1\n"},
		{".a", "no\n"},
		{".list[0].n", "9007199254740993\n"},
		{".list[].id", "=1+1\n1:20\n"},
		{".list[0].t", `x\x1b[2J\r\n\u202e` + "\n"},
		{".list[0] | [.t]", `["x\u001b[2J\r\n\u202e"]` + "\n"},
		{"[.list[].n] | @tsv", "9007199254740993\t-5\n"},
		{".null", "null\n"},
		{"empty", ""},
		{".z, halt, .a", "1\n"},
		{"$ENV | length", "0\n"},
	} {
		got, err := printed(t, Document{JSON: []byte(hard)}, "--jq", tt.expression)
		if err != nil || got != tt.want+tt.want {
			t.Errorf("--jq '%s' prints %q, %v; want %q twice", tt.expression, got, err, tt.want)
		}
	}
	if _, err := printed(t, Document{JSON: []byte(hard)}, "--jq", ".list.x"); err == nil || !strings.HasPrefix(err.Error(), "--jq: ") {
		t.Errorf("an expression that does not fit the data: %v, want an error that names --jq", err)
	}
}

func TestOutputFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string // of the output, or of the error
	}{
		{nil, "table\ntable\n"},
		{[]string{"-o", "table"}, "table\ntable\n"},
		{[]string{"--json"}, `{"z":1}` + "\n" + `{"z":1}` + "\n"},
		{[]string{"-o", "json", "--json"}, `{"z":1}` + "\n" + `{"z":1}` + "\n"},
		{[]string{"-o", "xml"}, `-o "xml" is not one of table, json, csv, yaml`},
		{[]string{"-o", "csv", "--json"}, "cannot be combined with -o csv"},
		{[]string{"-o", "yaml", "--jq", "."}, "cannot be combined with -o yaml"},
		{[]string{"--jq", ".["}, "is not a jq expression"},
		{[]string{"--jq", "nope"}, "is not a jq expression"},
		{[]string{"--jq", ""}, "is not a jq expression"},
	} {
		out, err := printed(t, Document{JSON: []byte(`{"z":1}`)}, tt.args...)
		if err != nil {
			out = err.Error()
		}
		if !strings.Contains(out, tt.want) {
			t.Errorf("%q: %q, want %q", tt.args, out, tt.want)
		}
	}
}
