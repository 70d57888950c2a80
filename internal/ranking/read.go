package ranking

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/coalesce"
)

const parallelReads = 32

func eachRead(ctx context.Context, n int, read func(ctx context.Context, i int) error) error {
	if n == 1 {
		return read(ctx, 0)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReads)
	for i := range n {
		group.Go(func() error { return read(ctx, i) })
	}
	return group.Wait()
}

// f must not keep the slice.
func eachChunk[V any](seq iter.Seq2[V, error], n int, f func([]V) error) error {
	var chunk []V
	for v, err := range seq {
		if err != nil {
			return err
		}
		if chunk = append(chunk, v); len(chunk) == n {
			if err := f(chunk); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
	}
	if len(chunk) == 0 {
		return nil
	}
	return f(chunk)
}

// Reader answers queries. Ranks come from the index, or from the final standings of a sealed
// season. If the index cannot answer, entries without ranks come from the store.
type Reader struct {
	*shared
	storePages coalesce.Group[storePage, *[]leaderboard.Entry]
	// storeAnswers has, for each entry, the time when [Reader.User] last answered from the store:
	// see isBehind.
	storeAnswers *lru.Cache[leaderboard.EntryKey, time.Time]
	feeds        feeds
	checksums    *checksums
}

func newReader(common *shared) *Reader {
	r := &Reader{shared: common, feeds: feeds{all: map[PageQuery]*feed{}}, checksums: newChecksums()}
	r.storePages.Call = r.readStorePage
	r.storeAnswers, _ = lru.New[leaderboard.EntryKey, time.Time](maxStoreAnswers) // New only fails if the size is below 1
	return r
}

// Boards returns all boards, in the order of their ids.
func (r *Reader) Boards(ctx context.Context) ([]leaderboard.Board, error) {
	return r.store.Boards(ctx)
}

// Query selects the ladder and the ranking method of a read.
type Query struct {
	Board leaderboard.BoardID
	// Resolved is the board, if the caller has read it for the same request, or nil.
	Resolved *leaderboard.Board
	Season   leaderboard.SeasonID // empty means the current season; SeasonLatest means the newest season with entries
	Division leaderboard.Division
	Method   leaderboard.Method
	Include  Include
}

// The caller must not change the board.
func (r *Reader) boardOf(ctx context.Context, q *Query) (*leaderboard.Board, error) {
	if q.Resolved != nil {
		return q.Resolved, nil
	}
	return r.board(ctx, q.Board)
}

// About describes the ladder of an answer, and how recent its data is.
type About struct {
	Board  leaderboard.Board
	Season leaderboard.Season
	leaderboard.Division
	Method leaderboard.Method
	// Total is the number of users with a rank in the ladder, Unranked that of the users without one. Both are 0 if
	// Degraded is true.
	Total, Unranked int64
	// AsOf is the time of the last change in the answer. In a season without changes, it is the
	// time when the board was created. In a sealed season, it is the time of the seal or of the
	// last amendment. If Degraded is true, it is the time when the store was read.
	AsOf time.Time
	// ScoredAt is the time for which scores are computed. It affects only decay boards.
	ScoredAt time.Time
	// Sealed is true if the season's standings are final.
	Sealed bool
	// Filling is true if the season may lack results of the source, or if the ladder may lack
	// users because its division is new.
	Filling bool
	// Degraded is true if the rank index could not answer: entries come from the store, and
	// ranks are unknown.
	Degraded bool
}

// Line is an entry of an answer. Rank is 0 if it is unknown, or if Finish is not Ranked.
type Line struct {
	User        leaderboard.UserID
	Score       leaderboard.Score
	Exact       string // Score without rounding, on decay and average boards
	TieBreakers []int64
	AchievedAt  time.Time // zero if the board orders equal users by their ids
	Rank        int64
	Finish      leaderboard.Finish
	// Current is true for the queried user among its neighbors.
	Current bool
	// Entry and Profile are set if the query includes them. Profile is nil if the user has none.
	Entry   *leaderboard.Entry
	Profile *leaderboard.Profile
}

func seasonOrCurrent(b *leaderboard.Board, id leaderboard.SeasonID, now time.Time) (leaderboard.Season, error) {
	if id != "" {
		return b.Season.ByID(id)
	}
	season, err := b.Season.At(now)
	if err != nil {
		return leaderboard.Season{}, fmt.Errorf("ranking: board %q has no current season; set season to one of the board's seasons, or to %s, the newest season with entries: %w", b.ID, leaderboard.SeasonLatest, err)
	}
	return season, nil
}

// scoreTime returns the time for which a decay board computes scores: the season's end if the
// season has ended, else now.
func scoreTime(b *leaderboard.Board, id leaderboard.SeasonID, now time.Time) time.Time {
	now = leaderboard.Truncate(now)
	if season, err := b.Season.ByID(id); err == nil && !season.End.IsZero() && season.End.Before(now) {
		return season.End
	}
	return now
}

type view struct {
	leaderboard.Ranker
	board    *leaderboard.Board
	season   leaderboard.Season
	ladder   leaderboard.Ladder
	method   leaderboard.Method
	scoredAt time.Time
	sealed   bool
	filling  bool
}

func (r *Reader) view(ctx context.Context, b *leaderboard.Board, q Query) (*view, error) {
	if q.Method == leaderboard.Ordinal && b.Ties == leaderboard.Shared {
		return nil, &leaderboard.FieldError{Field: "method", Problem: "ordinal is not allowed, because equal users share their ranks on this board; use competition or dense"}
	}
	season, err := r.season(ctx, b, q.Season)
	if err != nil {
		return nil, err
	}
	record, sealed, err := r.seasonRecord(ctx, b, season)
	if err != nil {
		return nil, err
	}
	declared := b
	if sealed {
		declared = b.WithRules(record.Rules)
	}
	if q.Division, err = declared.Division(q.Division); err != nil {
		return nil, err
	}
	v := &view{
		board: b, season: season, method: q.Method, sealed: sealed, filling: b.FillingSeason(season.ID, r.now()), Ranker: r.index,
		ladder:   leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: season.ID}, Division: q.Division},
		scoredAt: scoreTime(b, season.ID, r.now()),
	}
	if sealed {
		v.Ranker = finalRanker{r.store, record}
	}
	v.Ranker = rankerFor(b, v.Ranker)
	return v, nil
}

// read calls f with the ladder of a query on board b. If f fails, read calls f again in three
// cases:
//
//   - The season was sealed or deleted after its record was cached. read reads the record again.
//   - The season is not in the index. read first loads it.
//   - The season has no users. f then reads an empty ladder.
//
// Errors: [leaderboard.ErrRankUnavailable] if the index cannot answer; [leaderboard.ErrMethodUnavailable].
func (r *Reader) read(ctx context.Context, b *leaderboard.Board, q Query, f func(*view) error) error {
	v, err := r.view(ctx, b, q)
	if err != nil {
		return err
	}
	err = f(v)
	unavailable := errors.Is(err, leaderboard.ErrRankUnavailable) || errors.Is(err, leaderboard.ErrMethodUnavailable)
	if v.sealed && errors.Is(err, leaderboard.ErrNotSealed) || !v.sealed && unavailable && r.mayBeSealed(v.season) {
		r.forgetSeason(v.ladder.SeasonKey)
		if v, err = r.view(ctx, b, q); err != nil {
			return err
		}
		err = f(v)
	}
	if v.sealed || !errors.Is(err, leaderboard.ErrRankUnavailable) {
		return err
	}
	hadUsers, err := r.index.recentlyHadUsers(ctx, v.ladder.SeasonKey)
	if err != nil {
		return err
	}
	if hadUsers {
		if err := r.index.load(ctx, v.board, v.ladder.SeasonKey); err != nil {
			return err
		}
		if err = f(v); !errors.Is(err, leaderboard.ErrRankUnavailable) {
			return err
		}
		// recentlyHadUsers has a cache: the season may have lost its last user since.
		if hasUsers, storeErr := r.index.hasUsers(ctx, v.ladder.SeasonKey); hasUsers || storeErr != nil {
			return err
		}
	}
	r.forgetSeason(v.ladder.SeasonKey)
	changedAt, err := r.store.ChangedAt(ctx, v.ladder.SeasonKey)
	if err != nil {
		return err
	}
	if changedAt.Before(b.CreatedAt) {
		changedAt = b.CreatedAt
	}
	v.Ranker = emptyRanker{changedAt}
	return f(v)
}

func (v *view) about(ladderView leaderboard.View) About {
	return About{
		Board: *v.board, Season: v.season, Division: v.ladder.Division, Method: v.method,
		Total: ladderView.Ranked(), Unranked: ladderView.Unranked, AsOf: ladderView.AsOf, ScoredAt: v.scoredAt, Sealed: v.sealed,
		Filling: v.filling || !v.sealed && v.board.IsFilling(v.ladder.Division.Attribute),
	}
}

// The caller must read the store after aboutStore, because AsOf is the time of this call.
func (r *Reader) aboutStore(v *view) About {
	about := v.about(leaderboard.View{AsOf: leaderboard.Truncate(r.now())})
	about.Degraded = true
	r.metrics.degradedReads.Inc()
	return about
}

// withoutRank is the line of an entry while its rank is unknown.
func (v *view) withoutRank(e *leaderboard.Entry) Line {
	return v.line(&leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt})
}

func (v *view) line(st *leaderboard.Standing) Line {
	l := Line{
		User: st.User, Score: v.board.ScoreOf(st.Key, v.scoredAt), Exact: v.board.ExactScoreOf(st.Key, v.scoredAt), TieBreakers: v.board.TieBreakersOf(st.Key),
		AchievedAt: v.board.AchievedAt(st.AchievedAt), Finish: v.board.FinishOf(st.Key),
	}
	if l.Finish == leaderboard.Ranked {
		l.Rank = st.Ranks.By(v.method)
	}
	return l
}

func (v *view) lines(standings []leaderboard.Standing) []Line {
	lines := make([]Line, len(standings))
	for i := range standings {
		lines[i] = v.line(&standings[i])
	}
	return lines
}

func hasPlace(e *leaderboard.Entry, d leaderboard.Division) bool {
	return e.Ranked() && (d.Overall() || slices.Contains(e.Divisions, d))
}

func (r *Reader) addEntries(ctx context.Context, key leaderboard.SeasonKey, lines []Line) error {
	return eachRead(ctx, len(lines), func(ctx context.Context, i int) error {
		e, err := r.store.Entry(ctx, key, lines[i].User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			return nil
		}
		lines[i].Entry = &e
		return err
	})
}

func (r *Reader) keysAt(ctx context.Context, key leaderboard.SeasonKey, positions []int64) (keys []leaderboard.RankKey, err error) {
	if r.index.isSilent() {
		return nil, errBreakerOpen
	}
	b, err := r.board(ctx, key.Board)
	if err != nil {
		return nil, err
	}
	err = r.read(ctx, b, Query{Board: b.ID, Season: key.Season}, func(v *view) error {
		survey, _, err := v.Survey(ctx, v.ladder, leaderboard.SurveyQuery{Positions: positions}, leaderboard.Ordinal)
		keys = survey.Positions
		return err
	})
	return keys, err
}

// ranksOf returns the competition ranks of keys. Keys of entries without a rank have the rank 0.
func (r *Reader) ranksOf(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, keys []leaderboard.RankKey) ([]int64, error) {
	if r.index.isSilent() {
		return nil, errBreakerOpen
	}
	ranks := make([]int64, len(keys))
	err := r.read(ctx, b, Query{Board: b.ID, Season: season}, func(v *view) error {
		counts, _, err := v.Count(ctx, v.ladder, keys, leaderboard.Competition)
		for i, c := range counts {
			if ranks[i] = c.Standings + 1; b.FinishOf(keys[i]) != leaderboard.Ranked {
				ranks[i] = 0
			}
		}
		return err
	})
	return ranks, err
}
