package api

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/internal/wire"
)

// What follows translates between the wire and the root. From the wire, a field
// that is absent takes its default here; limits are checked by the root.

func toDuration(field string, d *durationpb.Duration) (time.Duration, error) {
	if d != nil && (d.CheckValid() != nil || durationpb.New(d.AsDuration()).AsDuration() != d.AsDuration() || d.AsDuration().Seconds() < float64(d.Seconds)-1) {
		return 0, &leaderboard.FieldError{Field: field, Problem: "is longer than 292 years"}
	}
	return d.AsDuration(), nil
}

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func boardID(id string) leaderboard.BoardID {
	return cmp.Or(leaderboard.BoardID(id), leaderboard.DefaultBoard)
}

func toQuery(board, season, division, method string) (ranking.Query, error) {
	q := ranking.Query{Board: boardID(board), Season: leaderboard.SeasonID(season)}
	var err error
	if q.Division, err = leaderboard.ParseDivision(division); err != nil {
		return q, err
	}
	if method != "" {
		err = q.Method.UnmarshalText([]byte(method))
	}
	return q, err
}

func toBoard(b *pb.Board) (leaderboard.Board, error) {
	halfLife, err1 := toDuration("half_life", b.GetHalfLife())
	grace, err2 := toDuration("season.grace", b.GetSeason().GetGrace())
	retention, err3 := toDuration("retention", b.GetRetention())
	order, err4 := toEnum("order", b.GetOrder())
	policy, err5 := toEnum("policy", b.GetPolicy())
	schedule, err6 := toEnum("season.schedule", b.GetSeason().GetSchedule())
	errs := []error{err1, err2, err3, err4, err5, err6}
	if b.GetSeason().GetGrace() == nil {
		grace = leaderboard.DefaultGrace
	}
	board := leaderboard.Board{
		ID: leaderboard.BoardID(b.GetBoardId()), Title: b.GetTitle(),
		Order: leaderboard.Order(order), Policy: leaderboard.Policy(policy), HalfLife: halfLife,
		Unit: b.GetUnit(), Decimals: int(b.GetDecimals()), Divisions: b.GetDivisions(),
		Season: leaderboard.Schedule{
			Kind: leaderboard.ScheduleKind(schedule), TimeZone: b.GetSeason().GetTimeZone(), Grace: grace,
		},
		MinScore: (*leaderboard.Score)(b.MinScore), MaxScore: (*leaderboard.Score)(b.MaxScore), Floor: (*leaderboard.Score)(b.Floor),
		Retention: retention,
	}
	for i, tb := range b.GetTieBreakers() {
		order, err := toEnum(fmt.Sprintf("tie_breakers[%d].order", i), tb.GetOrder())
		errs = append(errs, err)
		board.TieBreakers = append(board.TieBreakers, leaderboard.TieBreaker{Name: tb.GetName(), Order: leaderboard.Order(order)})
	}
	for _, w := range b.GetSeason().GetWindows() {
		start, err1 := wire.ToTime("season.windows.start", w.GetStart())
		end, err2 := wire.ToTime("season.windows.end", w.GetEnd())
		errs = append(errs, err1, err2)
		board.Season.Windows = append(board.Season.Windows, leaderboard.Season{ID: leaderboard.SeasonID(w.GetId()), Start: start, End: end})
	}
	return board, errors.Join(errs...)
}

// toEnum returns the root's number of a value, which counts from 0: on the wire 0
// is unspecified, and stands for the first value, 1. The numbers of protocol
// buffers may be any.
func toEnum(field string, v protoreflect.Enum) (int, error) {
	if v.Descriptor().Values().ByNumber(v.Number()) == nil {
		return 0, &leaderboard.FieldError{Field: field, Problem: fmt.Sprintf("%d is not %s", v.Number(), enumNames(v.Descriptor()))}
	}
	return int(max(0, v.Number()-1)), nil
}

func fromOrder(o leaderboard.Order) pb.Board_Order { return pb.Board_HIGHER_FIRST + pb.Board_Order(o) }

func fromBoard(b *leaderboard.Board) *pb.Board {
	board := &pb.Board{
		BoardId: string(b.ID), Title: b.Title,
		Order: fromOrder(b.Order), Policy: pb.Board_BEST + pb.Board_Policy(b.Policy), HalfLife: duration(b.HalfLife),
		Unit: b.Unit, Decimals: int32(b.Decimals), Divisions: b.Divisions,
		Season: &pb.Board_Schedule{
			Schedule: pb.Board_Schedule_NONE + pb.Board_Schedule_Kind(b.Season.Kind), TimeZone: cmp.Or(b.Season.TimeZone, "UTC"), Grace: durationpb.New(b.Season.Grace),
		},
		MinScore: (*int64)(b.MinScore), MaxScore: (*int64)(b.MaxScore), Floor: (*int64)(b.Floor),
		Retention: duration(b.Retention), CreatedAt: wire.Timestamp(b.CreatedAt),
	}
	for _, tb := range b.TieBreakers {
		board.TieBreakers = append(board.TieBreakers, &pb.Board_TieBreaker{Name: tb.Name, Order: fromOrder(tb.Order)})
	}
	for _, w := range b.Season.Windows {
		board.Season.Windows = append(board.Season.Windows, &pb.Board_Schedule_Window{Id: string(w.ID), Start: wire.Timestamp(w.Start), End: wire.Timestamp(w.End)})
	}
	return board
}

// known returns nil for 0, which stands for a rank that cannot be told.
func known(rank int64) *int64 {
	if rank == 0 {
		return nil
	}
	return &rank
}

func fromLine(l *ranking.Line) *pb.Entry {
	e := &pb.Entry{
		UserId: string(l.User), Score: int64(l.Score), Rank: known(l.Rank),
		AchievedAt: wire.Timestamp(l.AchievedAt), TieBreakers: l.TieBreakers,
	}
	if l.Entry != nil {
		match := string(l.Entry.Match)
		e.MatchId, e.Metadata, e.Divisions = &match, wire.FromMetadata(l.Entry.Metadata), fromDivisions(l.Entry.Divisions)
	}
	return e
}

func fromDivisions(divisions []leaderboard.Division) []string {
	names := make([]string, len(divisions))
	for i, d := range divisions {
		names[i] = d.String()
	}
	return names
}

// total is nil if it cannot be told.
func total(a *ranking.About) *int64 {
	if a.Degraded {
		return nil
	}
	return &a.Total
}

// scoredAt is the moment that scores are for, where they change with time.
func scoredAt(a *ranking.About) *timestamppb.Timestamp {
	if a.Board.Policy != leaderboard.Decay {
		return nil
	}
	return wire.Timestamp(a.ScoredAt)
}

func fromPage(a *ranking.About, lines []ranking.Line) *pb.Leaderboard {
	list := &pb.Leaderboard{
		Leaderboard: make([]*pb.Entry, len(lines)), Count: int32(len(lines)), Total: total(a),
		Board: string(a.Board.ID), Season: string(a.Season.ID), Division: a.Division.String(), Method: a.Method.String(),
		AsOf: wire.Timestamp(a.AsOf), Degraded: a.Degraded, Sealed: a.Sealed, ScoredAt: scoredAt(a),
	}
	for i := range lines {
		list.Leaderboard[i] = fromLine(&lines[i])
	}
	return list
}

func fromUser(p *ranking.UserPage) *pb.GetUserScoreResponse_UserScore {
	e := fromLine(&p.Line)
	u := &pb.GetUserScoreResponse_UserScore{
		UserId: e.UserId, Score: e.Score, Rank: e.Rank, AchievedAt: e.AchievedAt, TieBreakers: e.TieBreakers,
		MatchId: e.MatchId, Metadata: e.Metadata, Divisions: e.Divisions,
		NeighborsClippedAbove: p.ClippedAbove, NeighborsClippedBelow: p.ClippedBelow,
		Total: total(&p.About), Board: string(p.Board.ID), Season: string(p.Season.ID), Division: p.Division.String(),
		Method: p.Method.String(), AsOf: wire.Timestamp(p.AsOf), Degraded: p.Degraded, Sealed: p.Sealed, ScoredAt: scoredAt(&p.About),
	}
	if !p.Degraded {
		u.Percentile = &p.Percentile
	}
	for i := range p.Neighbors {
		n := fromLine(&p.Neighbors[i])
		n.IsCurrentUser = &p.Neighbors[i].Current
		u.Neighbors = append(u.Neighbors, n)
	}
	return u
}

func fromStats(s *ranking.Stats) *pb.GetStatsResponse_Stats {
	stats := &pb.GetStatsResponse_Stats{
		Board: string(s.Board.ID), Season: string(s.Season.ID), Division: s.Division.String(), Method: s.Method.String(),
		Total: s.Total, AsOf: wire.Timestamp(s.AsOf), Sealed: s.Sealed,
		BestScore: (*int64)(s.Best), WorstScore: (*int64)(s.Worst),
		ScoreAtRank: (*int64)(s.ScoreAtRank), RankOfScore: known(s.RankOfScore),
	}
	for _, b := range s.Histogram {
		stats.Histogram = append(stats.Histogram, &pb.GetStatsResponse_Bucket{Lower: int64(b.From), Upper: int64(b.To), Count: b.Count})
	}
	for _, p := range s.Percentiles {
		stats.Percentiles = append(stats.Percentiles, &pb.GetStatsResponse_Percentile{Percentile: p.Percent, Score: int64(p.Score)})
	}
	return stats
}

func fromSeason(s *ranking.SeasonInfo) *pb.ListSeasonsResponse_Season {
	season := &pb.ListSeasonsResponse_Season{
		Id: string(s.ID), Start: wire.Timestamp(s.Start), End: wire.Timestamp(s.End), Status: string(s.Phase), Entrants: s.Total,
		SealedAt: wire.Timestamp(s.SealedAt), ClosesAt: wire.Timestamp(s.ClosesAt),
	}
	for _, a := range s.Amendments {
		season.Amendments = append(season.Amendments, &pb.ListSeasonsResponse_Amendment{At: wire.Timestamp(a.At), Reason: a.Reason})
	}
	return season
}

var resultStatus = map[leaderboard.Status]pb.GetResultResponse_Status{
	leaderboard.Applied:    pb.GetResultResponse_APPLIED,
	leaderboard.Superseded: pb.GetResultResponse_SUPERSEDED,
	leaderboard.Retracted:  pb.GetResultResponse_RETRACTED,
	leaderboard.Rejected:   pb.GetResultResponse_REJECTED,
	leaderboard.Pending:    pb.GetResultResponse_PENDING,
}

func fromReceipt(user leaderboard.UserID, r *ranking.Receipt) *pb.Outcome {
	o := &pb.Outcome{
		UserId: string(user), MatchId: string(r.Match), Status: wire.FromStatus(r.Status), Reason: string(r.Reason),
		Revision: r.Revision, Season: string(r.Season), AchievedAt: wire.Timestamp(r.AchievedAt), Rank: known(r.Ranks.Competition),
	}
	if r.HasScore {
		o.NewScore = (*int64)(&r.Score)
	}
	if r.Err != nil {
		o.Detail = messageOf(r.Err)
		if r.Reason == "" {
			o.Status, o.NewScore, o.Rank = pb.Outcome_FAILED, nil, nil
		}
	}
	return o
}
