package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
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
}

// PageQuery selects up to Limit entries: after the page whose Next is Token, or from position
// Start.
type PageQuery struct {
	Query
	Limit int   // 1 to maxLimit
	Start int64 // from 1; 0 means 1
	Token string
	// Scores selects entries by their scores. It cannot be combined with Start.
	Scores ScoreRange
	// Worst lists the worst ranked entry first, and no entries without a rank. It cannot be combined with Start.
	Worst bool
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
	return q.Scores.validate()
}

// Page returns a page of a ladder. If the rank index cannot answer, the page comes from the
// store, and Degraded is set. But if Start is more than 1, or Worst is true, Page returns
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
	if errors.Is(err, leaderboard.ErrRankUnavailable) && q.Start <= 1 && !q.Worst {
		page, err = r.pageFromStore(ctx, b, q)
	}
	if err == nil {
		err = r.addIncluded(ctx, q.Include, leaderboard.SeasonKey{Board: b.ID, Season: page.Season.ID}, page.Lines)
	}
	return page, err
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
	n := q.Limit
	if q.Scores.isSet() {
		n++
	}
	if start == "" {
		standings, ladderView, err = v.Page(ctx, v.ladder, max(q.Start, 1), n, v.method)
	} else {
		standings, ladderView, err = v.PageAfter(ctx, v.ladder, start, n, v.method)
	}
	more = len(standings) == q.Limit && standings[q.Limit-1].Ranks.Ordinal < ladderView.Size
	if q.Scores.isSet() {
		standings = cut(standings, v.edges(q.Scores).beyond, func(st *leaderboard.Standing) leaderboard.RankKey { return st.Key })
		more = len(standings) > q.Limit
	}
	return standings[:min(len(standings), q.Limit)], more, ladderView, err
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
func (v *view) worst(ctx context.Context, before leaderboard.SortKey, first leaderboard.RankKey, n int) (standings []leaderboard.Standing, ladderView leaderboard.View, err error) {
	var next []leaderboard.Standing
	if before == "" {
		_, ladderView, err = v.Page(ctx, v.ladder, 1, 1, leaderboard.Ordinal)
	} else {
		next, ladderView, err = v.PageAfter(ctx, v.ladder, before, 1, leaderboard.Ordinal)
	}
	if err != nil {
		return nil, ladderView, err
	}
	end := ladderView.Size // the number of standings before the key, but others may change it before the next read
	if len(next) > 0 {
		end = next[0].Ranks.Ordinal - 1
	}
	const maxSlack = 1 << 16
	for slack := 0; slack < maxSlack; slack = 2*slack + 16 {
		position := max(end-int64(n+slack)+1, 1)
		limit := n + 1 + 2*slack
		standings, ladderView, err = v.Page(ctx, v.ladder, position, limit, v.method)
		if err != nil {
			return nil, ladderView, err
		}
		split := len(standings)
		if before != "" {
			split = sort.Search(split, func(i int) bool { return standings[i].SortKey() >= before })
		}
		if (split >= n || position == 1) && (split < len(standings) || len(standings) < limit) {
			standings = slices.DeleteFunc(standings[max(split-n, 0):split], func(st leaderboard.Standing) bool { return st.Key < first })
			slices.Reverse(standings)
			return standings, ladderView, nil
		}
	}
	return nil, ladderView, fmt.Errorf("ranking: %s/%s changed during each read; retry: %w", v.ladder.Board, v.ladder.Season, leaderboard.ErrUnavailable)
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
