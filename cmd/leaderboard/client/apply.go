package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

const maxBoardBytes = 1 << 20 // of a file of boards

// ErrBoardsDiffer is the error of "board diff" if a board differs from its file.
var ErrBoardsDiffer = errors.New("the boards of the server differ from the files")

const boardFilesHelp = `A file has one board, as "leaderboard board show -o yaml" prints it, several YAML documents,
or a list of boards, as "leaderboard board list -o yaml" prints it. Of a folder, the command
reads the files that end in .yaml, .yml or .json. Fields that a file omits are not
compared and not changed; fields that only the server sets, such as created_at, are
ignored. An unknown field is an error.`

func boardApplyCommand(app *cli.App) *cobra.Command {
	var files []string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Create and change boards, as files describe them", Args: cli.Exactly(),
		Long: `Create the boards that do not exist, and change the settings of existing boards that differ
from the files. The command first prints what it will change. If a file would change a
rule that cannot change, such as the policy, the command changes nothing. Boards without
a file stay as they are.

` + boardFilesHelp,
		Example: `  leaderboard board apply -f boards/ --dry-run
  leaderboard board apply -f boards/
  leaderboard board show arena -o yaml > boards/arena.yaml`,
	}
	addBoardFiles(cmd, &files)
	addDryRun(cmd.Flags(), &dryRun)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		plans, err := c.planBoards(ctx, files)
		if err != nil {
			return err
		}
		if err := c.printPlans(plans); err != nil {
			return err
		}
		if err := fixedRules(plans); err != nil {
			return err
		}
		if err := c.applyPlans(ctx, plans, dryRun); err != nil || !c.Output.IsTable() {
			return err
		}
		counts := map[boardAction]int{}
		for _, p := range plans {
			counts[p.Action]++
		}
		c.Printf("%s%d created, %d updated, %d unchanged\n", map[bool]string{true: "dry run, nothing changed: "}[dryRun], counts[actionCreate], counts[actionUpdate], counts[actionNone])
		return nil
	})
}

func boardDiffCommand(app *cli.App) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use: "diff -f FILE", Short: "Compare boards with files", Args: cli.Exactly(),
		Long: `Compare the boards of the server with files. The exit code is 0 if they agree, 2 if they
differ, and 1 after any error, also of the command line.

` + boardFilesHelp,
		Example: `  leaderboard board diff -f boards/
  git show HEAD~1:boards/arena.yaml | leaderboard board diff -f -`,
		Annotations: map[string]string{UsageIsFailure: ""},
	}
	addBoardFiles(cmd, &files)
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, _ []string) error {
		plans, err := c.planBoards(ctx, files)
		if err != nil {
			return err
		}
		if err := c.printPlans(plans); err != nil {
			return err
		}
		if slices.ContainsFunc(plans, func(p *boardPlan) bool { return p.Action != actionNone }) {
			return fmt.Errorf("%w; `leaderboard board apply` changes the boards", ErrBoardsDiffer)
		}
		return nil
	})
}

// UsageIsFailure is an annotation of commands for which the exit code 2 does not mean wrong usage.
const UsageIsFailure = "usage is failure"

func addBoardFiles(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, "`file` or folder of boards as YAML or JSON; - is standard input; repeat the flag for more (required)")
}

type boardAction string

const (
	actionCreate boardAction = "create"
	actionUpdate boardAction = "update"
	actionNone   boardAction = "none"
)

// boardPlan is what differs between a board in a file and the same board of the server.
type boardPlan struct {
	Board   string        `json:"board"`
	Action  boardAction   `json:"action"`
	Changes []fieldChange `json:"changes"`

	wanted *pb.Board
}

type fieldChange struct {
	Field string `json:"field"`
	Now   any    `json:"now"` // null if the field is not set
	File  any    `json:"file"`
}

// boardFile is a board as a file describes it. paths are the fields in the file.
type boardFile struct {
	name  string
	board *pb.Board
	paths []string
}

func (c *Client) planBoards(ctx context.Context, names []string) ([]*boardPlan, error) {
	if len(names) == 0 {
		return nil, cli.Usagef("-f is missing; give a file or a folder of boards")
	}
	files, err := c.readBoardFiles(names)
	if err != nil {
		return nil, err
	}
	return c.planFiles(ctx, files)
}

// ApplyBoards creates the boards that do not exist, the sources of linked boards first, and changes the settings of boards
// that differ. If a rule that cannot change differs, it returns an error and changes nothing.
func (c *Client) ApplyBoards(ctx context.Context, boards []*pb.Board) error {
	files := make([]boardFile, len(boards))
	for i, b := range boards {
		fields, err := fieldsOf(b)
		if err == nil {
			files[i], err = boardOf("the archive", fields)
		}
		if err != nil {
			return err
		}
	}
	plans, err := c.planFiles(ctx, files)
	if err == nil {
		err = fixedRules(plans)
	}
	if err != nil {
		return err
	}
	return c.applyPlans(ctx, plans, false)
}

func (c *Client) planFiles(ctx context.Context, files []boardFile) ([]*boardPlan, error) {
	plans := make([]*boardPlan, 0, len(files))
	for _, f := range files {
		plan := &boardPlan{Board: f.board.GetBoardId(), Action: actionCreate, Changes: []fieldChange{}, wanted: f.board}
		plans = append(plans, plan)
		res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: f.board.GetBoardId()})
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if plan.Changes, err = changes(res.GetBoard(), f); err != nil {
			return nil, err
		}
		if plan.Action = actionNone; len(plan.Changes) > 0 {
			plan.Action = actionUpdate
		}
	}
	return plans, nil
}

func changes(now *pb.Board, f boardFile) ([]fieldChange, error) {
	list := []fieldChange{}
	before, err := fieldsOf(now)
	if err != nil {
		return nil, err
	}
	after, err := fieldsOf(f.board)
	if err != nil {
		return nil, err
	}
	for _, path := range f.paths {
		x, y := fieldAt(before, path), fieldAt(after, path)
		if !reflect.DeepEqual(x, y) {
			list = append(list, fieldChange{path, x, y})
		}
	}
	return list, nil
}

func fieldsOf(m proto.Message) (fields map[string]any, err error) {
	text, err := restjson.Append(nil, m)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	return fields, err
}

func fieldAt(fields map[string]any, path string) any {
	group, name, nested := strings.Cut(path, ".")
	if nested {
		inner, _ := fields[group].(map[string]any)
		return inner[name]
	}
	return fields[group]
}

func (c *Client) readBoardFiles(names []string) ([]boardFile, error) {
	var files []boardFile
	for _, name := range names {
		paths := []string{name}
		if info, err := os.Stat(name); name != "-" && err == nil && info.IsDir() {
			if paths, err = boardPaths(name); err != nil {
				return nil, err
			}
		}
		for _, path := range paths {
			data, err := readAll(c.App, path, maxBoardBytes)
			if err != nil {
				return nil, err
			}
			boards, err := decodeBoards(path, data)
			if err != nil {
				return nil, err
			}
			files = append(files, boards...)
		}
	}
	places := map[string]string{}
	for _, f := range files {
		id := f.board.GetBoardId()
		if other, ok := places[id]; ok {
			return nil, fmt.Errorf("%s and %s describe the same board, %s; remove one of them", other, f.name, id)
		}
		places[id] = f.name
	}
	return files, nil
}

func boardPaths(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name()))) {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("the folder %s has no file that ends in .yaml, .yml or .json", folder)
	}
	return paths, nil
}

// decodeBoards reads YAML documents, which may be JSON.
func decodeBoards(name string, data []byte) ([]boardFile, error) {
	var files []boardFile
	for d, n := yaml.NewDecoder(bytes.NewReader(data)), 1; ; n++ {
		place := name
		if n > 1 {
			place = fmt.Sprintf("%s, document %d", name, n)
		}
		var fields map[string]any
		err := d.Decode(&fields)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		list := []any{fields}
		if boards, ok := fields["boards"].([]any); ok && len(fields) == 1 {
			list = boards
		}
		for _, v := range list {
			f, err := boardOf(place, v)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s describes no board", name)
	}
	return files, nil
}

func boardOf(place string, v any) (boardFile, error) {
	fields, ok := v.(map[string]any)
	if !ok || len(fields) == 0 {
		return boardFile{}, fmt.Errorf("%s does not describe a board; `leaderboard board show BOARD -o yaml` prints an example", place)
	}
	id, ok := fields["board_id"].(string)
	if !ok || id == "" {
		return boardFile{}, fmt.Errorf("%s: board_id is missing, or is not a text", place)
	}
	b, paths, err := boardFrom(fields)
	if err != nil {
		return boardFile{}, fmt.Errorf("%s: board %s: %w", place, id, err)
	}
	names := b.ProtoReflect().Descriptor().Fields()
	paths = slices.DeleteFunc(paths, func(path string) bool {
		fd := names.ByName(protoreflect.Name(path))
		return path == "board_id" || fd != nil && isOutputOnly(fd)
	})
	slices.Sort(paths)
	ClearOutputOnly(b)
	return boardFile{place, b, paths}, nil
}

func (c *Client) printPlans(plans []*boardPlan) error {
	return c.Output.PrintValue(plans, func() {
		t := cli.NewTable(cli.Row{"board", "action", "field", "now", "file"})
		for _, p := range plans {
			if len(p.Changes) == 0 {
				t.AppendRow(cli.Row{p.Board, string(p.Action), "", "", ""})
			}
			for i, change := range p.Changes {
				board, action := p.Board, string(p.Action)
				if i > 0 {
					board, action = "", ""
				}
				t.AppendRow(cli.Row{board, action, change.Field, fieldText(change.Now), fieldText(change.File)})
			}
		}
		cli.WriteTable(c.Stdout, t)
	})
}

func fieldText(v any) string {
	if v == nil {
		return "not set"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "unreadable"
	}
	return string(text)
}

// fixedRules returns an error if a plan would change a rule that cannot change.
func fixedRules(plans []*boardPlan) error {
	var errs []error
	for _, p := range plans {
		for _, change := range p.Changes {
			if p.Action == actionUpdate && !mutable[change.Field] {
				errs = append(errs, fmt.Errorf("board %s: %s cannot change from %s to %s", p.Board, change.Field, fieldText(change.Now), fieldText(change.File)))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w\nnothing was changed; correct the files, or create boards with other ids", errors.Join(errs...))
}

// applyPlans creates the source of a linked board before the linked board.
func (c *Client) applyPlans(ctx context.Context, plans []*boardPlan, dryRun bool) error {
	pending := map[string]bool{}
	for _, p := range plans {
		pending[p.Board] = p.Action == actionCreate
	}
	for ordered := slices.Clone(plans); len(ordered) > 0; {
		i := slices.IndexFunc(ordered, func(p *boardPlan) bool { return !pending[p.wanted.GetSource().GetBoardId()] })
		p := ordered[max(i, 0)]
		ordered = slices.DeleteFunc(ordered, func(q *boardPlan) bool { return p == q })
		if err := c.applyPlan(ctx, p, dryRun); err != nil {
			return fmt.Errorf("board %s: %s", p.Board, ErrorText(c.WrapError(err)))
		}
		pending[p.Board] = false
	}
	return nil
}

func (c *Client) applyPlan(ctx context.Context, p *boardPlan, dryRun bool) error {
	switch {
	case p.Action == actionCreate && !dryRun:
		_, err := c.Scores.CreateBoard(ctx, &pb.CreateBoardRequest{Board: p.wanted})
		return err
	case p.Action == actionUpdate:
		mask := make([]string, len(p.Changes))
		for i, change := range p.Changes {
			mask[i] = change.Field
		}
		res, err := c.Scores.UpdateBoard(ctx, &pb.UpdateBoardRequest{Board: p.wanted, UpdateMask: &fieldmaskpb.FieldMask{Paths: mask}, DryRun: dryRun})
		if n := res.GetBoard().GetEffect().GetRemovedCount(); err == nil && n > 0 {
			c.Notef("board %s: the next sweep would delete %s\n", p.Board, cli.Plural(n, "season", "seasons"))
		}
		return err
	}
	return nil
}

func boardCloneCommand(app *cli.App) *cobra.Command {
	var title string
	cmd := &cobra.Command{
		Use: "clone BOARD NEW", Short: "Create a board with the rules of another board", Args: cli.Exactly("BOARD", "NEW"),
		Long: `Create the board NEW with the rules and settings of BOARD. Results are not copied;
"leaderboard export results" and "leaderboard import" copy them.`,
		Example: `  leaderboard board clone arena arena-test
  leaderboard board clone cup cup-2027 --title "Cup 2027"`,
	}
	cmd.Flags().StringVar(&title, "title", "", "`title` of the new board (if omitted, the title of BOARD)")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		res, err := c.Scores.GetBoard(ctx, &pb.GetBoardRequest{Board: args[0]})
		if err != nil {
			return err
		}
		b := res.GetBoard()
		ClearOutputOnly(b)
		b.BoardId, b.Title = args[1], cmp.Or(title, b.GetTitle())
		created, err := c.Scores.CreateBoard(ctx, &pb.CreateBoardRequest{Board: b})
		if err != nil {
			return err
		}
		return c.print(created.GetBoard(), func() { writeBoard(c.Stdout, created.GetBoard()) })
	})
}

func isOutputOnly(fd protoreflect.FieldDescriptor) bool {
	limits, _ := proto.GetExtension(fd.Options(), pb.E_Limits).(*pb.Limits)
	return limits.GetOutputOnly()
}

// ClearOutputOnly clears the fields that only the server sets.
func ClearOutputOnly(b *pb.Board) {
	m := b.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); isOutputOnly(fd) {
			m.Clear(fd)
		}
	}
}
