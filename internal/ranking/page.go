package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const maxLimit = 1000

// Page is a list of entries in standing order, those without a rank last, or in the opposite order if the query has Worst.
type Page struct {
	About
	Lines []Line
	// Next is the token of the next page. It is empty on the last page.
	Next string
	// InRange is the number of entries whose scores are in PageQuery.Scores. It may be counted
	// shortly after the page is read. It is nil if the query has no range or Degraded is true.
	InRange *int64
	// RankOfScore is the best rank that a new entry with the score PageQuery.Around could have. It is 0 if
	// the query has no Around.
	RankOfScore int64
}

// PageQuery selects up to Limit entries: after the page whose Next is Token, from position
// Start, or around a score.
type PageQuery struct {
	Query
	Limit int   // 1 to maxLimit
	Start int64 // from 1; 0 means 1
	Token string
	// Scores selects entries by their scores. It cannot be combined with Start.
	Scores ScoreRange
	// Worst lists the worst ranked entry first, and no entries without a rank. It cannot be combined with Start.
	Worst bool
	// Around selects the entries around a score, and no next page: Limit/2 entries with better scores, the
	// others with this score or a worse one. If one side has fewer, the other side has more. On decay and
	// average boards, the score is exact. Around can be combined with Limit only.
	Around *leaderboard.Score
	// TopPercent selects the ranked entries whose competition rank is at most this percentage of all ranked
	// entries, rounded up to a whole rank. It is more than 0 and at most 100; 0 means all entries, also those
	// without a rank. It cannot be combined with Scores, Worst or Around.
	TopPercent float64
}

func (q *PageQuery) validate() error {
	if q.Limit < 1 || q.Limit > maxLimit {
		return &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", maxLimit, q.Limit)}
	}
	if q.Start < 0 || q.Start > 0 && q.Token != "" {
		return &leaderboard.FieldError{Field: "start_rank", Problem: "must be at least 1 and cannot be combined with page_token"}
	}
	if q.Start > 0 && q.Scores.isSet() {
		return &leaderboard.FieldError{Field: "start_rank", Problem: "cannot be combined with min_score or max_score; use page_token"}
	}
	if q.Start > 0 && q.Worst {
		return &leaderboard.FieldError{Field: "start_rank", Problem: "cannot be combined with order=worst; use page_token"}
	}
	if q.TopPercent != 0 && !(q.TopPercent > 0 && q.TopPercent <= 100) { // NaN too
		return &leaderboard.FieldError{Field: "top_percent", Problem: "must be more than 0 and at most 100"}
	}
	if q.TopPercent != 0 && (q.Worst || q.Scores.isSet()) {
		return &leaderboard.FieldError{Field: "top_percent", Problem: "cannot be combined with order=worst, min_score or max_score"}
	}
	if err := q.checkAround(); err != nil {
		return err
	}
	return q.Scores.validate()
}

func (q *PageQuery) checkAround() error {
	switch {
	case q.Around == nil:
		return nil
	case *q.Around < -leaderboard.MaxScore || *q.Around > leaderboard.MaxScore:
		return &leaderboard.FieldError{Field: "around_score", Problem: "must be within ±2^53"}
	case q.Start > 0 || q.Token != "" || q.Worst || q.Scores.isSet() || q.TopPercent != 0:
		return &leaderboard.FieldError{Field: "around_score", Problem: "cannot be combined with start_rank, page_token, order=worst, min_score, max_score or top_percent"}
	}
	return nil
}

// Page returns a page of a ladder. If the rank index cannot answer, the page comes from the
// store, and Degraded is set. But if Start is more than 1, or Worst, Around or TopPercent is set, Page returns
// [leaderboard.ErrRankUnavailable]. In consecutive pages by token, each entry that does not move
// meanwhile appears exactly once.
func (r *Reader) Page(ctx context.Context, q PageQuery) (Page, error) {
	if err := q.validate(); err != nil {
		return Page{}, err
	}
	b, err := r.boardOf(ctx, &q.Query)
	if err != nil {
		return Page{}, err
	}
	return r.page(ctx, b, q)
}

func (r *Reader) page(ctx context.Context, b *leaderboard.Board, q PageQuery) (Page, error) {
	var page Page
	err := r.read(ctx, b, q.Query, func(v *view) error {
		if q.Around != nil {
			return v.pageAround(ctx, q, &page)
		}
		standings, more, ladderView, err := v.page(ctx, q)
		if err != nil {
			return err
		}
		if q.Scores.isSet() {
			if page.InRange, err = v.countIn(ctx, q.Scores); err != nil {
				return err
			}
		}
		if page.Next = ""; more {
			page.Next = v.token(standings[q.Limit-1].SortKey(), q.Worst)
		}
		page.About, page.Lines = v.about(ladderView), v.lines(standings)
		return nil
	})
	if errors.Is(err, leaderboard.ErrRankUnavailable) && q.canUseStore() {
		page, err = r.pageFromStore(ctx, b, q)
	}
	if err == nil {
		err = r.addIncluded(ctx, q.Include, leaderboard.SeasonKey{Board: b.ID, Season: page.Season.ID}, page.Lines)
	}
	return page, err
}

// canUseStore reports whether the store alone can answer q: it knows the order of entries, but no positions.
func (q *PageQuery) canUseStore() bool {
	return q.Start <= 1 && !q.Worst && q.Around == nil && q.TopPercent == 0
}

// page also reports whether a next page exists.
func (v *view) page(ctx context.Context, q PageQuery) (standings []leaderboard.Standing, more bool, ladderView leaderboard.View, err error) {
	start, err := v.startKey(&q)
	if err != nil {
		return nil, false, ladderView, err
	}
	if q.Worst {
		standings, ladderView, err = v.worst(ctx, start, v.edges(q.Scores).first, q.Limit+1)
		return standings[:min(len(standings), q.Limit)], len(standings) > q.Limit, ladderView, err
	}
	n, methods := q.Limit, []leaderboard.Method{v.method}
	if q.Scores.isSet() || q.TopPercent != 0 {
		n++
	}
	if q.TopPercent != 0 {
		methods = append(methods, leaderboard.Competition)
	}
	if start == "" {
		standings, ladderView, err = v.Page(ctx, v.ladder, max(q.Start, 1), n, methods...)
	} else {
		standings, ladderView, err = v.PageAfter(ctx, v.ladder, start, n, methods...)
	}
	more = len(standings) == q.Limit && standings[q.Limit-1].Ranks.Ordinal < ladderView.Size
	if q.Scores.isSet() {
		standings = cut(standings, v.edges(q.Scores).beyond, func(st *leaderboard.Standing) leaderboard.RankKey { return st.Key })
		more = len(standings) > q.Limit
	}
	if q.TopPercent != 0 {
		worst := lastRank(ladderView.Ranked(), q.TopPercent)
		standings = standings[:sort.Search(len(standings), func(i int) bool { return standings[i].Ranks.Competition > worst })]
		more = len(standings) > q.Limit
	}
	return standings[:min(len(standings), q.Limit)], more, ladderView, err
}

// lastRank returns a percentage of n, rounded up. The percentage is the shortest decimal number of the float: 0.1
// percent of 1,000 is 1.
func lastRank(n int64, percent float64) int64 {
	decimal, _ := new(big.Rat).SetString(strconv.FormatFloat(percent, 'e', -1, 64))
	share := decimal.Mul(decimal, big.NewRat(n, 100))
	whole := new(big.Int).Add(share.Num(), share.Denom())
	return whole.Sub(whole, big.NewInt(1)).Div(whole, share.Denom()).Int64()
}

func (v *view) pageAround(ctx context.Context, q PageQuery, page *Page) error {
	first, _ := v.board.ScoreBounds(*q.Around, v.scoredAt)
	standings, of, ladderView, err := v.around(ctx, v.firstKey(first), q.Limit/2, q.Limit)
	if err != nil {
		return err
	}
	*page = Page{About: v.about(ladderView), Lines: v.lines(standings)}
	var place leaderboard.Standing
	if of < len(standings) { // the first entry that is not better has the rank of the score
		place = standings[of]
	} else {
		place.RankAfter(last(standings))
	}
	page.RankOfScore = place.Ranks.By(v.method)
	return nil
}

// last returns the last standing of a list, or the zero Standing.
func last(standings []leaderboard.Standing) *leaderboard.Standing {
	if len(standings) == 0 {
		return &leaderboard.Standing{}
	}
	return &standings[len(standings)-1]
}

// startKey returns the sort key after which q begins, or before which q begins if Worst is set. The key is
// empty if q begins at an end of the ladder.
func (v *view) startKey(q *PageQuery) (leaderboard.SortKey, error) {
	e := v.edges(q.Scores)
	start := e.before
	if q.Worst {
		start = v.firstKey(cmp.Or(e.beyond, v.board.UnrankedFrom()))
	}
	if q.Token == "" {
		return start, nil
	}
	token, err := v.parseToken(q.Token, q.Worst)
	if q.Worst && start != "" {
		return min(token, start), err
	}
	return max(token, start), err
}

// worst returns up to n standings before a sort key and not before a rank key, as they were at one moment, the
// worst one first. An empty sort key follows all standings.
func (v *view) worst(ctx context.Context, before leaderboard.SortKey, first leaderboard.RankKey, n int) ([]leaderboard.Standing, leaderboard.View, error) {
	standings, of, ladderView, err := v.around(ctx, before, n, n)
	if err != nil {
		return nil, ladderView, err
	}
	standings = slices.DeleteFunc(standings[:of], func(st leaderboard.Standing) bool { return st.Key < first })
	slices.Reverse(standings)
	return standings, ladderView, nil
}

// around returns n standings, or all of a smaller ladder, as they were at one moment: above of them before a sort key,
// the others after it. If one side has fewer, the other side has more. of is the number of standings before the key. An
// empty key follows all standings.
func (v *view) around(ctx context.Context, key leaderboard.SortKey, above, n int) (standings []leaderboard.Standing, of int, ladderView leaderboard.View, err error) {
	var next []leaderboard.Standing
	if key == "" {
		_, ladderView, err = v.Page(ctx, v.ladder, 1, 1, leaderboard.Ordinal)
	} else {
		next, ladderView, err = v.PageAfter(ctx, v.ladder, key, 1, leaderboard.Ordinal)
	}
	if err != nil {
		return nil, 0, ladderView, err
	}
	place := ladderView.Size + 1 // the position after the key, but others may change it before the next read
	if len(next) > 0 {
		place = next[0].Ranks.Ordinal
	}
	start := func(place, size int64) int64 { return max(min(place-int64(above), size-int64(n)+1), 1) }
	guess := start(place, ladderView.Size)
	const maxSlack = 1 << 16
	for slack := 0; slack < maxSlack; slack = 2*slack + 16 {
		// One more standing on each side shows where the key is.
		first, limit := max(guess-int64(slack)-1, 1), n+2+2*slack
		standings, ladderView, err = v.Page(ctx, v.ladder, first, limit, v.method)
		if err != nil {
			return nil, 0, ladderView, err
		}
		split, size := len(standings), ladderView.Size
		if key != "" {
			split = sort.Search(split, func(i int) bool { return standings[i].SortKey() >= key })
		}
		atEnd := len(standings) < limit
		if atEnd {
			size = first - 1 + int64(len(standings))
		}
		if split == 0 && first > 1 || split == len(standings) && !atEnd {
			continue
		}
		begin := start(first+int64(split), size) - first
		if end := begin + int64(n); begin >= 0 && (end <= int64(len(standings)) || atEnd) {
			return standings[begin:min(end, int64(len(standings)))], split - int(begin), ladderView, nil
		}
	}
	return nil, 0, ladderView, fmt.Errorf("ranking: %s/%s changed during each read; retry: %w", v.ladder.Board, v.ladder.Season, leaderboard.ErrUnavailable)
}

func (r *Reader) pageFromStore(ctx context.Context, b *leaderboard.Board, q PageQuery) (Page, error) {
	v, err := r.view(ctx, b, q.Query)
	if err != nil {
		return Page{}, err
	}
	after, err := v.startKey(&q)
	if err != nil {
		return Page{}, err
	}
	page := Page{About: r.aboutStore(v)}
	var entries []leaderboard.Entry
	if err := r.storePages.Do(ctx, storePage{v.ladder, after, q.Limit}, &entries); err != nil {
		return Page{}, err
	}
	entries = cut(entries, v.edges(q.Scores).beyond, func(e *leaderboard.Entry) leaderboard.RankKey { return e.Key })
	if len(entries) > q.Limit {
		entries = entries[:q.Limit]
		page.Next = v.token(entries[q.Limit-1].SortKey(), false)
	}
	for i := range entries {
		page.Lines = append(page.Lines, v.withoutRank(&entries[i]))
	}
	return page, nil
}

type storePage struct {
	ladder leaderboard.Ladder
	after  leaderboard.SortKey
	limit  int
}

// storePageTimeout bounds a read of the store that several callers share.
const storePageTimeout = 10 * time.Second

// readStorePage reads a page and one more entry, for all readers of the page. In Cassandra the
// read is expensive: it reads every bucket of the ladder.
func (r *Reader) readStorePage(_ context.Context, p storePage, readers []*[]leaderboard.Entry) error {
	ctx, cancel := context.WithTimeout(r.tasks.ctx, storePageTimeout)
	defer cancel()
	r.tasks.running.Add(1)
	defer r.tasks.running.Done()
	var entries []leaderboard.Entry
	listed := map[leaderboard.UserID]bool{}
	for e, err := range r.store.Entries(ctx, p.ladder, p.after) {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("ranking: reading a page of %s/%s took longer than %v: %w: %w", p.ladder.Board, p.ladder.Season, storePageTimeout, leaderboard.ErrUnavailable, err)
		}
		if err != nil {
			return err
		}
		if listed[e.User] {
			continue // the entry moved down during the read; list it once
		}
		listed[e.User] = true
		if entries = append(entries, e); len(entries) > p.limit {
			break
		}
	}
	for _, reader := range readers {
		*reader = entries
	}
	return nil
}
