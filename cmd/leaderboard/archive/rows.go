package archive

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/cmd/leaderboard/client"
)

// A row is a row of a table in PostgreSQL and of a Parquet file. The tags name the columns of both. In an
// optional column, the empty string is NULL.
type row interface {
	boardRow | seasonRow | userRow | resultRow | standingRow | voidRow | banRow | erasureRow
}

type boardRow struct {
	Board      string     `parquet:"board_id"`
	Title      string     `parquet:"title,optional"`
	Policy     string     `parquet:"policy"`
	Order      string     `parquet:"score_order"`
	Unit       string     `parquet:"unit,optional"`
	Decimals   int64      `parquet:"decimals"`
	CreatedAt  *time.Time `parquet:"created_at,timestamp(microsecond)"`
	Definition string     `parquet:"definition"` // as in "leaderboard board show -o json"
}

type seasonRow struct {
	Board      string     `parquet:"board_id" json:"board_id"`
	Season     string     `parquet:"season" json:"season"`
	StartsAt   *time.Time `parquet:"starts_at,timestamp(microsecond)" json:"starts_at,omitempty"`
	EndsAt     *time.Time `parquet:"ends_at,timestamp(microsecond)" json:"ends_at,omitempty"`
	EndedAt    *time.Time `parquet:"ended_at,timestamp(microsecond)" json:"ended_at,omitempty"`
	SealedAt   *time.Time `parquet:"sealed_at,timestamp(microsecond)" json:"sealed_at,omitempty"`
	Amendments string     `parquet:"amendments,optional" json:"amendments,omitempty"` // a JSON array
	Results    int64      `parquet:"results" json:"results"`
	Entrants   int64      `parquet:"entrants" json:"entrants"`
	Checksum   string     `parquet:"checksum,optional" json:"checksum,omitempty"`
	Mark       string     `parquet:"mark" json:"mark"` // see markOf
	ArchivedAt *time.Time `parquet:"archived_at,timestamp(microsecond)" json:"archived_at"`
}

type userRow struct {
	User        string     `parquet:"user_id"`
	Hash        string     `parquet:"user_hash"`
	DisplayName string     `parquet:"display_name,optional"`
	AvatarURL   string     `parquet:"avatar_url,optional"`
	Country     string     `parquet:"country,optional"`
	Attributes  string     `parquet:"attributes,optional"`
	Revision    *int64     `parquet:"revision"`
	UpdatedAt   *time.Time `parquet:"updated_at,timestamp(microsecond)"`
}

type resultRow struct {
	Board       string     `parquet:"board_id,dict"`
	Season      string     `parquet:"season,dict"`
	User        string     `parquet:"user_id"`
	Match       string     `parquet:"match_id"`
	Revision    int64      `parquet:"revision"`
	Retracted   bool       `parquet:"retracted"`
	Score       *int64     `parquet:"score"`
	TieBreakers []int64    `parquet:"tie_breakers,list"`
	AchievedAt  *time.Time `parquet:"achieved_at,timestamp(microsecond)"`
	Reset       bool       `parquet:"reset"`
	Status      string     `parquet:"status,dict"`
	Attributes  string     `parquet:"attributes,optional,dict"`
	Metadata    string     `parquet:"metadata,optional"`
}

type standingRow struct {
	Board       string     `parquet:"board_id,dict"`
	Season      string     `parquet:"season,dict"`
	Division    string     `parquet:"division,dict"`
	Position    int64      `parquet:"position"`
	User        string     `parquet:"user_id"`
	Rank        *int64     `parquet:"rank"`
	DenseRank   *int64     `parquet:"dense_rank"`
	Score       int64      `parquet:"score"`
	ScoreExact  string     `parquet:"score_exact,optional"`
	TieBreakers []int64    `parquet:"tie_breakers,list"`
	AchievedAt  *time.Time `parquet:"achieved_at,timestamp(microsecond)"`
	Status      string     `parquet:"status,dict"`
}

type voidRow struct {
	Board  string `parquet:"board_id,dict"`
	Season string `parquet:"season,dict"`
	Match  string `parquet:"match_id"`
	Reason string `parquet:"reason,optional"`
}

type banRow struct {
	User     string     `parquet:"user_id"`
	Board    string     `parquet:"board_id"` // empty for the ban on every board
	Banned   bool       `parquet:"banned"`
	Reason   string     `parquet:"reason,optional"`
	Actor    string     `parquet:"actor,optional"`
	At       *time.Time `parquet:"at,timestamp(microsecond)"`
	Until    *time.Time `parquet:"until,timestamp(microsecond)"`
	Revision int64      `parquet:"revision"`
}

// erasureRow is an erasure that was applied to the archive.
type erasureRow struct {
	Act      string     `parquet:"act_id"`
	Hash     string     `parquet:"user_hash"`
	ErasedAt *time.Time `parquet:"erased_at,timestamp(microsecond)"`
}

type column struct {
	name     string
	optional bool
}

func columnsOf[R row]() (columns []column) {
	for f := range reflect.TypeFor[R]().Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		columns = append(columns, column{name, strings.Contains(options, "optional")})
	}
	return columns
}

func instant(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

func timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

func objectText(m *structpb.Struct) (string, error) {
	if m == nil {
		return "", nil
	}
	text, err := restjson.Append(nil, m)
	return string(text), err
}

func parseObject(text string) (*structpb.Struct, error) {
	if text == "" {
		return nil, nil
	}
	m := &structpb.Struct{}
	return m, protojson.Unmarshal([]byte(text), m)
}

func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func newBoardRow(b *pb.Board) (boardRow, error) {
	rules := proto.CloneOf(b)
	client.ClearOutputOnly(rules)
	definition, err := restjson.Append(nil, rules)
	return boardRow{
		Board: b.GetBoardId(), Title: b.GetTitle(), Policy: b.GetPolicy().String(), Order: b.GetOrder().String(),
		Unit: b.GetUnit(), Decimals: int64(b.GetDecimals()), CreatedAt: instant(b.GetCreatedAt()), Definition: string(definition),
	}, err
}

func (r *boardRow) board() (*pb.Board, error) {
	b := &pb.Board{}
	if err := protojson.Unmarshal([]byte(r.Definition), b); err != nil {
		return nil, fmt.Errorf("the archive has a damaged definition of board %q: %w", r.Board, err)
	}
	return b, nil
}

func newResultRow(board string, res *pb.ExportResultsResponse) (row resultRow, err error) {
	r := res.GetResult()
	row = resultRow{
		Board: board, Season: res.GetSeason(), User: r.GetUserId(), Match: r.GetMatchId(), Revision: r.GetRevision(), Retracted: res.GetRetracted(),
		Score: r.Score, TieBreakers: r.GetTieBreakers(), AchievedAt: instant(r.GetAchievedAt()), Reset: r.GetReset_(), Status: statusText(r.Status),
	}
	if r.Points != nil {
		row.Score = r.Points
	}
	if len(r.GetAttributes()) > 0 {
		text, err := json.Marshal(r.GetAttributes())
		if err != nil {
			return row, err
		}
		row.Attributes = string(text)
	}
	row.Metadata, err = objectText(r.GetMetadata())
	return row, err
}

func statusText(s *pb.Result_Finish) string {
	if s == nil {
		return pb.Result_RANKED.String()
	}
	return s.String()
}

// message is the inverse of newResultRow. addsUp reports whether results on the board have points.
func (row *resultRow) message(addsUp bool) (*pb.ExportResultsResponse, error) {
	r := &pb.Result{UserId: row.User, MatchId: row.Match, Revision: row.Revision, TieBreakers: row.TieBreakers, AchievedAt: timestamp(row.AchievedAt)}
	if r.Score = row.Score; addsUp {
		r.Score, r.Points = nil, row.Score
	}
	if row.Reset {
		r.Reset_ = &row.Reset
	}
	if n, ok := pb.Result_Finish_value[row.Status]; ok && n != int32(pb.Result_RANKED) {
		r.Status = new(pb.Result_Finish(n))
	}
	if row.Attributes != "" {
		if err := json.Unmarshal([]byte(row.Attributes), &r.Attributes); err != nil {
			return nil, fmt.Errorf("attributes of the result %q of user %q: %w", row.Match, row.User, err)
		}
	}
	var err error
	if r.Metadata, err = parseObject(row.Metadata); err != nil {
		return nil, fmt.Errorf("metadata of the result %q of user %q: %w", row.Match, row.User, err)
	}
	return &pb.ExportResultsResponse{Season: row.Season, Result: r, Retracted: row.Retracted}, nil
}

func newStandingRow(board string, st *pb.ExportResultsResponse_Standing) standingRow {
	e := st.GetEntry()
	return standingRow{
		Board: board, Season: st.GetSeason(), Division: st.GetDivision(), Position: st.GetPosition(), User: e.GetUserId(), Rank: e.Rank, DenseRank: st.DenseRank,
		Score: e.GetScore(), ScoreExact: e.GetScoreExact(), TieBreakers: e.GetTieBreakers(), AchievedAt: instant(e.GetAchievedAt()), Status: statusText(e.Status),
	}
}

func newUserRow(user string) userRow {
	return userRow{User: user, Hash: leaderboard.UserID(user).Digest()}
}

func newProfileRow(p *pb.Profile) (row userRow, err error) {
	row = newUserRow(p.GetUserId())
	row.DisplayName, row.AvatarURL, row.Country = p.GetDisplayName(), p.GetAvatarUrl(), p.GetCountry()
	row.Revision, row.UpdatedAt = p.Revision, instant(p.GetUpdatedAt())
	row.Attributes, err = objectText(p.GetAttributes())
	return row, err
}

// message returns nil if the user has no profile.
func (row *userRow) message() (*pb.ExportResultsResponse, error) {
	if row.Revision == nil {
		return nil, nil
	}
	attributes, err := parseObject(row.Attributes)
	if err != nil {
		return nil, fmt.Errorf("attributes of the profile of user %q: %w", row.User, err)
	}
	return &pb.ExportResultsResponse{Profile: &pb.Profile{
		UserId: &row.User, DisplayName: textOrNil(row.DisplayName), AvatarUrl: textOrNil(row.AvatarURL), Country: textOrNil(row.Country),
		Attributes: attributes, Revision: row.Revision, UpdatedAt: timestamp(row.UpdatedAt),
	}}, nil
}

func newVoidRow(board string, v *pb.ExportResultsResponse_Void) voidRow {
	return voidRow{Board: board, Season: v.GetSeason(), Match: v.GetMatchId(), Reason: v.GetReason()}
}

func (row *voidRow) message() *pb.ExportResultsResponse {
	return &pb.ExportResultsResponse{Void: &pb.ExportResultsResponse_Void{Season: row.Season, MatchId: row.Match, Reason: row.Reason}}
}

// end returns the early end of the season, or nil.
func (row *seasonRow) end() *pb.ExportResultsResponse {
	if row.EndedAt == nil {
		return nil
	}
	return &pb.ExportResultsResponse{End: &pb.ExportResultsResponse_End{Season: row.Season, At: timestamp(row.EndsAt), DecidedAt: timestamp(row.EndedAt)}}
}

func newBanRow(b *pb.Ban) banRow {
	return banRow{
		User: b.GetUserId(), Board: b.GetBoard(), Banned: b.GetBanned(), Reason: b.GetReason(), Actor: b.GetActor(),
		At: instant(b.GetAt()), Until: instant(b.GetUntil()), Revision: b.GetRevision(),
	}
}

func (row *banRow) message() *pb.ExportResultsResponse {
	return &pb.ExportResultsResponse{Ban: &pb.Ban{
		UserId: row.User, Board: row.Board, Banned: row.Banned, Reason: row.Reason, Actor: row.Actor, At: timestamp(row.At), Until: timestamp(row.Until), Revision: row.Revision,
	}}
}
