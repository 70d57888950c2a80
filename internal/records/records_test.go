package records

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("one call follows another")

// readRows returns a text for each record: its line, and the values of columns or the record's
// error.
func readRows(t *testing.T, r Reader, columns ...string) []string {
	t.Helper()
	var rows []string
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			return append(rows, "broken: "+err.Error())
		}
		row := []string{fmt.Sprintf("%d line", rec.Line)}
		if rec.Err != nil {
			row = append(row, rec.Err.Error())
		} else {
			for _, name := range columns {
				c, ok := rec.Column(name)
				switch {
				case c.Err != nil:
					row = append(row, c.Err.Error())
				case c.Composite:
					row = append(row, "JSON "+c.Text)
				case !ok:
					row = append(row, "-")
				default:
					row = append(row, c.Text)
				}
			}
		}
		rows = append(rows, strings.Join(row, "|"))
	}
}

func TestCSVRecords(t *testing.T) {
	long := strings.Repeat("x", maxBytes+10)
	tests := []struct{ name, input, want string }{
		{"plain", "a,b\n1,2\n3,4\n", "2 line|1|2; 3 line|3|4"},
		{"no line end after the last line", "a,b\n1,2", "2 line|1|2"},
		{"CRLF", "a,b\r\n1,2\r\n3,4", "2 line|1|2; 3 line|3|4"},
		{"byte order mark", "\xef\xbb\xbfa,b\n1,2\n", "2 line|1|2"},
		{"quotes", "a,b\n\"x,y\",\"say \"\"hi\"\"\"\n", `2 line|x,y|say "hi"`},
		{"a line end in quotes", "a,b\n\"x\ny\",2\n3,4\n", "2 line|x\ny|2; 4 line|3|4"},
		{"blank lines", "a,b\n\n1,2\n\n\n3,4\n\n", "3 line|1|2; 6 line|3|4"},
		{"blank cells", "a,b\n,\n", "2 line|-|-"},
		{"a column that is absent", "a,c\n1,2\n", "2 line|1|-"},
		{"a column that occurs twice", "a,a\n1,2\n", "2 line|-|-"},
		{"too few and too many fields", "a,b\n1\n1,2,3\n4,5\n", "2 line|has 1 instead of 2 columns; 3 line|has 3 instead of 2 columns; 4 line|4|5"},
		{"bare quote", "a,b\nx\"y,2\n3,4\n", `2 line|is not CSV: bare " in non-quoted-field; 3 line|3|4`},
		{"text after a quote", "a,b\n\"x\"y,2\n3,4\n", `2 line|is not CSV: extraneous or missing " in quoted-field; 3 line|3|4`},
		{"a quote that is not closed", "a,b\n\"x,2\n3,4\n5,6\n", "2 line|opens a quote that is not closed; 3 line|3|4; 4 line|5|6"},
		{"a quote that is not closed in the last line", "a,b\n3,4\n\"x,2", "2 line|3|4; 3 line|is not CSV: extraneous or missing \" in quoted-field"},
		{"long line", "a,b\n" + long + ",2\n3,4\n", "2 line|is longer than 1048576 bytes; 3 line|3|4"},
		{"long last line", "a,b\n3,4\n" + long, "2 line|3|4; 3 line|is longer than 1048576 bytes"},
		{"long quoted field", "a,b\n\"x\n" + long + "\",2\n3,4\n", "2 line|opens a quote that is not closed; 3 line|is longer than 1048576 bytes; 4 line|3|4"},
		{"not UTF-8", "a,b\n\xff,2\n3,4\n", "2 line|is not valid UTF-8; 3 line|3|4"},
		{"zero byte", "a,b\n\x00,2\n", "2 line|\x00|2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := newCSVReader(strings.NewReader(tt.input), ',')
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, strings.Join(readRows(t, r, "a", "b"), "; ")); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
	for input, want := range map[string]string{
		"": "is empty", "\n\n": "is empty", "\xef\xbb\xbf": "is empty", "\"a\nb": "line 1", "\xff\n1\n": "not valid UTF-8", long: "longer",
	} {
		if _, err := newCSVReader(strings.NewReader(input), ','); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CSV of %.10q = %v, want an error that contains %q", input, err, want)
		}
	}
	r, err := newCSVReader(strings.NewReader("a;b\n1,5;\"x;y\"\n"), ';')
	if err != nil {
		t.Fatal(err)
	}
	if got := readRows(t, r, "a", "b"); !slices.Equal(got, []string{"2 line|1,5|x;y"}) {
		t.Errorf("CSV with the delimiter ; has the rows %q, want one row at line 2, with the values \"1,5\" and \"x;y\"", got)
	}
}

func TestJSONRecords(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"objects", `{"a":"x","b":1}` + "\r\n" + `{"b":true}`, "1 line|x|1; 2 line|-|true"},
		{"blank lines", "\n" + `{"a":"x"}` + "\n \n", "2 line|x|-"},
		{"byte order mark", "\xef\xbb\xbf" + `{"a":"x"}`, "1 line|x|-"},
		{"null and the empty text count as absent", `{"a":null,"b":""}`, "1 line|-|-"},
		{"numbers keep their text", `{"a":1e3,"b":12345678901234567890}`, "1 line|1e3|12345678901234567890"},
		{"lists and objects", `{"a":[1],"b":{"c":2}}`, `1 line|JSON [1]|JSON {"c":2}`},
		{"escapes", `{"a":"\u00e9\n","b":"\"\\"}`, "1 line|é\n|\"\\"},
		{"a lone surrogate", `{"a":"\ud800","b":"\ufffd"}`, "1 line|is not valid UTF-8|is not valid UTF-8"},
		{"a lone surrogate beside the replacement character", `{"a":"\ud800","b":"` + "\ufffd" + `"}`, "1 line|is not valid UTF-8|\ufffd"},
		{"the replacement character itself", `{"a":"` + "\ufffd" + `"}`, "1 line|\ufffd|-"},
		{"not an object", "1\n[]\nnull\nx\n" + `{"a":NaN}` + "\n" + `{"a":1} {"a":2}` + "\n" + `{"a":"x"}`,
			"1 line|is not a JSON object; 2 line|is not a JSON object; 3 line|is not a JSON object; 4 line|is not a JSON object; " +
				"5 line|is not a JSON object; 6 line|is not a JSON object; 7 line|x|-"},
		{"not UTF-8", "{\"a\":\"\xff\"}", "1 line|is not valid UTF-8"},
		{"long line", `{"a":"` + strings.Repeat("x", maxBytes) + `"}` + "\n" + `{"a":"x"}`, "1 line|is longer than 1048576 bytes; 2 line|x|-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := newJSONReader(strings.NewReader(tt.input))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, strings.Join(readRows(t, r, "a", "b"), "; ")); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
	r, err := newJSONReader(strings.NewReader(`{"race":{"id":7,"at":{"day":"x"}},"a.b":1,"a":{"b":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := readRows(t, r, "race.id", "race.at.day", "a.b", "race.none", "none.x"); !slices.Equal(got, []string{"1 line|7|x|1|-|-"}) {
		t.Errorf("the fields with dotted names are %q, want 7, x, 1 and two absent fields", got)
	}
}

func TestTruncatedInputIsBroken(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for range 10_000 {
		_, _ = io.WriteString(z, "{\"a\":\"x\"}\n")
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	truncated, err := Decompress(bytes.NewReader(zipped.Bytes()[:zipped.Len()-20]))
	if err != nil {
		t.Fatal(err)
	}
	r, err := newJSONReader(truncated)
	if err != nil {
		t.Fatal(err)
	}
	rows := readRows(t, r, "a")
	if last := rows[len(rows)-1]; !strings.HasPrefix(last, "broken: the input ends too early (unexpected EOF)") {
		t.Errorf("the last of %[2]d rows from a truncated gzip file is %[1]q, want a BrokenError", last, len(rows))
	}
	if _, err := Decompress(strings.NewReader("\xff\xfea\x00")); !errors.Is(err, errUTF16) {
		t.Errorf("Decompress of UTF-16 = %v, want errUTF16", err)
	}
	if _, err := Decompress(strings.NewReader("\x1f\x8bnonsense")); err == nil {
		t.Error("Decompress of the first two bytes of a gzip header and other text returned no error, want one")
	}
}

func TestDocumentRecords(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"pages", `{"success":true,"members":[{"a":"x","b":1},{"b":2}],"pages":{"members":[{"a":"no"}]}}` + "\n" + `{"members":[{"a":"y"}]}`, "1 line|x|1; 2 line|-|2; 3 line|y|-"},
		{"nested", "\xef\xbb\xbf" + `{"code":200,"data":{"list":[1,[{"a":"no"}]],"Rows":[{"a":"x"}]}}`, "1 line|x|-"},
		{"an array in an array is another one", `[{"members":[{"a":"x"}]}] {"members":[]}`, ""},
		{"a key as a value", `{"x":"members","y":[{"a":"no"}],"members":[{"a":"members"}]}`, "1 line|members|-"},
		{"records that are not objects", `{"members":[1,"x",[],null,{"a":"\ud800"},{"a":1}]}`,
			"1 line|is not a JSON object; 2 line|is not a JSON object; 3 line|is not a JSON object; 4 line|is not a JSON object; 5 line|is not valid UTF-8|-; 6 line|1|-"},
		{"not UTF-8", "{\"members\":[{\"a\":\"\xff\"},{\"a\":1}]}", "1 line|is not valid UTF-8; 2 line|1|-"},
		{"no array", `{"data":{"members":[]}}`, "broken: the input has no array at members or data.Rows"},
		{"empty", " ", "broken: the input has no array at members or data.Rows"},
		{"truncated", `{"members":[{"a":1},`, "1 line|1|-; broken: the input ends too early (unexpected EOF); it is damaged or incomplete: copy or download it again"},
		{"truncated record", `{"members":[{"a":`, "broken: the input ends too early (unexpected EOF); it is damaged or incomplete: copy or download it again"},
		{"truncated after the array", `{"members":[{"a":1}]`, "1 line|1|-; broken: the input ends too early (unexpected EOF); it is damaged or incomplete: copy or download it again"},
		{"not JSON", `{"members":[{"a":1},x]}`, "1 line|1|-; broken: the input is not JSON after record 2: invalid character 'x' looking for beginning of value"},
		{"a long record", `{"members":[{"a":1},{"a":"` + strings.Repeat("x", 2*maxBytes) + `"}]}`, "1 line|1|-; broken: record 2, or a value beside it, is longer than 1048576 bytes"},
		{"a long value", `{"x":"` + strings.Repeat("x", 2*maxBytes) + `","members":[]}`, "broken: record 0, or a value beside it, is longer than 1048576 bytes"},
		{"deep", strings.Repeat("[", 1000), "broken: the input has more than 100 values inside each other"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Open(strings.NewReader(tt.input), Options{Format: "json", Arrays: []string{"members", "data.Rows"}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, strings.Join(readRows(t, r, "a", "b"), "; ")); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDocument(f *testing.F) {
	for _, seed := range []string{`{"members":[{"a":1},{"a":{"b":[]}}]}`, `{"data":{"Rows":[{"a":"\ud800"}]}} {"members":[1,null]}`, "[[[", `{"members":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		r, err := newDocumentReader(bytes.NewReader(input), []string{"members", "data.Rows"})
		if err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		for n := int64(1); ; n++ {
			rec, err := r.Next()
			if err != nil {
				return
			}
			if rec.Line != n || r.Offset() <= last || r.Offset() > int64(len(input)) {
				t.Fatalf("record %d has the number %d and ends at offset %d, want an offset after %d and at most %d", n, rec.Line, r.Offset(), last, len(input))
			}
			last = r.Offset()
			if rec.Err != nil {
				continue
			}
			for _, name := range []string{"a", "a.b", ""} {
				if c, ok := rec.Column(name); ok && !utf8.ValidString(c.Text) {
					t.Fatalf("field %q of %q is %q, want valid UTF-8", name, rec.Raw, c.Text)
				}
			}
		}
	})
}

type repeatedLine struct {
	line     string
	position int
	n        int64
}

func (e *repeatedLine) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return 0, io.EOF
	}
	n := copy(p, e.line[e.position:])
	e.position = (e.position + n) % len(e.line)
	e.n -= int64(n)
	return n, nil
}

func TestReadersTakeConstantMemory(t *testing.T) {
	const size = 12 << 20
	for name, line := range map[string]string{
		"short rows": "ada,3,\"x\"\"y\"\n", "one line without an end": "no end ", "one quoted field without an end": "\"no end ", "rows with quotes that are not closed": "\"a\n" + strings.Repeat("b", 1000) + ",",
	} {
		r, err := newCSVReader(io.MultiReader(strings.NewReader("user_id,points,z\n"), &repeatedLine{line: line, n: size}), ',')
		if err != nil {
			t.Fatal(err)
		}
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		peak := uint64(0)
		for n := 0; ; n++ {
			if _, err := r.Next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if n%100_000 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc)
			}
		}
		if grown := int64(peak) - int64(before.HeapAlloc); grown > 8<<20 {
			t.Errorf("%s: reading %d MiB grew the heap by %d MiB, want at most 8 MiB", name, size>>20, grown>>20)
		}
	}
}

func FuzzCSV(f *testing.F) {
	for _, seed := range []string{"a,b\n1,2\n", "a\r\n\"x\ny\"\r\n", "\xef\xbb\xbfa\n\"\"\"\"\n", "a,b\n\"x,2\n3,4\n", "a\n\n\nb", "a;b\n1;2", "a,b\nx\"y,2\n\"z\"w,1\n"} {
		f.Add([]byte(seed), byte(','))
	}
	f.Fuzz(func(t *testing.T, input []byte, delimiter byte) {
		if delimiter == '"' || delimiter == '\n' || delimiter == '\r' || delimiter == 0 || delimiter >= utf8.RuneSelf {
			delimiter = ','
		}
		r, err := newCSVReader(bytes.NewReader(input), delimiter)
		if err != nil {
			return
		}
		std := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(input, byteOrderMark)))
		std.Comma, std.FieldsPerRecord = rune(delimiter), -1
		all, stdErr := std.ReadAll()
		valid := stdErr == nil && utf8.Valid(input)
		if valid && !slices.Equal(r.names, all[0]) {
			t.Fatalf("header %q, want %q", r.names, all[0])
		}
		lastLine, lastOffset, n := int64(0), int64(0), 1
		for {
			rec, err := r.readFields()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if rec.Line <= lastLine || r.Offset() <= lastOffset || r.Offset() > int64(len(input)) {
				t.Fatalf("the record at line %d ends at offset %d, want a line after %d, and an offset after %d and at most %d", rec.Line, r.Offset(), lastLine, lastOffset, len(input))
			}
			lastLine, lastOffset = rec.Line, r.Offset()
			if valid && (n >= len(all) || rec.Err != nil || !slices.Equal(rec.fields, all[n])) {
				t.Fatalf("record %d is %q, error %v; want the record with this index in the result of encoding/csv, %q", n, rec.fields, rec.Err, all)
			}
			n++
		}
		if valid && n != len(all) {
			t.Fatalf("%d records were read, with the header; want %d, as many as encoding/csv reads: %q", n, len(all), all)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, "{\"a\":\"x\"}\r\n\n{\"b\":[1]}", "\xef\xbb\xbf{}", `{"a":{"b":{"c":"\ud800"}}}`, "x\n[]\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		r, err := newJSONReader(bytes.NewReader(input))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range bytes.SplitSeq(bytes.TrimPrefix(input, byteOrderMark), []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				want = append(want, string(line))
			}
		}
		n := 0
		for ; ; n++ {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if n >= len(want) || string(rec.Raw) != want[n] {
				t.Fatalf("record %d is %q, want the line with this index in %q", n, rec.Raw, want)
			}
			if rec.Err != nil {
				continue
			}
			for _, name := range []string{"a", "b", "a.b", "a.b.c", ""} {
				if c, ok := rec.Column(name); ok && !utf8.ValidString(c.Text) {
					t.Fatalf("field %q of %q is %q, want valid UTF-8", name, rec.Raw, c.Text)
				}
			}
		}
		if n != len(want) {
			t.Fatalf("%d records were read, want one for each of %d lines", n, len(want))
		}
	})
}
