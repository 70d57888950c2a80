package server

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/protoconv"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func boardID(id string) leaderboard.BoardID {
	return cmp.Or(leaderboard.BoardID(id), leaderboard.DefaultBoard)
}

type ladderRequest interface {
	GetBoard() string
	GetSeason() string
	GetDivision() string
	GetDivisions() []string
	GetMethod() string
}

func toQuery(ctx context.Context, req ladderRequest) (ranking.Query, error) {
	id := boardID(req.GetBoard())
	q := ranking.Query{Board: id, Resolved: resolvedBoard(ctx, id), Season: leaderboard.SeasonID(req.GetSeason())}
	var err error
	if q.Division, err = toDivision(req.GetDivision(), req.GetDivisions()); err != nil {
		return q, err
	}
	if r, ok := req.(interface {
		GetIncludeMetadata() bool
		GetIncludeProfile() bool
	}); ok {
		q.Include = ranking.Include{Entry: r.GetIncludeMetadata(), Profiles: r.GetIncludeProfile()}
	}
	q.Method, err = toMethod(req.GetMethod())
	return q, err
}

// toDivision returns the division that crosses all parts of first and others.
func toDivision(first string, others []string) (leaderboard.Division, error) {
	if len(others) > leaderboard.MaxAttributes { // [leaderboard.Board.Division] checks the smaller limit, MaxCrossed
		return leaderboard.Division{}, &leaderboard.FieldError{Field: "division", Problem: fmt.Sprintf("%d given, at most %d are allowed", len(others), leaderboard.MaxCrossed)}
	}
	var parts []leaderboard.Division
	for _, text := range append([]string{first}, others...) {
		d, err := leaderboard.ParseDivision(text)
		if err != nil {
			return d, err
		}
		parts = append(parts, d.Parts()...)
	}
	return leaderboard.Cross(parts...), nil
}

func toMethod(name string) (m leaderboard.Method, err error) {
	if name != "" {
		err = m.UnmarshalText([]byte(name))
	}
	return m, err
}

// rankOrNil returns nil for the unknown rank 0.
func rankOrNil(rank int64) *int64 {
	if rank == 0 {
		return nil
	}
	return &rank
}

func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func fromLine(l *ranking.Line) *pb.Entry {
	e := &pb.Entry{
		UserId: string(l.User), Score: int64(l.Score), ScoreExact: textOrNil(l.Exact), Rank: rankOrNil(l.Rank),
		AchievedAt: protoconv.Timestamp(l.AchievedAt), TieBreakers: l.TieBreakers, Profile: displayed(l.Profile),
	}
	if l.Finish != leaderboard.Ranked {
		e.Status = new(protoconv.FromFinish(l.Finish))
	}
	if l.Entry != nil {
		match := string(l.Entry.Match)
		e.MatchId, e.Metadata, e.Divisions = &match, protoconv.FromMetadata(l.Entry.Metadata), protoconv.FromDivisions(l.Entry.Divisions)
	}
	return e
}

func unrankedOrNil(a *ranking.About) *int64 {
	if a.Degraded || !a.Board.HasUnranked() {
		return nil
	}
	return &a.Unranked
}

func totalOrNil(a *ranking.About) *int64 {
	if a.Degraded {
		return nil
	}
	return &a.Total
}

// scoredAt returns the time that decaying scores are computed for, or nil if scores do not decay.
func scoredAt(a *ranking.About) *timestamppb.Timestamp {
	if !a.Board.Fades() {
		return nil
	}
	return protoconv.Timestamp(a.ScoredAt)
}

func trueOrNil(v bool) *bool {
	if !v {
		return nil
	}
	return &v
}

func fromPage(a *ranking.About, lines []ranking.Line) *pb.Leaderboard {
	list := &pb.Leaderboard{
		Leaderboard: make([]*pb.Entry, len(lines)), Count: int32(len(lines)), Total: totalOrNil(a), Unranked: unrankedOrNil(a),
		Board: string(a.Board.ID), Season: string(a.Season.ID), SeasonEnd: protoconv.Timestamp(a.Season.End), Division: a.Division.String(), Method: a.Method.String(),
		AsOf: protoconv.Timestamp(a.AsOf), Degraded: a.Degraded, Sealed: a.Sealed, ScoredAt: scoredAt(a), Filling: trueOrNil(a.Filling),
	}
	for i := range lines {
		list.Leaderboard[i] = fromLine(&lines[i])
	}
	return list
}

func fromUser(p *ranking.UserPage) *pb.GetUserScoreResponse_UserScore {
	e := fromLine(&p.Line)
	u := &pb.GetUserScoreResponse_UserScore{
		UserId: e.UserId, ScoreExact: e.ScoreExact, Rank: e.Rank, AchievedAt: e.AchievedAt, TieBreakers: e.TieBreakers,
		MatchId: e.MatchId, Metadata: e.Metadata, Divisions: e.Divisions, Profile: e.Profile,
		NeighborsClippedAbove: p.ClippedAbove, NeighborsClippedBelow: p.ClippedBelow,
		Status: e.Status, Total: totalOrNil(&p.About), Unranked: unrankedOrNil(&p.About), Board: string(p.Board.ID), Season: string(p.Season.ID), SeasonEnd: protoconv.Timestamp(p.Season.End), Division: p.Division.String(),
		Method: p.Method.String(), AsOf: protoconv.Timestamp(p.AsOf), Degraded: p.Degraded, Sealed: p.Sealed, ScoredAt: scoredAt(&p.About),
		Filling: trueOrNil(p.Filling), WouldRank: rankOrNil(p.WouldRank),
	}
	if !p.NoEntry {
		u.Score = &e.Score
	}
	if !p.Degraded && !p.NoEntry && p.Finish == leaderboard.Ranked {
		u.Percentile = &p.Percentile
	}
	if t := p.Target; t != nil {
		u.ToRank = &pb.GetUserScoreResponse_ToRank{Rank: t.Rank, Score: (*int64)(t.Score), Gap: (*int64)(t.Gap), ScoreExact: textOrNil(t.Exact)}
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
		Board: string(s.Board.ID), Season: string(s.Season.ID), SeasonEnd: protoconv.Timestamp(s.Season.End), Division: s.Division.String(), Method: s.Method.String(),
		Total: s.Total, Unranked: unrankedOrNil(&s.About), AsOf: protoconv.Timestamp(s.AsOf), Sealed: s.Sealed, Filling: trueOrNil(s.Filling),
		BestScore: (*int64)(s.Best), WorstScore: (*int64)(s.Worst),
		ScoreAtRank: (*int64)(s.ScoreAtRank), ScoreAtRankExact: textOrNil(s.ExactAtRank), RankOfScore: rankOrNil(s.RankOfScore), ScoredAt: scoredAt(&s.About),
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
		Id: string(s.ID), Start: protoconv.Timestamp(s.Start), End: protoconv.Timestamp(s.End), Status: string(s.Phase), Entrants: s.Total,
		SealedAt: protoconv.Timestamp(s.SealedAt), ClosesAt: protoconv.Timestamp(s.ClosesAt), RemovedAt: protoconv.Timestamp(s.RemovedAt),
		EndedAt: protoconv.Timestamp(s.EndedAt), Filling: trueOrNil(s.Filling), AsOf: protoconv.Timestamp(s.AsOf),
		ChangedAt: protoconv.Timestamp(s.ChangedAt),
	}
	for _, a := range s.Amendments {
		season.Amendments = append(season.Amendments, &pb.ListSeasonsResponse_Amendment{At: protoconv.Timestamp(a.At), Reason: a.Reason})
	}
	return season
}

func fromReceipt(b *leaderboard.Board, user leaderboard.UserID, r *ranking.Receipt) *pb.Outcome {
	o := &pb.Outcome{
		UserId: string(user), MatchId: string(r.Match), Status: protoconv.FromStatus(r.Status), Reason: string(r.Reason),
		Revision: r.Revision, Season: string(r.Season), AchievedAt: protoconv.Timestamp(r.AchievedAt), Rank: rankOrNil(r.Rank),
		PreviousScore: (*int64)(r.Previous), PreviousRank: rankOrNil(r.PreviousRank), PersonalBest: r.PersonalBest,
	}
	if r.HasScore {
		o.NewScore, o.NewScoreExact = (*int64)(&r.Score), textOrNil(r.Exact)
	}
	if !r.AsOf.IsZero() {
		o.Method, o.AsOf, o.Sealed = new(leaderboard.Competition.String()), protoconv.Timestamp(r.AsOf), r.Sealed
	}
	switch {
	case r.Reason != "":
	case r.Banned:
		o.Reason = reasonBanned
	case r.Finish != leaderboard.Ranked:
		o.Reason = r.Finish.String()
	}
	for _, l := range r.Linked {
		linked := &pb.Outcome_Linked{BoardId: string(l.Board.ID), Season: string(l.Season), NewScore: (*int64)(l.Score), NewScoreExact: textOrNil(l.Exact), Rank: rankOrNil(l.Rank),
			AsOf: protoconv.Timestamp(l.AsOf), Sealed: l.Sealed}
		if l.Skipped != "" {
			linked.Skipped = new(string(l.Skipped))
		}
		o.Linked = append(o.Linked, linked)
	}
	switch {
	case r.Err != nil:
		o.Detail = messageOf(r.Err)
		if r.Reason == "" {
			o.Status, o.NewScore, o.NewScoreExact, o.Rank = pb.Outcome_FAILED, nil, nil, nil
		}
	case r.Status == leaderboard.Rejected:
		o.Detail = refusalMessage(b, r)
	case r.Status == leaderboard.Conflict:
		o.Stands, o.Detail = &r.Stands, conflictMessage(r)
	}
	return o
}

func conflictMessage(r *ranking.Receipt) string {
	counts := "the stored one counts"
	if r.Stands {
		counts = "this one counts from now on"
	}
	return fmt.Sprintf("a different result with revision %d was stored before; regardless of the order of arrival, %s; to change this, submit a higher revision", r.Revision, counts)
}
