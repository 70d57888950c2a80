package client

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

// rowPaths are the paths of the lists that CSV shows, by message. Of another message, CSV shows the
// field data or, without this field, the message.
var rowPaths = map[protoreflect.FullName]string{}

func init() {
	for path, messages := range map[string][]proto.Message{
		"data.leaderboard": {&pb.ListScoresResponse{}, &pb.LookupScoresResponse{}},
		"data.scores":      {&pb.ListUserScoresResponse{}},
		"data.seasons":     {&pb.ListSeasonsResponse{}},
		"leaderboard":      {&pb.Leaderboard{}},
		"boards":           {&pb.ListBoardsResponse{}},
		"bans":             {&pb.ListBansResponse{}},
		"keys":             {&pb.ListKeysResponse{}},
		"acts":             {&pb.ListActsResponse{}},
		"matches":          {&pb.ListMatchesResponse{}},
		"results":          {&pb.ListUserResultsResponse{}, &pb.GetMatchResponse{}},
		"outcomes":         {&pb.BatchSubmitResultsResponse{}, &pb.BatchRetractResultsResponse{}, &pb.PurgeResultsResponse{}},
	} {
		for _, m := range messages {
			rowPaths[m.ProtoReflect().Descriptor().FullName()] = path
		}
	}
}

func document(answer proto.Message) (cli.Document, error) {
	text, err := restjson.Append(nil, answer)
	md := answer.ProtoReflect().Descriptor()
	path, ok := rowPaths[md.FullName()]
	if data := md.Fields().ByName("data"); !ok && data != nil {
		path = "data"
	}
	return cli.Document{JSON: text, Rows: path, Columns: columns(messageAt(md, path), "", nil)}, err
}

func messageAt(md protoreflect.MessageDescriptor, path string) protoreflect.MessageDescriptor {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' }) {
		md = md.Fields().ByName(protoreflect.Name(name)).Message()
	}
	return md
}

// columns returns the paths of the values in a message. A list, a map and a message of Google's types
// is one value. The messages in outer are around the message.
func columns(md protoreflect.MessageDescriptor, prefix string, outer []protoreflect.FullName) []string {
	var paths []string
	outer = append(outer, md.FullName())
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		path := prefix + string(fd.Name())
		if inner := fd.Message(); inner == nil || fd.IsList() || fd.IsMap() || inner.ParentFile().Package() != md.ParentFile().Package() {
			paths = append(paths, path)
		} else if !slices.Contains(outer, inner.FullName()) {
			paths = append(paths, columns(inner, path+".", outer)...)
		}
	}
	return paths
}
