package protoconv

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/open-leaderboard/leaderboard"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
)

// ToBoard converts a message to a board. A nil message is an empty message. ToBoard does
// not check limits. Its error joins a [leaderboard.FieldError] for each fault.
func ToBoard(b *pb.Board) (leaderboard.Board, error) {
	if b == nil {
		b = &pb.Board{}
	}
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
		Order: leaderboard.Order(order), Policy: leaderboard.Policy(policy), HalfLife: halfLife, K: int(b.GetK()),
		Unit: b.GetUnit(), Decimals: int(b.GetDecimals()), Divisions: b.GetDivisions(),
		Season: leaderboard.Schedule{
			Kind: leaderboard.ScheduleKind(schedule), TimeZone: b.GetSeason().GetTimeZone(), Grace: grace, Days: int(b.GetSeason().GetDays()),
		},
		DropWorst: int(b.GetDropWorst()), MinResults: b.GetMinResults(),
		MinScore: (*leaderboard.Score)(b.MinScore), MaxScore: (*leaderboard.Score)(b.MaxScore), Floor: (*leaderboard.Score)(b.Floor),
		Retention: retention, Private: b.GetPrivate(), AcceptedAttributes: b.GetAttributes(), Matches: b.GetMatches(), Shards: int(b.GetShards()),
	}
	ties, err := toEnum("ties", b.GetTies())
	board.Ties = leaderboard.TieRule(ties)
	errs = append(errs, setStarts(&board.Season, b.GetSeason()), err)
	for i, status := range b.GetStatuses() {
		finish, err := toEnum(fmt.Sprintf("statuses[%d]", i), status)
		errs = append(errs, err)
		board.Statuses = append(board.Statuses, leaderboard.Finish(finish))
	}
	if source := b.GetSource(); source != nil {
		board.Source = &leaderboard.Source{Board: leaderboard.BoardID(source.GetBoardId()), Match: source.GetMatch()}
	}
	for i, tb := range b.GetTieBreakers() {
		order, err1 := toEnum(fmt.Sprintf("tie_breakers[%d].order", i), tb.GetOrder())
		combine, err2 := toEnum(fmt.Sprintf("tie_breakers[%d].combine", i), tb.GetCombine())
		errs = append(errs, err1, err2)
		board.TieBreakers = append(board.TieBreakers, leaderboard.TieBreaker{Name: tb.GetName(), Order: leaderboard.Order(order), Combine: leaderboard.Combination(combine)})
	}
	for _, w := range b.GetSeason().GetWindows() {
		start, err1 := ToTime("season.windows.start", w.GetStart())
		end, err2 := ToTime("season.windows.end", w.GetEnd())
		errs = append(errs, err1, err2)
		board.Season.Windows = append(board.Season.Windows, leaderboard.Season{ID: leaderboard.SeasonID(w.GetId()), Start: start, End: end})
	}
	return board, errors.Join(errs...)
}

func setStarts(s *leaderboard.Schedule, m *pb.Board_Schedule) error {
	var errs []error
	if m.GetDayStart() != "" {
		errs = append(errs, s.DayStart.UnmarshalText([]byte(m.GetDayStart())))
	}
	if m.GetYearStart() != "" {
		errs = append(errs, s.YearStart.UnmarshalText([]byte(m.GetYearStart())))
	}
	weekStart, err1 := toEnum("season.week_start", m.GetWeekStart())
	every, err2 := toDuration("season.every", m.GetEvery())
	from, err3 := ToTime("season.from", m.GetFrom())
	s.WeekStart, s.Every, s.From = leaderboard.Weekday(weekStart), every, from
	return errors.Join(append(errs, err1, err2, err3)...)
}

func fromStarts(m *pb.Board_Schedule, s *leaderboard.Schedule) {
	if s.DayStart != 0 {
		m.DayStart = new(s.DayStart.String())
	}
	if s.YearStart != 0 {
		m.YearStart = new(s.YearStart.String())
	}
	if s.WeekStart != leaderboard.Monday {
		m.WeekStart = new(pb.Board_Schedule_MONDAY + pb.Board_Schedule_Weekday(s.WeekStart))
	}
	m.Every, m.From = duration(s.Every), Timestamp(s.From)
}

// toEnum converts an enum value of a message to the same value in the root package. The first
// value is 0 in the root package, and 0 or 1 in messages. For an unknown number, toEnum
// returns an error about field.
func toEnum(field string, v protoreflect.Enum) (int, error) {
	if v.Descriptor().Values().ByNumber(v.Number()) == nil {
		return 0, &leaderboard.FieldError{Field: field, Problem: fmt.Sprintf("%d is not %s", v.Number(), EnumNames(v.Descriptor()))}
	}
	return int(max(0, v.Number()-1)), nil
}

// FromFinish converts the finish of a result or an entry.
func FromFinish(f leaderboard.Finish) pb.Result_Finish { return pb.Result_RANKED + pb.Result_Finish(f) }

func fromOrder(o leaderboard.Order) pb.Board_Order { return pb.Board_HIGHER_FIRST + pb.Board_Order(o) }

// FromBoard converts a board to a message. It also sets the fields that only a server sets,
// such as created_at; ToBoard ignores these fields.
func FromBoard(b *leaderboard.Board) *pb.Board {
	board := &pb.Board{
		BoardId: string(b.ID), Title: b.Title,
		Order: fromOrder(b.Order), Policy: pb.Board_BEST + pb.Board_Policy(b.Policy), HalfLife: duration(b.HalfLife),
		Unit: b.Unit, Decimals: int32(b.Decimals), Divisions: b.Divisions,
		Season: &pb.Board_Schedule{
			Schedule: pb.Board_Schedule_NONE + pb.Board_Schedule_Kind(b.Season.Kind), TimeZone: cmp.Or(b.Season.TimeZone, "UTC"), Grace: durationpb.New(b.Season.Grace),
		},
		MinScore: (*int64)(b.MinScore), MaxScore: (*int64)(b.MaxScore), Floor: (*int64)(b.Floor),
		Retention: duration(b.Retention), Private: b.Private, CreatedAt: Timestamp(b.CreatedAt), Attributes: b.AcceptedAttributes,
	}
	if b.AcceptsAny() {
		board.Attributes = []string{leaderboard.AnyAttribute}
	}
	if b.K != 0 {
		board.K = new(int32(b.K))
	}
	if b.DropWorst != 0 {
		board.DropWorst = new(int32(b.DropWorst))
	}
	if b.MinResults != 0 {
		board.MinResults = new(b.MinResults)
	}
	if b.Ties != leaderboard.EarliestFirst {
		board.Ties = new(pb.Board_EARLIEST_FIRST + pb.Board_TieRule(b.Ties))
	}
	for _, f := range b.Statuses {
		board.Statuses = append(board.Statuses, FromFinish(f))
	}
	if b.Season.Days != 0 {
		board.Season.Days = new(int32(b.Season.Days))
	}
	fromStarts(board.Season, &b.Season)
	if b.Source != nil {
		board.Source = &pb.Board_Source{BoardId: string(b.Source.Board), Match: b.Source.Match}
	}
	if b.Shards != 0 {
		board.Shards = new(int32(b.Shards))
	}
	if b.Matches {
		board.Matches = new(true)
	}
	for _, id := range b.Links {
		board.LinkedBoards = append(board.LinkedBoards, string(id))
	}
	board.FillingDivisions = b.Unfilled
	if b.Filling() || len(b.Unfilled) > 0 || b.UnfilledMatches {
		board.Filling = new(true)
	}
	for _, tb := range b.TieBreakers {
		m := &pb.Board_TieBreaker{Name: tb.Name, Order: fromOrder(tb.Order)}
		if tb.Combine != leaderboard.Added {
			m.Combine = new(pb.Board_TieBreaker_SUM + pb.Board_TieBreaker_Combination(tb.Combine))
		}
		board.TieBreakers = append(board.TieBreakers, m)
	}
	for _, w := range b.Season.Windows {
		board.Season.Windows = append(board.Season.Windows, &pb.Board_Schedule_Window{Id: string(w.ID), Start: Timestamp(w.Start), End: Timestamp(w.End)})
	}
	return board
}

// toDuration rejects a value that does not fit into a [time.Duration]. AsDuration alone
// would replace it by the nearest [time.Duration], without an error.
func toDuration(field string, d *durationpb.Duration) (time.Duration, error) {
	if d != nil && (d.CheckValid() != nil || durationpb.New(d.AsDuration()).AsDuration() != d.AsDuration() || d.AsDuration().Seconds() < float64(d.Seconds)-1) {
		return 0, &leaderboard.FieldError{Field: field, Problem: "is not a valid duration of at most 292 years"}
	}
	return d.AsDuration(), nil
}

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// EnumNames lists the values of an enum for error messages, without the value 0.
func EnumNames(ed protoreflect.EnumDescriptor) string {
	var names []string
	for i := 1; i < ed.Values().Len(); i++ {
		names = append(names, string(ed.Values().Get(i).Name()))
	}
	return "one of " + strings.Join(names, ", ")
}

// FromDivisions returns the names of divisions.
func FromDivisions(divisions []leaderboard.Division) []string {
	names := make([]string, len(divisions))
	for i, d := range divisions {
		names[i] = d.String()
	}
	return names
}
