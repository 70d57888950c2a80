package server

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/open-leaderboard/leaderboard"
)

func TestEveryErrorHasACode(t *testing.T) {
	files, err := filepath.Glob("../../*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("found the files %v of the root package, error %v; want at least one file", files, err)
	}
	var declared []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		ast.Inspect(parse(t, file), func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for _, name := range spec.Names {
					if strings.HasPrefix(name.Name, "Err") {
						declared = append(declared, name.Name)
					}
				}
			}
			return true
		})
	}
	var listed []string
	ast.Inspect(parse(t, "errors.go"), func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "Err") {
			listed = append(listed, sel.Sel.Name)
		}
		return true
	})
	if len(declared) < 5 {
		t.Fatalf("the root package declares only %v, want at least 5 errors", declared)
	}
	for _, name := range declared {
		if !slices.Contains(listed, name) {
			t.Errorf("leaderboard.%s has no row in codeOf", name)
		}
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestReasonsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range codeOf {
		internal := row.code == codes.Internal || row.code == codes.Canceled
		if got := strings.Contains(string(doc), "`"+row.reason.String()+"`"); got == internal {
			t.Errorf("docs/api.md names the reason %s: %v, want %v", row.reason, got, !internal)
		}
	}
	if strings.Contains(string(doc), "SEASON_OPEN") {
		t.Error("docs/api.md names the reason SEASON_OPEN, which no call returns")
	}
}

// The caller receives an error's cause only if the error's row in codeOf is verbatim.
func TestCallersLearnNoCause(t *testing.T) {
	cause := errors.New("dial tcp 10.0.0.7:9042: password=hunter2")
	for _, row := range codeOf {
		err := toStatus(fmt.Errorf("pebble: get: %w: %w", row.err, cause))
		s := status.Convert(err)
		if s.Code() != row.code {
			t.Errorf("the code of %v is %v, want %v", row.err, s.Code(), row.code)
		}
		if !row.verbatim && strings.Contains(s.Message(), "hunter2") {
			t.Errorf("the text for %v is %q, want it without the cause", row.err, s.Message())
		}
		if strings.HasPrefix(s.Message(), "pebble:") {
			t.Errorf("the text for %v is %q, want it without the package's name", row.err, s.Message())
		}
	}
	if s := status.Convert(toStatus(cause)); s.Code() != codes.Internal || s.Message() != "internal error" {
		t.Errorf("the status of an unknown error is %v, want INTERNAL with the text \"internal error\"", s)
	}
	if toStatus(nil) != nil {
		t.Error("toStatus(nil) returns an error, want nil")
	}
}

func TestTimeoutsNameTheCause(t *testing.T) {
	got := status.Convert(toStatus(fmt.Errorf("cql: %w", context.DeadlineExceeded)))
	if want := "the call took longer than the server allows"; got.Code() != codes.DeadlineExceeded || got.Message() != want {
		t.Errorf("toStatus(DeadlineExceeded) = %v, want DEADLINE_EXCEEDED with %q", got, want)
	}
}

func TestFieldErrorsAreAllNamed(t *testing.T) {
	err := fmt.Errorf("outer: %w", errors.Join(
		&leaderboard.FieldError{Field: "a", Problem: "x"},
		fmt.Errorf("inner: %w", &leaderboard.FieldError{Field: "b", Problem: "y"}),
	))
	if got := messageOf(err); got != "a: x; b: y" {
		t.Errorf("the message is %q, want \"a: x; b: y\"", got)
	}
	stored := fmt.Errorf("pebble: %w: %w", leaderboard.ErrFormat, &leaderboard.FieldError{Field: "a", Problem: "x"})
	if got := status.Code(toStatus(stored)); got != codes.Internal {
		t.Errorf("an error about stored bytes has the code %v, want Internal", got)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<14)
	var errs []error
	for i := range 1000 {
		errs = append(errs, &leaderboard.FieldError{Field: fmt.Sprintf("f%d", i), Problem: long})
	}
	for _, err := range []error{errors.Join(errs...), errs[0], fmt.Errorf("season %s: %w", long, leaderboard.ErrSeasonNotFound)} {
		p := status.Convert(toStatus(err)).Proto()
		if size := proto.Size(p); size > 64<<10 {
			t.Errorf("the status of %.20s… has %d bytes, want at most 64 KiB", err, size)
		}
	}
	if got := messageOf(errors.Join(errs...)); !strings.HasSuffix(got, "; and 980 more") {
		t.Errorf("the message ends with %q, want \"; and 980 more\"", got[len(got)-40:])
	}
}
