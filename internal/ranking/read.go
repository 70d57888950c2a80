package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// MaxLimit bounds a page.
	MaxLimit = 1000
	// MaxNeighbors bounds the neighbors on each side.
	MaxNeighbors = 50
	// MaxLookup bounds the users of a lookup.
	MaxLookup = 5000
)

// Query names what a read is about.
type Query struct {
	Board    leaderboard.BoardID
	Season   leaderboard.SeasonID // the current one if empty
	Division leaderboard.Division
	Method   leaderboard.Method
}

// About is what an answer is about and how fresh it is.
type About struct {
	Board  leaderboard.Board
	Season leaderboard.Season
	leaderboard.Division
	Method leaderboard.Method
	// Total is the number of entrants. It is not known if Degraded.
	Total int64
	// AsOf is the time of the last change that the answer includes; zero if
	// there never was one. If Degraded, it is when the store was read.
	AsOf time.Time
	// ScoredAt is the moment that the scores of a decay board are for.
	ScoredAt time.Time
	// Sealed says that the season's standings are final.
	Sealed bool
	// Degraded says that the rank index cannot answer: entries come from the
	// store and the ranks of users are unknown.
	Degraded bool
}

// Line is an entry of an answer. Rank is 0 if it is not known.
type Line struct {
	User        leaderboard.UserID
	Score       leaderboard.Score
	TieBreakers []int64
	AchievedAt  time.Time
	Rank        int64
	// Current marks the user asked for among its neighbors.
	Current bool
	// Entry is there if details were asked for.
	Entry *leaderboard.Entry
}

// season returns the season of an id, or the current one.
func (s *Service) season(b *leaderboard.Board, id leaderboard.SeasonID) (leaderboard.Season, error) {
	if id != "" {
		return b.Season.ByID(id)
	}
	season, err := b.Season.At(s.now())
	if err != nil {
		return leaderboard.Season{}, fmt.Errorf("ranking: board %q has no season now, name one: %w", b.ID, err)
	}
	return season, nil
}

// scoredAt is the moment that decayed scores of a season are shown for: the
// present, or the season's end once it is over.
func (s *Service) scoredAt(b *leaderboard.Board, id leaderboard.SeasonID) time.Time {
	now := leaderboard.Truncate(s.now())
	if season, err := b.Season.ByID(id); err == nil && !season.End.IsZero() && season.End.Before(now) {
		return season.End
	}
	return now
}

// view answers about ranks of one ladder, from the index or, for a sealed
// season, from the final standings.
type view struct {
	leaderboard.Ranker
	board    *leaderboard.Board
	season   leaderboard.Season
	ladder   leaderboard.Ladder
	method   leaderboard.Method
	scoredAt time.Time
	sealed   bool
}

// ask resolves q and calls f, twice if the index had to be filled first. It
// returns [leaderboard.ErrRankUnavailable] if the index cannot answer.
func (s *Service) ask(ctx context.Context, q Query, f func(*view) error) error {
	v, err := s.view(ctx, q)
	if err != nil {
		return err
	}
	err = f(v)
	if v.sealed && errors.Is(err, leaderboard.ErrNotSealed) || !v.sealed && errors.Is(err, leaderboard.ErrRankUnavailable) && s.mayBeSealed(v.season) {
		// Another process may have sealed the season a moment ago, or deleted it.
		s.seasons.Delete(v.ladder.Scope)
		if v, err = s.view(ctx, q); err != nil {
			return err
		}
		err = f(v)
	}
	if v.sealed || !errors.Is(err, leaderboard.ErrRankUnavailable) {
		return err
	}
	known, err := s.populated(ctx, v.ladder.Scope)
	if err != nil {
		return err
	}
	if !known {
		s.seasons.Delete(v.ladder.Scope)
		v.Ranker = emptyRanker{}
		return f(v)
	}
	if err := s.load(ctx, v.board, v.ladder.Scope); err != nil {
		return err
	}
	return f(v)
}

// populated says whether a scope has any user, so that asking for seasons that
// nobody played costs no memory.
func (s *Service) populated(ctx context.Context, scope leaderboard.Scope) (bool, error) {
	for _, err := range s.store.Users(ctx, scope) {
		return err == nil, err
	}
	return false, nil
}

func (s *Service) view(ctx context.Context, q Query) (*view, error) {
	b, err := s.board(ctx, q.Board)
	if err != nil {
		return nil, err
	}
	season, err := s.season(b, q.Season)
	if err != nil {
		return nil, err
	}
	if !q.Division.Overall() && !slices.Contains(b.Divisions, q.Division.Attribute) {
		return nil, &leaderboard.FieldError{Field: "division", Problem: fmt.Sprintf("the board has no division by %q, but by %v", q.Division.Attribute, b.Divisions)}
	}
	record, sealed, err := s.sealedSeason(ctx, b, season)
	if err != nil {
		return nil, err
	}
	v := &view{
		board: b, season: season, method: q.Method, sealed: sealed, Ranker: patient{s},
		ladder:   leaderboard.Ladder{Scope: leaderboard.Scope{Board: b.ID, Season: season.ID}, Division: q.Division},
		scoredAt: s.scoredAt(b, season.ID),
	}
	if sealed {
		v.Ranker = finalRanker{s.store, record}
	}
	return v, nil
}

func (v *view) about(seen leaderboard.View) About {
	return About{
		Board: *v.board, Season: v.season, Division: v.ladder.Division, Method: v.method,
		Total: seen.Size, AsOf: seen.AsOf, ScoredAt: v.scoredAt, Sealed: v.sealed,
	}
}

// degraded is about an answer from the store, which is about to be read.
func (s *Service) degraded(v *view) About {
	about := v.about(leaderboard.View{AsOf: leaderboard.Truncate(s.now())})
	about.Degraded = true
	return about
}

// unranked is the line of an entry without ranks.
func (v *view) unranked(e *leaderboard.Entry) Line {
	return v.line(&leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt})
}

// stands says whether an entry is in the ladder.
func (v *view) stands(e *leaderboard.Entry) bool {
	return e.Ranked() && (v.ladder.Division.Overall() || slices.Contains(e.Divisions, v.ladder.Division))
}

func (v *view) line(st *leaderboard.Standing) Line {
	return Line{
		User: st.User, Score: v.board.ScoreOf(st.Key, v.scoredAt), TieBreakers: v.board.TieBreakersOf(st.Key),
		AchievedAt: st.AchievedAt, Rank: st.Ranks.By(v.method),
	}
}

func (v *view) lines(standings []leaderboard.Standing) []Line {
	lines := make([]Line, len(standings))
	for i := range standings {
		lines[i] = v.line(&standings[i])
	}
	return lines
}

// detail gives lines their entries.
func (s *Service) detail(ctx context.Context, scope leaderboard.Scope, lines []Line) error {
	for i := range lines {
		e, err := s.store.Entry(ctx, scope, lines[i].User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			continue // gone since the ranks were read
		}
		if err != nil {
			return err
		}
		lines[i].Entry = &e
	}
	return nil
}

// Page is a list of entries in standing order.
type Page struct {
	About
	Lines []Line
	// Next is the token of the next page, empty on the last.
	Next string
}

// PageQuery asks for up to Limit entries: those that follow the page that Token
// came with, or, without it, those from the position Start on.
type PageQuery struct {
	Query
	Limit   int   // 1 to MaxLimit
	Start   int64 // from 1; 0 is 1
	Token   string
	Details bool // with entries
}

// Page returns a page. If the rank index cannot answer, it comes from the store,
// Degraded, unless it begins at a position further down. Pages by token neither repeat nor leave out an entry
// that did not move meanwhile.
func (s *Service) Page(ctx context.Context, q PageQuery) (Page, error) {
	if q.Limit < 1 || q.Limit > MaxLimit {
		return Page{}, &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("%d is not 1 to %d", q.Limit, MaxLimit)}
	}
	if q.Start < 0 || q.Start > 0 && q.Token != "" {
		return Page{}, &leaderboard.FieldError{Field: "start_rank", Problem: "is from 1, and not with a page_token"}
	}
	var page Page
	var scope leaderboard.Scope
	err := s.ask(ctx, q.Query, func(v *view) error {
		scope = v.ladder.Scope
		standings, seen, err := v.page(ctx, q)
		if err != nil {
			return err
		}
		if len(standings) == q.Limit && standings[q.Limit-1].Ranks.Ordinal < seen.Size {
			page.Next = v.token(standings[q.Limit-1].SortKey())
		}
		page.About, page.Lines = v.about(seen), v.lines(standings)
		return nil
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) && q.Start <= 1 {
		page, err = s.pageFromStore(ctx, q)
		scope = leaderboard.Scope{Board: page.Board.ID, Season: page.Season.ID}
	}
	if err == nil && q.Details {
		err = s.detail(ctx, scope, page.Lines)
	}
	return page, err
}

func (v *view) page(ctx context.Context, q PageQuery) ([]leaderboard.Standing, leaderboard.View, error) {
	if q.Token == "" {
		return v.Page(ctx, v.ladder, max(q.Start, 1), q.Limit)
	}
	after, err := v.parseToken(q.Token)
	if err != nil {
		return nil, leaderboard.View{}, err
	}
	return v.PageAfter(ctx, v.ladder, after, q.Limit)
}

// pageFromStore is a page without the index.
func (s *Service) pageFromStore(ctx context.Context, q PageQuery) (Page, error) {
	v, err := s.view(ctx, q.Query)
	if err != nil {
		return Page{}, err
	}
	var last leaderboard.SortKey
	if q.Token != "" {
		if last, err = v.parseToken(q.Token); err != nil {
			return Page{}, err
		}
	}
	page := Page{About: s.degraded(v)}
	var entries []leaderboard.Entry
	if err := s.storePages.Ask(ctx, storePage{v.ladder, last, q.Limit}, &entries); err != nil {
		return Page{}, err
	}
	if len(entries) > q.Limit {
		entries = entries[:q.Limit]
		page.Next = v.token(entries[q.Limit-1].SortKey())
	}
	for i := range entries {
		page.Lines = append(page.Lines, v.unranked(&entries[i]))
	}
	return page, nil
}

// storePage is a page of a ladder in the store.
type storePage struct {
	ladder leaderboard.Ladder
	after  leaderboard.SortKey
	limit  int
}

// storePatience bounds a read of a page that is shared, so that who comes later
// does not wait behind one that hangs.
const storePatience = 10 * time.Second

// readStorePage reads a page, and one entry more, for all who wait for it: while
// there is no index everybody asks for the same top, and each time the store has
// to read every bucket of the ladder.
func (s *Service) readStorePage(_ context.Context, p storePage, readers []*[]leaderboard.Entry) error {
	ctx, cancel := context.WithTimeout(s.life, storePatience)
	defer cancel()
	s.unfinished.Add(1)
	defer s.unfinished.Done()
	var entries []leaderboard.Entry
	for e, err := range s.store.Entries(ctx, p.ladder, p.after) {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("ranking: %v was not read in %v: %w: %w", p.ladder, storePatience, leaderboard.ErrUnavailable, err)
		}
		if err != nil {
			return err
		}
		if entries = append(entries, e); len(entries) > p.limit {
			break
		}
	}
	for _, r := range readers {
		*r = entries
	}
	return nil
}

// UserPage is a user's entry with its neighbors.
type UserPage struct {
	About
	Line
	// Percentile is the share of entrants, in percent, that stand strictly
	// worse: of 100 distinct scores the best is at 99.
	Percentile float64
	// Neighbors are in standing order, the user among them; up to as many above
	// and below as asked for. At an end of the ladder the window is clipped, and says so.
	Neighbors                  []Line
	ClippedAbove, ClippedBelow bool
}

// User returns a user's entry, with up to neighbors entries above and below.
// Without the rank index the entry comes from the store, Degraded and without
// rank. It returns [leaderboard.ErrEntryNotFound] for a user without entry.
func (s *Service) User(ctx context.Context, q Query, user leaderboard.UserID, neighbors int, details bool) (UserPage, error) {
	if neighbors < 0 || neighbors > MaxNeighbors {
		return UserPage{}, &leaderboard.FieldError{Field: "neighbors", Problem: fmt.Sprintf("%d is not 0 to %d", neighbors, MaxNeighbors)}
	}
	if err := user.Validate(); err != nil {
		return UserPage{}, err
	}
	var page UserPage
	err := s.ask(ctx, q, func(v *view) error {
		standings, seen, err := v.Around(ctx, v.ladder, user, neighbors, neighbors)
		if err != nil {
			return err
		}
		page.About, page.Neighbors = v.about(seen), v.lines(standings)
		above := slices.IndexFunc(standings, func(st leaderboard.Standing) bool { return st.User == user })
		page.Neighbors[above].Current = true
		page.Line = page.Neighbors[above]
		page.ClippedAbove = above < neighbors
		page.ClippedBelow = len(standings)-1-above < neighbors
		notWorse, err := v.notWorse(ctx, standings[above].Key, seen.Size)
		page.Percentile = percent(seen.Size-notWorse, seen.Size)
		return err
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		page, err = s.userFromStore(ctx, q, user)
	}
	if err == nil && details {
		lines := []Line{page.Line}
		err = s.detail(ctx, leaderboard.Scope{Board: page.Board.ID, Season: page.Season.ID}, lines)
		page.Line = lines[0]
	}
	return page, err
}

// notWorse counts the standings whose rank key is k or better.
func (v *view) notWorse(ctx context.Context, k leaderboard.RankKey, size int64) (int64, error) {
	next := []byte(k)
	for i := len(next) - 1; i >= 0; i-- {
		if next[i]++; next[i] != 0 {
			counts, _, err := v.Count(ctx, v.ladder, []leaderboard.RankKey{leaderboard.RankKey(next)})
			if err != nil {
				return 0, err
			}
			return counts[0].Standings, nil
		}
	}
	return size, nil // nothing is worse than the worst of all keys
}

func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return max(0, float64(part)*100/float64(whole))
}

func (s *Service) userFromStore(ctx context.Context, q Query, user leaderboard.UserID) (UserPage, error) {
	v, err := s.view(ctx, q)
	if err != nil {
		return UserPage{}, err
	}
	about := s.degraded(v)
	e, err := s.store.Entry(ctx, v.ladder.Scope, user)
	if err != nil {
		return UserPage{}, err
	}
	if !v.stands(&e) {
		return UserPage{}, fmt.Errorf("ranking: user %q: %w", user, leaderboard.ErrEntryNotFound)
	}
	return UserPage{About: about, Line: v.unranked(&e)}, nil
}

// LookupPage holds the entries of the users of a lookup.
type LookupPage struct {
	About
	// Lines are in standing order, with ranks in the ladder; ListRanks are the
	// ranks, by the same method, among them alone.
	Lines     []Line
	ListRanks []int64
	// Missing are the users without entry, in the order asked for.
	Missing []leaderboard.UserID
}

// Lookup returns the entries of up to [MaxLookup] users, such as friends. A user
// named twice is answered once. Without the rank index the entries come from the
// store, Degraded and without ranks but those among them.
func (s *Service) Lookup(ctx context.Context, q Query, users []leaderboard.UserID) (LookupPage, error) {
	if len(users) == 0 || len(users) > MaxLookup {
		return LookupPage{}, &leaderboard.FieldError{Field: "user_ids", Problem: fmt.Sprintf("%d given, 1 to %d are allowed", len(users), MaxLookup)}
	}
	seenUser := map[leaderboard.UserID]bool{}
	unique := make([]leaderboard.UserID, 0, len(users))
	for i, u := range users {
		if u.Validate() != nil {
			return LookupPage{}, &leaderboard.FieldError{Field: fmt.Sprintf("user_ids[%d]", i), Problem: "is not 1 to 128 bytes of printable UTF-8"}
		}
		if !seenUser[u] {
			seenUser[u] = true
			unique = append(unique, u)
		}
	}
	var page LookupPage
	err := s.ask(ctx, q, func(v *view) error {
		standings, seen, err := v.Standings(ctx, v.ladder, unique)
		if err != nil {
			return err
		}
		page = LookupPage{About: v.about(seen)}
		var found []leaderboard.Standing
		for i, st := range standings {
			if st.Key == "" {
				page.Missing = append(page.Missing, unique[i])
			} else {
				found = append(found, st)
			}
		}
		slices.SortFunc(found, func(x, y leaderboard.Standing) int {
			return int(x.Ranks.Ordinal - y.Ranks.Ordinal)
		})
		page.fill(v, found)
		return nil
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) {
		return s.lookupInStore(ctx, q, unique)
	}
	return page, err
}

// fill gives the page standings, which are in order.
func (p *LookupPage) fill(v *view, standings []leaderboard.Standing) {
	p.Lines = v.lines(standings)
	var prev leaderboard.Standing
	for _, st := range standings {
		st.Succeed(&prev)
		p.ListRanks = append(p.ListRanks, st.Ranks.By(v.method))
		prev = st
	}
}

// lookupParallel is how many entries a lookup reads from the store at a time.
const lookupParallel = 32

func (s *Service) lookupInStore(ctx context.Context, q Query, users []leaderboard.UserID) (LookupPage, error) {
	v, err := s.view(ctx, q)
	if err != nil {
		return LookupPage{}, err
	}
	page := LookupPage{About: s.degraded(v)}
	entries := make([]leaderboard.Entry, len(users))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(lookupParallel)
	for i, user := range users {
		group.Go(func() error {
			e, err := s.store.Entry(gctx, v.ladder.Scope, user)
			if errors.Is(err, leaderboard.ErrEntryNotFound) {
				return nil
			}
			entries[i] = e
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return LookupPage{}, err
	}
	var found []leaderboard.Standing
	for i := range entries {
		if e := &entries[i]; v.stands(e) {
			found = append(found, leaderboard.Standing{User: e.User, Key: e.Key, AchievedAt: e.AchievedAt})
		} else {
			page.Missing = append(page.Missing, users[i])
		}
	}
	slices.SortFunc(found, func(x, y leaderboard.Standing) int { return cmp.Compare(x.SortKey(), y.SortKey()) })
	page.fill(v, found)
	return page, nil
}

// StatsQuery asks for figures of a ladder.
type StatsQuery struct {
	Query
	Buckets int                // of the histogram, 0 to MaxBuckets
	Score   *leaderboard.Score // whose rank is asked
	Rank    int64              // whose score is asked; 0 is none
}

// MaxBuckets bounds a histogram.
const MaxBuckets = 100

// Bucket counts the entrants with a score in [From, To], both included.
type Bucket struct {
	From, To leaderboard.Score
	Count    int64
}

// Percentile is the score that a share of the entrants stand strictly worse
// than or equal to.
type Percentile struct {
	Percent float64
	Score   leaderboard.Score
}

// Stats are figures of a ladder.
type Stats struct {
	About
	Best, Worst *leaderboard.Score // nil if nobody stands
	Histogram   []Bucket           // from the smallest score to the greatest
	Percentiles []Percentile       // the scores at 99, 95, 90, 75, 50, 25 and 10 percent
	// RankOfScore is the rank that a new entry of StatsQuery.Score would have.
	RankOfScore int64
	// ScoreAtRank is the score at the position StatsQuery.Rank; nil if nobody stands there.
	ScoreAtRank *leaderboard.Score
}

var statPercents = []float64{99, 95, 90, 75, 50, 25, 10}

// Stats returns figures of a ladder. They need the rank index.
func (s *Service) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	if q.Buckets < 0 || q.Buckets > MaxBuckets {
		return Stats{}, &leaderboard.FieldError{Field: "buckets", Problem: fmt.Sprintf("%d is not 0 to %d", q.Buckets, MaxBuckets)}
	}
	if q.Rank < 0 {
		return Stats{}, &leaderboard.FieldError{Field: "rank", Problem: "is from 1"}
	}
	if q.Score != nil && (*q.Score < -leaderboard.MaxScore || *q.Score > leaderboard.MaxScore) {
		return Stats{}, &leaderboard.FieldError{Field: "score", Problem: "is outside ±2^53"}
	}
	var stats Stats
	err := s.ask(ctx, q.Query, func(v *view) error {
		var err error
		stats, err = v.stats(ctx, q)
		return err
	})
	return stats, err
}

func (v *view) stats(ctx context.Context, q StatsQuery) (Stats, error) {
	first, seen, err := v.Page(ctx, v.ladder, 1, 1)
	if err != nil {
		return Stats{}, err
	}
	stats := Stats{About: v.about(seen)}
	if q.Score != nil {
		counts, _, err := v.Count(ctx, v.ladder, []leaderboard.RankKey{v.board.ScorePrefix(*q.Score, v.scoredAt)})
		if err != nil {
			return Stats{}, err
		}
		stats.RankOfScore = counts[0].Standings + 1
		if q.Method == leaderboard.Dense {
			stats.RankOfScore = counts[0].Distinct + 1
		}
	}
	if len(first) == 0 {
		return stats, nil
	}
	if stats.Best, err = v.scoreAt(ctx, 1); err != nil {
		return Stats{}, err
	}
	if stats.Worst, err = v.scoreAt(ctx, seen.Size); err != nil {
		return Stats{}, err
	}
	if q.Rank > 0 {
		if stats.ScoreAtRank, err = v.scoreAt(ctx, q.Rank); err != nil {
			return Stats{}, err
		}
	}
	for _, p := range statPercents {
		position := seen.Size - int64(float64(seen.Size)*p/100)
		score, err := v.scoreAt(ctx, max(position, 1))
		if err != nil {
			return Stats{}, err
		}
		if score != nil {
			stats.Percentiles = append(stats.Percentiles, Percentile{p, *score})
		}
	}
	if q.Buckets > 0 && stats.Best != nil && stats.Worst != nil {
		stats.Histogram, err = v.histogram(ctx, min(*stats.Best, *stats.Worst), max(*stats.Best, *stats.Worst), q.Buckets)
	}
	return stats, err
}

// scoreAt returns the score at a position, nil if nobody stands there.
func (v *view) scoreAt(ctx context.Context, position int64) (*leaderboard.Score, error) {
	page, _, err := v.Page(ctx, v.ladder, position, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	score := v.board.ScoreOf(page[0].Key, v.scoredAt)
	return &score, nil
}

// histogram counts the entrants with scores from lo to hi in up to n buckets of
// equal width. Entrants beyond are in the outermost: those who came since lo and hi
// were read, and those whose decayed sum is greater than a score can say.
func (v *view) histogram(ctx context.Context, lo, hi leaderboard.Score, n int) ([]Bucket, error) {
	width := max((hi-lo)/leaderboard.Score(n)+1, 1)
	var buckets []Bucket
	var edges []leaderboard.RankKey // of each bucket: both ends, better end first
	for from := lo; from <= hi; from += width {
		to := min(from+width-1, hi)
		buckets = append(buckets, Bucket{From: from, To: to})
		better, beyond := to, from-1
		if v.board.Order == leaderboard.LowerFirst {
			better, beyond = from, to+1
		}
		edges = append(edges, v.board.ScorePrefix(better, v.scoredAt), v.board.ScorePrefix(beyond, v.scoredAt))
	}
	counts, seen, err := v.Count(ctx, v.ladder, edges)
	if err != nil {
		return nil, err
	}
	best, worst := len(buckets)-1, 0
	if v.board.Order == leaderboard.LowerFirst {
		best, worst = worst, best
	}
	counts[2*best].Standings, counts[2*worst+1].Standings = 0, seen.Size
	for i := range buckets {
		buckets[i].Count = counts[2*i+1].Standings - counts[2*i].Standings
	}
	return buckets, nil
}
