package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// Formats are the values of the flag --output.
var Formats = []string{"table", "json", "csv", "yaml"}

// Output prints the data of a command in the format that the user chose with --output, --json and
// --jq. Commands must print data through it only.
type Output struct {
	app        *App
	format     string
	json       bool
	expression string
	query      *gojq.Code
	ctx        context.Context // ends an expression that does not end
	documents  int             // printed so far
}

// Document is the data of a command, as JSON, and the part of it that CSV shows.
type Document struct {
	JSON []byte
	// Rows is the path of the object or list in JSON that CSV shows, such as data.leaderboard. If it
	// is empty, CSV shows the whole document.
	Rows string
	// Columns are the paths of the values in a row.
	Columns []string
	// Stream is the path of a value that differs between the documents of a stream, or empty. Each row of
	// CSV then begins with the number of the document, from 1, in the column change, and this value.
	Stream string
}

// AddOutput adds the flags of an [Output] to cmd. The caller must call [Output.Check] before it reads
// the data.
func (a *App) AddOutput(cmd *cobra.Command) *Output {
	o := &Output{app: a, format: "table"}
	f := cmd.Flags()
	f.StringVarP(&o.format, "output", "o", o.format, "`format`: table, json, csv or yaml")
	f.BoolVar(&o.json, "json", false, "print JSON, for scripts: the same as -o json")
	f.StringVar(&o.expression, "jq", "", "print what this jq `expression` selects from the JSON, a line each and texts without quotes, such as '.boards[].board_id'")
	Enum(f, "output", Formats...)
	return o
}

// Check returns a [UsageError] if the flags contradict each other, or the expression is invalid.
func (o *Output) Check(cmd *cobra.Command) error {
	f := cmd.Flags()
	o.ctx = cmd.Context()
	if !slices.Contains(Formats, o.format) {
		return Usagef("-o %q is not one of %s", o.format, strings.Join(Formats, ", "))
	}
	if o.json || f.Changed("jq") {
		if f.Changed("output") && o.format != "json" {
			return Usagef("--json and --jq print JSON, so they cannot be combined with -o %s", o.format)
		}
		o.format = "json"
	}
	if !f.Changed("jq") {
		return nil
	}
	parsed, err := gojq.Parse(o.expression)
	if err == nil {
		o.query, err = gojq.Compile(parsed)
	}
	if err != nil {
		return Usagef("--jq %.80q is not a jq expression: %v; an example is --jq '.data.leaderboard[].user_id'", o.expression, err)
	}
	return nil
}

// IsTable reports whether the output is for people. The output nil is.
func (o *Output) IsTable() bool { return o == nil || o.format == "table" }

// Print calls table if the output is for people. Otherwise, it prints the document.
func (o *Output) Print(document func() (Document, error), table func()) error {
	if o.IsTable() {
		table()
		return nil
	}
	d, err := document()
	if err != nil {
		return err
	}
	o.documents++
	switch {
	case o.query != nil:
		return o.printQuery(d.JSON)
	case o.format == "csv":
		return o.printCSV(d)
	case o.format == "yaml":
		return o.printYAML(d.JSON)
	}
	return o.app.WriteJSON(d.JSON)
}

// PrintValue is like Print for a struct, or a slice of structs. Their fields must have JSON names.
func (o *Output) PrintValue(v any, table func()) error {
	return o.Print(func() (Document, error) {
		text, err := json.Marshal(v)
		t := reflect.TypeOf(v)
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		var columns []string
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			columns = append(columns, name)
		}
		return Document{JSON: text, Columns: columns}, err
	}, table)
}

func (o *Output) printQuery(text []byte) error {
	input, err := decode(text)
	if err != nil {
		return err
	}
	for results := o.query.RunWithContext(o.ctx, input); ; {
		v, ok := results.Next()
		if !ok {
			return nil
		}
		switch v := v.(type) {
		case error:
			var halt *gojq.HaltError
			if errors.As(v, &halt) && halt.Value() == nil {
				return nil
			}
			return fmt.Errorf("--jq: %w", v)
		case string:
			// Expressions such as @tsv make tabs.
			fmt.Fprintln(o.app.Stdout, escape(v, "\t", goEscape))
		default:
			line, err := gojq.Marshal(v)
			if err != nil {
				return err
			}
			if err := o.app.WriteJSON(line); err != nil {
				return err
			}
		}
	}
}

// decode keeps numbers as they are written.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func (o *Output) printCSV(d Document) error {
	document, err := decode(d.JSON)
	if err != nil {
		return err
	}
	rows, ok := valueAt(document, d.Rows).([]any)
	if !ok {
		rows = []any{valueAt(document, d.Rows)}
	}
	w := csv.NewWriter(o.app.Stdout)
	var header, first []string
	if d.Stream != "" {
		header, first = []string{"change", d.Stream}, []string{strconv.Itoa(o.documents), Escape(csvText(valueAt(document, d.Stream)))}
	}
	if o.documents == 1 {
		_ = w.Write(append(header, d.Columns...)) // Flush reports the error
	}
	for _, row := range rows {
		fields := slices.Clone(first)
		for _, column := range d.Columns {
			fields = append(fields, Escape(Defuse(csvText(valueAt(row, column)))))
		}
		_ = w.Write(fields)
	}
	w.Flush()
	return w.Error()
}

// valueAt returns the value at a path such as data.leaderboard, or nil.
func valueAt(v any, path string) any {
	if path == "" {
		return v
	}
	for name := range strings.SplitSeq(path, ".") {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

func csvText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		if len(v) == 0 {
			return ""
		}
	case map[string]any:
	default:
		return fmt.Sprint(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(EscapeJSON(text))
}

func (o *Output) printYAML(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if o.documents > 1 {
		b.WriteString("---\n")
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(node), e.Close()); err != nil {
		return err
	}
	// What is not harmless is in double quotes: see yamlText.
	_, err = io.WriteString(o.app.Stdout, escape(b.String(), "\n", func(r rune, _ string) string { return fmt.Sprintf(`\U%08x`, r) }))
	return err
}

// yamlNode reads a JSON value. It keeps the order of fields.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.MappingNode}
		if token == '[' {
			node.Kind = yaml.SequenceNode
		}
		for d.More() {
			child, err := yamlNode(d) // keys are values too
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := d.Token()
		return node, err
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}, nil
	case string:
		return yamlText(token)
	}
	node := &yaml.Node{}
	return node, node.Encode(token)
}

func yamlText(text string) (*yaml.Node, error) {
	node := &yaml.Node{}
	if err := node.Encode(text); err != nil {
		return nil, err
	}
	if Escape(text) != text {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node, nil
}
