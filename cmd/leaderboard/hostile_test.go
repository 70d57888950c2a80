package main

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// hostileText has control characters that change a terminal's title, clear its screen, begin a new
// line and reverse text.
const hostileText = "x\x1b]0;owned\x07\x1b[2J\r\nforged: 0 differences\u202e\u2066\u009b31m\x7f\u2028"

type hostileServer struct {
	flags bool  // value of every field of type bool
	err   error // if not nil, every call fails with it
}

func (h *hostileServer) start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(h.handle))
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func (h *hostileServer) handle(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	service, method, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return err
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
	req := dynamicpb.NewMessage(m.Input())
	if err := stream.RecvMsg(req); err != nil {
		return err
	}
	if h.err != nil {
		return h.err
	}
	token := m.Input().Fields().ByName("page_token")
	lastPage := token != nil && req.Get(token).String() != ""
	// A stream has four messages, so that each member of a oneof is in one of them.
	for choice := range 4 {
		res := dynamicpb.NewMessage(m.Output())
		h.fill(res, choice, 0)
		if next := m.Output().Fields().ByName("next_page_token"); next != nil && lastPage {
			res.Clear(next)
		}
		clearTokens(res, lastPage)
		if err := stream.SendMsg(res); err != nil || !m.IsStreamingServer() {
			return err
		}
	}
	return status.Error(codes.Internal, hostileText)
}

// clearTokens clears each next_page_token in m if last is true.
func clearTokens(m protoreflect.Message, last bool) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if last && fd.Name() == "next_page_token" {
			m.Clear(fd)
		} else if fd.Message() != nil && !fd.IsList() && !fd.IsMap() {
			clearTokens(v.Message(), last)
		}
		return true
	})
}

// fill sets every field of m to a depth of six. choice selects the member of each oneof.
func (h *hostileServer) fill(m protoreflect.Message, choice, depth int) {
	if depth > 6 {
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() && one.Fields().Get(choice%one.Fields().Len()) != fd {
			continue
		}
		switch {
		case fd.IsMap():
			v := m.NewField(fd).Map().NewValue()
			if fd.MapValue().Message() != nil {
				h.fill(v.Message(), choice, depth+1)
			} else {
				v = h.scalar(fd.MapValue())
			}
			m.Mutable(fd).Map().Set(h.scalar(fd.MapKey()).MapKey(), v)
		case fd.IsList() && fd.Message() != nil:
			h.fill(m.Mutable(fd).List().AppendMutable().Message(), choice, depth+1)
		case fd.IsList():
			m.Mutable(fd).List().Append(h.scalar(fd))
		case fd.Message() != nil:
			h.fill(m.Mutable(fd).Message(), choice, depth+1)
		default:
			m.Set(fd, h.scalar(fd))
		}
	}
}

func (h *hostileServer) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(hostileText)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(h.flags)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(hostileText))
	}
	panic(fmt.Sprintf("no value for a field of kind %v", fd.Kind()))
}

// findControl describes the first character in text that is invalid UTF-8, or is neither graphic
// nor a line feed.
func findControl(text string) (string, bool) {
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if r == '\n' || unicode.IsGraphic(r) && !(r == utf8.RuneError && size == 1) {
			continue
		}
		return fmt.Sprintf("%q at byte %d of %q", text[i:i+size], i, text), true
	}
	return "", false
}

func hostileArguments(t *testing.T) map[string][]string {
	input := filepath.Join(t.TempDir(), "in.csv")
	if err := os.WriteFile(input, []byte("user_id,match_id,score\nada,m,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(lines, []byte(`{"user_id":"ada","match_id":"m"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	board := filepath.Join(t.TempDir(), "b.yaml")
	if err := os.WriteFile(board, []byte("{board_id: b, title: t}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string][]string{
		"board apply": {"-f", board}, "board diff": {"-f", board}, "board clone": {"b", "c"},
		"match void": {"m", "--reason", "r"}, "match list": {}, "match show": {"m"}, "match restore": {"m", "--reason", "r"}, "submit-batch": {lines}, "retract-batch": {lines},
		"submit": {"ada", "--points", "1"}, "top": {}, "rank": {"ada"}, "friends": {"ada", "bob"}, "stats": {"--rank", "1", "--score", "2"},
		"profile get": {"ada"}, "profile set": {"ada", "--name", "Ada"}, "profile delete": {"ada", "--yes"},
		"user": {"ada"}, "watch": {}, "result": {"ada", "m"}, "results": {"ada"}, "retract": {"ada", "m"}, "purge": {"ada", "--from", "2026-11-20T00:00:00Z"}, "correct": {"ada", "m", "--points", "1"}, "import": {input},
		"compare": {"--with", input, "--recheck-after", "0s"},
		"export":  {"entries"}, "board list": {}, "board show": {"b"}, "board create": {"b"}, "board update": {"b", "--title", "t"}, "board delete": {"b", "--yes"},
		"season list": {}, "season show": {"202611"}, "season end": {"202611", "--yes"}, "ban": {"ada", "--yes"}, "ban list": {}, "ban search": {"ada"}, "audit": {}, "unban": {"ada"}, "erase": {"ada", "--yes"},
		"key create": {"--name", "n", "--scope", "read"}, "key list": {}, "key revoke": {"id"},
		"verify": {}, "rebuild": {}, "backup": {},
		"archive": {"--to", "parquet:" + filepath.Join(t.TempDir(), "a")}, "archive restore": {"--from", hostileArchive(t)},
	}
}

// hostileArchive returns an archive of a board of a hostile server.
func hostileArchive(t *testing.T) string {
	t.Helper()
	to := "parquet:" + filepath.Join(t.TempDir(), "b")
	s := startInsecure(t)
	s.ok(t, "archive", "--to", to)
	return to
}

func TestOutputEscapesControlCharactersOfServers(t *testing.T) {
	arguments := hostileArguments(t)
	servers := map[string]string{
		"flags off": (&hostileServer{}).start(t),
		"flags on":  (&hostileServer{flags: true}).start(t),
	}
	failing := map[string]string{}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		failing["error "+code.String()] = (&hostileServer{err: status.Error(code, hostileText)}).start(t)
	}
	commands(newRoot(testApp()), func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("timeout") == nil { // does not call a server
			return
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "leaderboard ")
		args, ok := arguments[name]
		if !ok {
			t.Errorf("hostileArguments has no arguments for the command %q: add them", name)
			return
		}
		addresses := maps.Clone(servers)
		if name == "top" || name == "import" || name == "verify" { // the other commands report errors in the same way
			maps.Copy(addresses, failing)
		}
		for server, address := range addresses {
			for _, flags := range [][]string{nil, {"--json"}, {"-o", "yaml"}, {"-o", "csv"}, {"--jq", ".., (.. | strings)"}} {
				if flags != nil && cmd.Flags().Lookup("json") == nil || len(flags) > 1 && server != "flags on" {
					continue
				}
				t.Run(strings.Join(append([]string{name, server}, flags...), " "), func(t *testing.T) {
					r := command(t, "", []string{"LEADERBOARD_SERVER=" + address}, append(append(strings.Fields(name), args...), flags...)...)
					if found, ok := findControl(r.stdout + r.stderr); ok {
						t.Errorf("the output contains the control character %s, want it escaped", found)
					}
					if strings.Contains(r.stdout, "\nforged") || strings.Contains(r.stderr, "\nforged") {
						t.Errorf("the output has a line that the server forged, want its line feed escaped:\n%s%s", r.stdout, r.stderr)
					}
				})
			}
		}
	})
}

func TestHostileJSONKeepsItsMeaning(t *testing.T) {
	address := (&hostileServer{}).start(t)
	r := command(t, "", []string{"LEADERBOARD_SERVER=" + address}, "board", "show", "b", "--json")
	if got := parseObject(t, r.stdout)["title"]; got != hostileText {
		t.Errorf("title = %q, want %q", got, hostileText)
	}
}

func TestCompletionsAreHarmless(t *testing.T) {
	address := (&hostileServer{}).start(t)
	r := command(t, "", []string{"LEADERBOARD_SERVER=" + address}, "__complete", "top", "--board", "")
	if found, ok := findControl(strings.ReplaceAll(r.stdout, "\t", " ")); ok || strings.Contains(r.stdout, "forged") {
		t.Errorf("completion prints %q (control character: %s), want no text of the server", r.stdout, found)
	}
}
