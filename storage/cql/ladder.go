package cql

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/open-leaderboard/leaderboard"
)

// Entries yields the ranked entries of a ladder. It also reads the entry of each row's
// user, and skips orphan rows.
func (s *Store) Entries(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey) iter.Seq2[leaderboard.Entry, error] {
	return func(yield func(leaderboard.Entry, error) bool) {
		inc, err := s.incarnations.readAgain(ctx, l.SeasonKey)
		var h readerHeap
		if err == nil && inc.open {
			h, err = s.openLadder(ctx, l, inc, after)
		}
		for err == nil && len(h) > 0 {
			if !yield(h[0].page[0], nil) {
				return
			}
			err = h.removeFirst(ctx)
		}
		if err != nil {
			yield(leaderboard.Entry{}, err)
		}
	}
}

// Most readers want the top only, so the first page is small, and each following page is
// twice as large.
const (
	firstLadderPage = 8
	lastLadderPage  = 500
)

// A bucketReader reads one bucket of a ladder, page by page. It skips orphan rows.
type bucketReader struct {
	s      *Store
	ladder leaderboard.Ladder
	inc    incarnation
	bucket int

	after *cursor // nil means the top
	size  int     // of the next page
	page  []leaderboard.Entry
	keys  []leaderboard.SortKey // of page
	end   bool                  // no more pages
}

type cursor struct {
	standing []byte
	user     string
}

func (s *Store) openLadder(ctx context.Context, l leaderboard.Ladder, inc incarnation, after leaderboard.SortKey) (readerHeap, error) {
	start, err := s.cursorAt(ctx, l.SeasonKey, after)
	if err != nil {
		return nil, err
	}
	h := make(readerHeap, inc.buckets)
	err = s.forEach(ctx, inc.buckets, func(ctx context.Context, i int) error {
		h[i] = &bucketReader{s: s, ladder: l, inc: inc, bucket: i, after: start, size: firstLadderPage}
		return h[i].fill(ctx)
	})
	h = slices.DeleteFunc(h, func(r *bucketReader) bool { return r == nil || len(r.page) == 0 })
	heap.Init(&h)
	return h, err
}

// In a readerHeap, the reader with the best entry is first.
type readerHeap []*bucketReader

func (h *readerHeap) removeFirst(ctx context.Context) error {
	r := (*h)[0]
	r.page, r.keys = r.page[1:], r.keys[1:]
	if len(r.page) == 0 {
		if err := r.fill(ctx); err != nil {
			return err
		}
	}
	if len(r.page) == 0 {
		heap.Pop(h)
	} else {
		heap.Fix(h, 0)
	}
	return nil
}

// cursorAt splits a sort key into the columns of a row. It reads the board, which
// determines the length of rank keys.
func (s *Store) cursorAt(ctx context.Context, seasonKey leaderboard.SeasonKey, key leaderboard.SortKey) (*cursor, error) {
	if key == "" {
		return nil, nil
	}
	stored, err := s.readBoard(ctx, seasonKey.Board)
	if err != nil {
		return nil, err
	}
	n := min(stored.board.RankKeyBytes()+8, len(key))
	return &cursor{[]byte(key[:n]), string(key[n:])}, nil
}

func (h readerHeap) Len() int { return len(h) }

func (h readerHeap) Less(i, j int) bool { return h[i].keys[0] < h[j].keys[0] }

func (h readerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *readerHeap) Push(x any) { *h = append(*h, x.(*bucketReader)) }

func (h *readerHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}

func (r *bucketReader) fill(ctx context.Context) error {
	r.page, r.keys = nil, nil
	for !r.end && len(r.page) == 0 {
		if err := r.fetch(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *bucketReader) fetch(ctx context.Context) error {
	rows, err := r.fetchRows(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	entries, err := r.readEntries(ctx, rows)
	if err != nil {
		return err
	}
	for i := range rows {
		if entry, ok := r.entryOf(entries, &rows[i]); ok {
			r.page, r.keys = append(r.page, entry), append(r.keys, entry.SortKey())
		}
	}
	return nil
}

func (r *bucketReader) entryOf(entries map[leaderboard.UserID]leaderboard.Entry, c *cursor) (leaderboard.Entry, bool) {
	entry, ok := entries[leaderboard.UserID(c.user)]
	return entry, ok && slices.Contains(rowKeys(&entry), rowKey{r.ladder.Division.String(), string(c.standing)})
}

func (r *bucketReader) fetchRows(ctx context.Context) ([]cursor, error) {
	args := []any{string(r.ladder.Board), string(r.ladder.Season), r.inc.number, r.ladder.Division.String(), r.bucket}
	q := op{selectTop, append(args, r.size)}
	if r.after != nil {
		q = op{selectAfter, append(args, r.after.standing, r.after.user, r.size)}
	}
	var standing []byte
	var user string
	rows, err := gather(ctx, r.s.conn, q, []any{&standing, &user}, func() (cursor, error) { return cursor{take(&standing), user}, nil })
	if err != nil {
		return nil, err
	}
	r.end = len(rows) < r.size
	r.size = min(2*r.size, lastLadderPage)
	if len(rows) > 0 {
		r.after = &rows[len(rows)-1]
	}
	return rows, nil
}

// readEntries returns the entries of the users of rows. If an entry is damaged, it also returns an
// error.
func (r *bucketReader) readEntries(ctx context.Context, rows []cursor) (map[leaderboard.UserID]leaderboard.Entry, error) {
	users := map[string]bool{}
	for _, c := range rows {
		users[c.user] = true
	}
	var user string
	var blob []byte
	var damage error
	out := make(map[leaderboard.UserID]leaderboard.Entry, len(users))
	q := op{selectEntries, []any{string(r.ladder.Board), string(r.ladder.Season), r.inc.number, r.bucket, slices.Sorted(maps.Keys(users))}}
	err := r.s.conn.read(ctx, q, []any{&user, &blob}, func() bool {
		if blob == nil {
			return true
		}
		e, err := decodeEntry(r.ladder.SeasonKey, leaderboard.UserID(user), blob)
		if err != nil {
			damage = err
		} else {
			out[e.User] = e
		}
		return true
	})
	return out, cmp.Or(err, damage)
}

// OrphanRows yields the rows that do not follow from their user's entry.
func (s *Store) OrphanRows(ctx context.Context, seasonKey leaderboard.SeasonKey) iter.Seq2[leaderboard.OrphanRow, error] {
	return func(yield func(leaderboard.OrphanRow, error) bool) {
		inc, err := s.incarnations.readAgain(ctx, seasonKey)
		var divisions []string
		if err == nil && inc.open {
			divisions, err = s.ladderNames(ctx, seasonKey, inc)
		}
		for i := 0; err == nil && i < len(divisions)*inc.buckets; i++ {
			var stopped bool
			if stopped, err = s.orphanRowsOfBucket(ctx, seasonKey, inc, divisions[i/inc.buckets], i%inc.buckets, yield); stopped {
				return
			}
		}
		if err != nil {
			yield(leaderboard.OrphanRow{}, err)
		}
	}
}

func (s *Store) orphanRowsOfBucket(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, division string, bucket int, yield func(leaderboard.OrphanRow, error) bool) (stopped bool, err error) {
	d, err := leaderboard.ParseDivision(division)
	if err != nil {
		return false, fmt.Errorf("cql: %w", err)
	}
	r := &bucketReader{s: s, ladder: leaderboard.Ladder{SeasonKey: seasonKey, Division: d}, inc: inc, bucket: bucket, size: lastLadderPage}
	for !r.end {
		rows, err := r.fetchRows(ctx)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		entries, err := r.readEntries(ctx, rows)
		if err != nil {
			return false, err
		}
		for i := range rows {
			if _, ok := r.entryOf(entries, &rows[i]); ok {
				continue
			}
			key := leaderboard.SortKey(rows[i].standing) + leaderboard.SortKey(rows[i].user)
			if !yield(leaderboard.OrphanRow{Division: d, User: leaderboard.UserID(rows[i].user), Key: key}, nil) {
				return true, nil
			}
		}
	}
	return false, nil
}

// ladderNames returns the sorted names of a season's ladders. The name of the overall
// ladder is empty.
func (s *Store) ladderNames(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) ([]string, error) {
	all := map[string]bool{"": true}
	for bucket := range inc.buckets {
		users, err := s.usersIn(ctx, seasonKey, inc, bucket)
		if err != nil {
			return nil, err
		}
		divisions, err := s.divisionsOfUsers(ctx, seasonKey, inc, users)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, divisions)
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func (s *Store) divisionsOfUsers(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, users []leaderboard.UserID) (map[string]bool, error) {
	var mu sync.Mutex
	all := map[string]bool{}
	err := s.forEach(ctx, len(users), func(ctx context.Context, i int) error {
		static, err := s.readStatics(ctx, &userKey{seasonKey, inc.number, users[i]})
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(all, static.divisions)
		return err
	})
	return all, err
}
