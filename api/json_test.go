package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

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

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// messages are all that a client may send or get.
func messages() []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	for _, file := range apiFiles {
		for i := range file.Messages().Len() {
			all = append(all, file.Messages().Get(i))
		}
	}
	return all
}

// randomize fills m with random values, deep down to a depth.
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

// The encoder against protojson's decoder, which takes numbers for integers.
func TestJSONIsReadByProtojson(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, md := range messages() {
		for range 200 {
			m := newMessage(t, md)
			randomize(rng, m.ProtoReflect(), 3)
			data, err := AppendJSON(nil, m)
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, md.Name(), err)
			}
			if !json.Valid(data) || strings.ContainsAny(string(data), "\n\r") {
				t.Fatalf("seed %d: %s: not JSON on one line: %s", seed, md.Name(), data)
			}
			back := newMessage(t, md)
			if err := protojson.Unmarshal(data, back); err != nil {
				t.Fatalf("seed %d: %s: %v\n%s", seed, md.Name(), err, data)
			}
			if !proto.Equal(m, back) {
				t.Fatalf("seed %d: %s comes back changed (-want +got):\n%s", seed, md.Name(), cmp.Diff(m, back, protocmp.Transform()))
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

// Every integer is a JSON number, and what cannot tell whether it is set is shown.
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
		{&pb.ListScoresResponse{Status: success}, `{"status":"success"}`},
		{&pb.Result{UserId: `a"b\` + "\u2028\n\x7f", Attributes: map[string]string{"b": "1", "a": "<&>"}},
			`{"user_id":"a\"b\\` + "\u2028" + `\u000a\u007f","match_id":"","revision":0,"attributes":{"a":"<&>","b":"1"}}`},
		{&pb.Outcome{Status: 99, AchievedAt: timestamppb.New(tokenNow)}, `{"user_id":"","match_id":"","status":99,"reason":"","detail":"","revision":0,"season":"","achieved_at":"2026-11-20T12:00:00Z"}`},
	} {
		got, err := AppendJSON([]byte("x"), tt.m)
		if err != nil || string(got) != "x"+tt.want {
			t.Errorf("%T is %s, %v\nwant %s", tt.m, got[1:], err, tt.want)
		}
	}
	for _, m := range []proto.Message{
		&pb.Outcome{AchievedAt: &timestamppb.Timestamp{Seconds: math.MaxInt64}},
		&pb.GetStatsResponse_Percentile{Percentile: math.NaN()},
		&pb.Result{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(math.Inf(1))}}},
	} {
		if got, err := AppendJSON(nil, m); err == nil {
			t.Errorf("%v has no JSON form, but is %s", m, got)
		}
	}
}

// The contract pins snake_case: no field has another JSON name than its own.
func TestJSONNamesAreFieldNames(t *testing.T) {
	var walk func(md protoreflect.MessageDescriptor)
	walk = func(md protoreflect.MessageDescriptor) {
		for i := range md.Fields().Len() {
			if fd := md.Fields().Get(i); fd.JSONName() != string(fd.Name()) {
				t.Errorf("%s is %s in JSON: give it json_name", fd.FullName(), fd.JSONName())
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

// Whatever protojson refuses is explained by field, and what it takes is not
// faulted.
func TestExplainAgreesWithProtojson(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	md := (&pb.Board{}).ProtoReflect().Descriptor()
	refused := 0
	for range 5000 {
		m := &pb.Board{}
		randomize(rng, m.ProtoReflect(), 3)
		data, err := AppendJSON(nil, m)
		if err != nil {
			continue
		}
		// Break it somewhere, or not.
		broken := breakJSON(rng, string(data))
		checkExplained(t, []byte(broken), md, &refused)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if refused < 500 {
		t.Errorf("only %d bodies were refused", refused)
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

func checkExplained(t *testing.T, data []byte, md protoreflect.MessageDescriptor, refused *int) {
	t.Helper()
	m := newMessage(t, md)
	err := protojson.Unmarshal(data, m)
	if !json.Valid(data) {
		err = errors.Join(err, errors.New("invalid JSON"))
	}
	problem := explain(data, md)
	bounded, _ := checkValues(data)
	empty := len(strings.TrimSpace(string(data))) == 0
	switch {
	case empty:
	case err == nil && problem != nil && bounded:
		t.Errorf("faulted %s, which is right: %v", data, problem)
	case err != nil && problem == nil:
		t.Errorf("found nothing wrong with %s, but %v", data, err)
	case err != nil:
		*refused++
		if problem.Field == "" || problem.Problem == "" {
			t.Errorf("%s: %+v", data, problem)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"user_id":"u","score":1}`, `{"score":"1e2"}`, `{"achieved_at":"2026-01-01T00:00:00+01:00"}`, `{"tie_breakers":[1,"2",3.0]}`, `{"metadata":{"x":{"x":[1e400]}}}`, `{"a":1,"a":2}`, `{"score":-0}`, `{"score":01}`, `{"user_id":"\ud800\udc00"}`, "\ufeff{}", ` {} `, `{"score": 1}x`} {
		f.Add([]byte(seed))
	}
	md := (&pb.Result{}).ProtoReflect().Descriptor()
	refused := 0
	f.Fuzz(func(t *testing.T, data []byte) {
		checkExplained(t, data, md, &refused)
		m := &pb.Result{}
		if DecodeJSON(data, m) != nil {
			return
		}
		again, err := AppendJSON(nil, m)
		if err != nil {
			t.Fatalf("%s was taken, but cannot be written: %v", data, err)
		}
		back := &pb.Result{}
		if err := DecodeJSON(again, back); err != nil || !proto.Equal(m, back) {
			t.Errorf("%s came back as %s: %v", data, again, err)
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	list := &pb.Leaderboard{Board: "default", Season: "202611", Method: "competition"}
	for i := range 100 {
		rank := int64(i + 1)
		list.Leaderboard = append(list.Leaderboard, &pb.Entry{UserId: fmt.Sprintf("user-%d", i), Score: 1e6 - rank, Rank: &rank, AchievedAt: timestamppb.New(tokenNow)})
	}
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := AppendJSON(nil, list); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protojson", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := protojson.Marshal(list); err != nil {
				b.Fatal(err)
			}
		}
	})
}
