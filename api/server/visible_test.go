package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// answers returns the text of all messages and of the error of a call.
func (h *harness) answers(key, method string, md protoreflect.MethodDescriptor, req proto.Message) string {
	ctx, cancel := context.WithTimeout(h.as(key), 20*time.Second)
	defer cancel()
	out, err := protoregistry.GlobalTypes.FindMessageByName(md.Output().FullName())
	if err != nil {
		h.t.Fatal(err)
	}
	var text strings.Builder
	stream, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method) // a unary call is a stream of one message
	if err == nil {
		err = stream.SendMsg(req)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for err == nil {
		m := out.New().Interface()
		if err = stream.RecvMsg(m); err == nil {
			text.WriteString(prototext.Format(m))
		}
		if doorOf(method).watch {
			return text.String()
		}
	}
	s := status.Convert(err)
	fmt.Fprintln(&text, s.Message(), s.Details())
	return text.String()
}

// filler is what fill writes into the fields of a request.
type filler struct {
	board, source string
	dryRun        bool
}

func (r filler) fill(m protoreflect.Message) {
	texts := map[protoreflect.Name]string{"board": r.board, "board_id": r.board, "user_id": "u", "user_ids": "u", "user": "u", "match_id": "m", "reason": "r", "season": "all"}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		text := texts[fd.Name()]
		switch {
		case fd.IsMap() || fd.Name() == "season" && m.Descriptor().Name() == "Result" || fd.Name() == "user_id" && m.Descriptor().Name() == "ListActsRequest":
		case fd.Name() == "source":
			if r.source != "" {
				m.Set(fd, protoreflect.ValueOfMessage((&pb.Board_Source{BoardId: r.source}).ProtoReflect()))
			}
		case fd.Name() == "from":
			m.Set(fd, protoreflect.ValueOfMessage(timestamppb.New(time.Unix(0, 0)).ProtoReflect()))
		case fd.Name() == "results" || fd.Name() == "bans":
			r.fill(m.Mutable(fd).List().AppendMutable().Message())
		case fd.Name() == "result" || fd.Name() == "board" && fd.Message() != nil:
			r.fill(m.Mutable(fd).Message())
		case fd.Message() != nil:
		case fd.Kind() == protoreflect.BoolKind:
			if r.dryRun && fd.Name() == "dry_run" || strings.HasPrefix(string(fd.Name()), "include_") || fd.Name() == "repair" {
				m.Set(fd, protoreflect.ValueOfBool(true))
			}
		case text != "" && fd.IsList():
			m.Mutable(fd).List().Append(protoreflect.ValueOfString(text))
		case text != "":
			m.Set(fd, protoreflect.ValueOfString(text))
		case fd.Name() == "points":
			m.Set(fd, protoreflect.ValueOfInt64(3))
		case fd.Name() == "title":
			m.Set(fd, protoreflect.ValueOfString("new title"))
		}
	}
}

// No answer of any method names a board that the caller's key does not allow. The same calls with a key
// for all boards show that there is something to hide.
func TestBoundKeysLearnNoOtherBoard(t *testing.T) {
	h := newHarness(t, Options{})
	for _, body := range []string{
		`{"board_id":"mine","policy":"SUM"}`, `{"board_id":"secret-source","policy":"SUM"}`, `{"board_id":"mine-alone","policy":"SUM","matches":true}`,
		`{"board_id":"mine-link","policy":"SUM","source":{"board_id":"secret-source"}}`, `{"board_id":"mine-too","policy":"SUM","source":{"board_id":"mine"}}`,
		`{"board_id":"secret-link","policy":"SUM","source":{"board_id":"mine"}}`,
	} {
		h.createBoard(body)
	}
	for _, board := range []string{"mine", "secret-source", "mine-alone"} {
		h.must("admin", "POST", "/v1/boards/"+board+"/scores", `{"user_id":"u","match_id":"m","points":1}`)
	}
	if err := h.service.FillLinked(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.must("admin", "PATCH", "/v1/boards/mine", `{"title":"t"}`)
	h.must("admin", "POST", "/v1/users/u:ban", `{"board":"secret-source"}`)
	h.newKey("bound", map[string]any{"scopes": []string{"admin"}, "board_prefixes": []string{"mine"}})
	hidden := map[string]bool{}
	call := func(method string, md protoreflect.MethodDescriptor, r filler) {
		typ, err := protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		req := typ.New()
		r.fill(req)
		if got := h.answers("bound", method, md, req.Interface()); strings.Contains(got, "secret") {
			t.Errorf("%s %+v: the answer to the bound key names another board: %s", md.Name(), r, got)
		}
		if strings.Contains(h.answers("admin", method, md, req.Interface()), "secret") {
			hidden[string(md.Name())] = true
		}
	}
	for name, request := range map[string]string{
		"/v1/boards/mine-link/scores": `{"user_id":"u","points":1}`, "/v1/boards": `{"board_id":"mine-x","source":{"board_id":"mine-link"}}`,
	} {
		if a := h.do("admin", "POST", name, request); !strings.Contains(a.raw, `its source instead: \"secret-source\"`) {
			t.Errorf("POST %s with a key for all boards: %d %s, want the source named", name, a.status, a.raw)
		}
		if a := h.do("bound", "POST", name, request); !strings.Contains(a.raw, "its source instead") {
			t.Errorf("POST %s with the bound key: %d %s, want the advice without the source", name, a.status, a.raw)
		}
	}
	for _, dryRun := range []bool{true, false} {
		for _, last := range []bool{false, true} {
			eachMethod(func(method string, md protoreflect.MethodDescriptor) {
				if deletes := md.Name() == "EraseUser" || md.Name() == "DeleteBoard"; deletes != last || deletes && dryRun {
					return
				}
				for _, board := range []string{"mine", "mine-link", "mine-too", "mine-alone"} {
					call(method, md, filler{board, "", dryRun})
					if md.Name() == "CreateBoard" {
						for _, source := range []string{"mine", "mine-link"} {
							call(method, md, filler{board, source, dryRun})
							call(method, md, filler{"mine-new-" + board, source, dryRun})
						}
					}
				}
			})
		}
	}
	want := []string{"BanUser", "BatchSubmitResults", "BatchSubmitScores", "CorrectResult", "CreateBoard", "DeleteBoard", "GetBoard", "ListActs", "ListBoards", "ListUserScores", "RetractResult", "SubmitScore", "UpdateBoard"}
	for _, name := range want {
		if !hidden[name] {
			t.Errorf("%s hides nothing: its answers to the key for all boards name no other board; methods that do: %q", name, slices.Sorted(maps.Keys(hidden)))
		}
	}
}
