package restjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

var _ = needs.PackageWithoutRace("one call follows another")

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func messages() []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	for _, file := range apiFiles {
		for i := range file.Messages().Len() {
			all = append(all, file.Messages().Get(i))
		}
	}
	return all
}

// depth bounds the nesting of messages in m.
func randomize(rng *rand.Rand, m protoreflect.Message, depth int) {
	switch v := m.Interface().(type) {
	case *timestamppb.Timestamp:
		v.Seconds, v.Nanos = rng.Int64N(4e9), int32(rng.IntN(1e6))*1000
		return
	case *durationpb.Duration:
		v.Seconds = rng.Int64N(1e9)
		return
	case *fieldmaskpb.FieldMask:
		v.Paths = []string{"title", "season.grace"}
		return
	case *structpb.Struct:
		s, _ := structpb.NewStruct(map[string]any{"a": rng.Float64(), "b": []any{nil, true, "ü<>&\u2028"}, "": map[string]any{}})
		proto.Merge(v, s)
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if rng.IntN(4) == 0 || fd.Message() != nil && depth == 0 || fd.FullName() == "leaderboard.v1.Error.details" {
			continue
		}
		switch {
		case fd.IsMap():
			for range rng.IntN(3) {
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString(randomText(rng)).MapKey(), protoreflect.ValueOfString(randomText(rng)))
			}
		case fd.IsList():
			for range rng.IntN(4) {
				list := m.Mutable(fd).List()
				if fd.Message() != nil {
					e := list.NewElement()
					randomize(rng, e.Message(), depth-1)
					list.Append(e)
				} else {
					list.Append(randomScalar(rng, fd))
				}
			}
		case fd.Message() != nil:
			randomize(rng, m.Mutable(fd).Message(), depth-1)
		default:
			m.Set(fd, randomScalar(rng, fd))
		}
	}
}

func randomText(rng *rand.Rand) string {
	alphabet := []rune("abc \"\\/\b\n\x00\x7féß日\u2028\U0001f600\ufffd<&>")
	text := make([]rune, rng.IntN(8))
	for i := range text {
		text[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(text)
}

func randomScalar(rng *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	integers := []int64{0, 1, -1, 1 << 53, -(1 << 53), math.MaxInt64, math.MinInt64, rng.Int64()}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(randomText(rng))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rng.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rng.IntN(fd.Enum().Values().Len() + 1)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(integers[rng.IntN(len(integers))]))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, 99.5, -1e300, 1e-7, rng.Float64()}[rng.IntN(5)])
	default:
		return protoreflect.ValueOfInt64(integers[rng.IntN(len(integers))])
	}
}

func TestJSONIsReadByProtojson(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 0))
	for _, md := range messages() {
		for range 200 {
			m := newMessage(t, md)
			randomize(rng, m.ProtoReflect(), 3)
			data, err := Append(nil, m)
			if err != nil {
				t.Fatalf("seed %d: Append of %s: %v", runSeed, md.Name(), err)
			}
			if !json.Valid(data) || strings.ContainsAny(string(data), "\n\r") {
				t.Fatalf("seed %d: Append of %s returns %q, want JSON on one line", runSeed, md.Name(), data)
			}
			decoded := newMessage(t, md)
			if err := protojson.Unmarshal(data, decoded); err != nil {
				t.Fatalf("seed %d: protojson.Unmarshal of %s: %v\n%s", runSeed, md.Name(), err, data)
			}
			if !proto.Equal(m, decoded) {
				t.Fatalf("seed %d: %s differs after Append and protojson.Unmarshal (-want +got):\n%s", runSeed, md.Name(), cmp.Diff(m, decoded, protocmp.Transform()))
			}
		}
	}
}

func newMessage(t testing.TB, md protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(md.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return mt.New().Interface()
}

func TestJSONShape(t *testing.T) {
	rank := int64(1)
	for _, tt := range []struct {
		m    proto.Message
		want string
	}{
		{&pb.Entry{UserId: "u", Score: -(1 << 53)}, `{"user_id":"u","score":-9007199254740992}`},
		{&pb.Entry{Rank: &rank, Score: 1 << 53}, `{"user_id":"","score":9007199254740992,"rank":1}`},
		{&pb.BatchSubmitScoresResponse{}, `{"outcomes":[]}`},
		{&pb.DeleteBoardResponse{}, `{}`},
		{&pb.ListScoresResponse{Status: "success"}, `{"status":"success"}`},
		{&pb.Result{UserId: `a"b\` + "\u2028\n\x7f", Attributes: map[string]string{"b": "1", "a": "<&>"}},
			`{"user_id":"a\"b\\` + "\u2028" + `\u000a\u007f","match_id":"","revision":0,"attributes":{"a":"<&>","b":"1"}}`},
		{&pb.Outcome{Status: 99, AchievedAt: timestamppb.New(noon)}, `{"user_id":"","match_id":"","status":99,"reason":"","detail":"","revision":0,"season":"","achieved_at":"2026-11-20T12:00:00Z","sealed":false}`},
	} {
		got, err := Append([]byte("x"), tt.m)
		if err != nil || string(got) != "x"+tt.want {
			t.Errorf("Append of %T = %s, %v\nwant %s", tt.m, got[1:], err, tt.want)
		}
	}
	for _, m := range []proto.Message{
		&pb.Outcome{AchievedAt: &timestamppb.Timestamp{Seconds: math.MaxInt64}},
		&pb.GetStatsResponse_Percentile{Percentile: math.NaN()},
		&pb.Result{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(math.Inf(1))}}},
	} {
		if got, err := Append(nil, m); err == nil {
			t.Errorf("Append(%v) = %s, want an error, because the message has no JSON form", m, got)
		}
	}
}

func TestJSONNamesAreFieldNames(t *testing.T) {
	var walk func(md protoreflect.MessageDescriptor)
	walk = func(md protoreflect.MessageDescriptor) {
		if n := md.Fields().Len(); n > 64 {
			t.Errorf("%s has %d fields, but Decode supports at most 64 in a message", md.FullName(), n)
		}
		for i := range md.Fields().Len() {
			if fd := md.Fields().Get(i); fd.JSONName() != string(fd.Name()) {
				t.Errorf("field %s has the JSON name %s: set json_name to the field's name", fd.FullName(), fd.JSONName())
			}
		}
		for i := range md.Messages().Len() {
			if !md.Messages().Get(i).IsMapEntry() {
				walk(md.Messages().Get(i))
			}
		}
	}
	for _, md := range messages() {
		walk(md)
	}
}

// If Decode refuses a body that protojson accepts, the problem must match the regular expression stricter.
func TestDecodeAgreesWithProtojson(t *testing.T) {
	runSeed := seed.New(t)
	rng := rand.New(rand.NewPCG(runSeed, 0))
	refusals := 0
	for range 5_000 {
		var m proto.Message = &pb.Board{}
		if rng.IntN(2) == 0 {
			m = &pb.Result{}
		}
		randomize(rng, m.ProtoReflect(), 3)
		data, err := Append(nil, m)
		if err != nil {
			continue
		}
		broken := breakJSON(rng, string(data))
		if !checkDecode(t, []byte(broken), m.ProtoReflect().Descriptor()) {
			refusals++
		}
		if t.Failed() {
			t.Fatalf("the random test failed with seed %d", runSeed)
		}
	}
	if refusals < 500 {
		t.Errorf("Decode refused %d bodies, want at least 500; breakJSON breaks too few bodies", refusals)
	}
}

func breakJSON(rng *rand.Rand, s string) string {
	for range rng.IntN(3) {
		i := rng.IntN(len(s))
		switch rng.IntN(4) {
		case 0:
			s = s[:i] + s[i+1:]
		case 1:
			s = s[:i] + string(`{}[]":,0.eEx`[rng.IntN(12)]) + s[i:]
		case 2:
			s = strings.Replace(s, `"order":`, `"ordr":`, 1)
		default:
			s = strings.Replace(s, `:[]`, `:{}`, 1)
		}
	}
	return s
}

var stricter = regexp.MustCompile(`stored exactly|is longer than|nested more|more than|[eE].* is not an integer`)

// checkDecode reports whether Decode accepts data.
func checkDecode(t *testing.T, data []byte, md protoreflect.MessageDescriptor) bool {
	t.Helper()
	want, got := newMessage(t, md), newMessage(t, md)
	wantErr := protojson.Unmarshal(data, want)
	if !json.Valid(data) { // protojson accepts 5e as a number
		wantErr = errors.Join(wantErr, errors.New("invalid JSON"))
	}
	err := Decode(data, got)
	var field *leaderboard.FieldError
	switch {
	case len(bytes.TrimSpace(data)) == 0:
	case err == nil && wantErr != nil && strings.Contains(wantErr.Error(), "google.protobuf.Duration"): // Decode also accepts durations of Go
	case err == nil && wantErr != nil:
		t.Errorf("Decode accepts %s, protojson does not: %v", data, wantErr)
	case err == nil && !proto.Equal(got, want):
		t.Errorf("Decode of %s (-protojson +Decode):\n%s", data, cmp.Diff(want, got, protocmp.Transform()))
	case err == nil:
	case !errors.As(err, &field) || field.Field == "" || field.Problem == "":
		t.Errorf("Decode of %s: error %v, want a FieldError with a field and a problem", data, err)
	case wantErr == nil && !stricter.MatchString(field.Problem):
		t.Errorf("Decode refuses %s, protojson does not: %v", data, err)
	case got.ProtoReflect().IsValid() && proto.Size(got) > 0:
		t.Errorf("Decode refuses %s, but fills the message: %v", data, got)
	}
	return err == nil
}

func TestBounds(t *testing.T) {
	nested := func(depth int) string {
		return `{"metadata":{"k":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}}`
	}
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	values := `{"metadata":{"k":` + list(4000, "0") + `}}`
	object := strings.Builder{}
	for i := range MaxElements + 1 {
		fmt.Fprintf(&object, `"k%d":"",`, i)
	}
	for _, tt := range []struct{ name, body, field, text string }{
		{"metadata 32 deep", `{"results":[{"metadata":{}},` + nested(32) + `]}`, "", ""},
		{"metadata 33 deep", `{"results":[{"metadata":{}},` + nested(33) + `]}`, "results[1].metadata", "nested more than 32 deep"},
		{"900 results with metadata 9,000 deep", `{"results":` + list(900, nested(9000)) + `}`, "results[0].metadata", "nested more than 32 deep"},
		{"objects 33 deep", `{"results":[{"metadata":` + strings.Repeat(`{"k":`, 33) + "1" + strings.Repeat("}", 33) + `}]}`, "results[0].metadata", "nested more than 32 deep"},
		{"brackets in a string", `{"results":[{"user_id":"` + strings.Repeat(`[{\"`, 100) + `"}]}`, "", ""},
		{"5,000 results", `{"results":` + list(5000, "{}") + `}`, "", ""},
		{"5,001 results", `{"results":` + list(5001, "{}") + `}`, "results", "more than 5000 given"},
		{"5,500,000 results", `{"results":` + list(5_500_000, "{}") + `}`, "results", "more than 5000 given"},
		{"many tie-breakers", `{"results":[{"tie_breakers":` + list(5001, "0") + `}]}`, "results[0].tie_breakers", "more than 5000 given"},
		{"many attributes", `{"results":[{"attributes":{` + strings.TrimSuffix(object.String(), ",") + `}}]}`, "results[0].attributes", "more than 5000 given"},
		{"a long list in metadata", `{"results":[{"metadata":{"k":` + list(5001, "0") + `}}]}`, "results[0].metadata.k", "more than 5000 given"},
		{"fewer than 500,000 values", `{"results":` + list(124, values) + `}`, "", ""},
		{"more than 500,000 values", `{"results":` + list(126, values) + `}`, "body", "more than 500000 values"},
		{"a list of commas only", list(600_000, ""), "body", "must be a JSON object"},
		{"U+FFFD beside a large number", `{"results":[{"user_id":"\ufffd","points":9007199254740992}]}`, "", ""},
	} {
		m := &pb.BatchSubmitScoresRequest{}
		err := Decode([]byte(tt.body), m)
		var field *leaderboard.FieldError
		if tt.field == "" {
			if err != nil {
				t.Errorf("%s: Decode fails with %v, want nil", tt.name, err)
			}
		} else if !errors.As(err, &field) || field.Field != tt.field || !strings.Contains(field.Problem, tt.text) {
			t.Errorf("%s: error %.300v, want one about field %s that contains %q", tt.name, err, tt.field, tt.text)
		}
		if err != nil && len(m.GetResults()) > 0 {
			t.Errorf("%s: after the error the message has %d results, want none", tt.name, len(m.GetResults()))
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"user_id":"u","score":1}`, `{"score":"1e2"}`, `{"achieved_at":"2026-01-01T00:00:00+01:00"}`, `{"tie_breakers":[1,"2",3.0]}`, `{"metadata":{"x":{"x":[1e400]}}}`, `{"a":1,"a":2}`, `{"score":-0}`, `{"score":01}`, `{"user_id":"\ud800\udc00"}`, "\ufeff{}", ` {} `, `{"score": 1}x`} {
		f.Add([]byte(seed))
	}
	md := (&pb.Result{}).ProtoReflect().Descriptor()
	f.Fuzz(func(t *testing.T, data []byte) {
		checkDecode(t, data, md)
		m := &pb.Result{}
		if Decode(data, m) != nil {
			return
		}
		again, err := Append(nil, m)
		if err != nil {
			t.Fatalf("Decode accepts %s, but Append of the message fails: %v", data, err)
		}
		decoded := &pb.Result{}
		if err := Decode(again, decoded); err != nil || !proto.Equal(m, decoded) {
			t.Errorf("%s decodes to a message that Append writes as %s; Decode of this text returns a different message, or the error %v", data, again, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	list := &pb.Leaderboard{Board: "default", Season: "202611", Method: "competition"}
	for i := range 100 {
		rank := int64(i + 1)
		list.Leaderboard = append(list.Leaderboard, &pb.Entry{UserId: fmt.Sprintf("user-%d", i), Score: 1e6 - rank, Rank: &rank, AchievedAt: timestamppb.New(noon)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Append(nil, list); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	var body strings.Builder
	body.WriteString(`{"results":[`)
	for i := range 1000 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"user_id":"user-%d","match_id":"match-%d","points":%d,"achieved_at":"2026-11-20T12:00:00Z","attributes":{"gender":"F"},"metadata":{"car":"red","laps":[1,2,3]}}`, i, i, i)
	}
	body.WriteString(`]}`)
	data := []byte(body.String())
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := Decode(data, &pb.BatchSubmitScoresRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}
