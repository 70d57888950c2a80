package server

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

func setFields(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.Message() != nil && depth == 0:
		case fd.IsMap():
			key := protoreflect.ValueOfString("gender").MapKey()
			if fd.MapValue().Message() == nil {
				m.Mutable(fd).Map().Set(key, protoreflect.ValueOfString("F"))
				continue
			}
			setFields(m.Mutable(fd).Map().Mutable(key).Message(), depth-1)
		case fd.IsList() && fd.Message() != nil:
			setFields(m.Mutable(fd).List().AppendMutable().Message(), depth-1)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalar(fd))
		case fd.Message() != nil:
			setFields(m.Mutable(fd).Message(), depth-1)
		case fd.ContainingOneof() == nil || fd.ContainingOneof().IsSynthetic() || m.WhichOneof(fd.ContainingOneof()) == nil:
			m.Set(fd, scalar(fd))
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("default")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("x"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	default:
		return protoreflect.ValueOfInt64(1)
	}
}

// dropFields calls f with copies of root. Each copy lacks the field that path names: a field
// of the message find(root), or of a message inside find(root).
func dropFields(root proto.Message, find func(protoreflect.Message) protoreflect.Message, path string, f func(path string, m proto.Message)) {
	find(root.ProtoReflect()).Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		name := path + "." + string(fd.Name())
		changed := proto.Clone(root)
		find(changed.ProtoReflect()).Clear(fd)
		f(name, changed)
		switch {
		case fd.IsMap() || fd.Message() == nil:
		case fd.IsList():
			dropFields(root, func(m protoreflect.Message) protoreflect.Message { return find(m).Get(fd).List().Get(0).Message() }, name, f)
		default:
			dropFields(root, func(m protoreflect.Message) protoreflect.Message { return find(m).Get(fd).Message() }, name, f)
		}
		return true
	})
}

// No method panics if one field, or every field, of the request is absent.
func TestAbsentFields(t *testing.T) {
	h := newHarness(t, Options{})
	calls := 0
	for _, file := range []protoreflect.FileDescriptor{pb.File_leaderboard_v1_leaderboard_service_proto, pb.File_leaderboard_v1_admin_service_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				md := methods.Get(j)
				method := fmt.Sprintf("/%s/%s", md.Parent().FullName(), md.Name())
				typ, err := protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName())
				if err != nil {
					t.Fatal(err)
				}
				call := func(path string, req proto.Message) {
					calls++
					err := h.invokeWith("admin", method, md, req)
					if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
						t.Errorf("%s, absent: %s: error %v; want neither INTERNAL nor UNKNOWN", method, path, err)
					}
				}
				call("all fields", typ.New().Interface())
				full := typ.New()
				setFields(full, 4)
				call("no field", full.Interface())
				dropFields(full.Interface(), func(m protoreflect.Message) protoreflect.Message { return m }, string(md.Input().Name()), call)
			}
		}
	}
	if calls < 150 {
		t.Errorf("%d calls, want at least 150: dropFields missed fields", calls)
	}
}

func (h *harness) invokeWith(key, method string, md protoreflect.MethodDescriptor, req proto.Message) error {
	out, err := protoregistry.GlobalTypes.FindMessageByName(md.Output().FullName())
	if err != nil {
		return err
	}
	if !md.IsStreamingServer() {
		return h.conn.Invoke(h.as(key), method, req, out.New().Interface())
	}
	stream, err := h.conn.NewStream(h.as(key), &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(req); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(out.New().Interface()); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
