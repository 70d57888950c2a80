package ranking

import (
	"context"
	"slices"
	"strings"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/names"
)

const (
	maxSearch = 100 // entries of a page
	// A page reads names up to three times, each time four times as many as before.
	searchReads = 3
)

// SearchQuery selects the entries of a ladder whose display names or ids begin with a text.
type SearchQuery struct {
	Query
	Prefix string
	Limit  int    // 1 to maxSearch
	After  string // the Next of the page before, or empty
}

// SearchPage is a page of entries, ordered by their folded names.
type SearchPage struct {
	About
	Lines []Line
	// Next is the position of the next page. It is empty on the last page.
	Next string
}

func (q *SearchQuery) validate() (prefix string, err error) {
	if q.Limit < 1 || q.Limit > maxSearch {
		return "", &leaderboard.FieldError{Field: "limit", Problem: "must be 1 to 100"}
	}
	if len(q.Prefix) > leaderboard.MaxIDBytes {
		return "", &leaderboard.FieldError{Field: "prefix", Problem: "is longer than 128 bytes"}
	}
	if prefix = names.Index(q.Prefix); prefix == "" {
		return "", &leaderboard.FieldError{Field: "prefix", Problem: "is required; it needs a visible character other than an accent"}
	}
	if q.After != "" && !strings.HasPrefix(q.After, prefix) {
		return "", &leaderboard.FieldError{Field: "page_token", Problem: "must be the next_page_token of an answer to the same prefix"}
	}
	return prefix, nil
}

// Search returns the entries whose display names or ids begin with a text after [names.Fold]. It finds
// users with a profile, and the user whose id is exactly the text. A page may have fewer entries than
// the limit, even none, although there is a next page: few of the examined users may have an entry. Ranks
// must be available: [leaderboard.ErrRankUnavailable].
func (r *Reader) Search(ctx context.Context, q SearchQuery) (SearchPage, error) {
	prefix, err := q.validate()
	if err != nil {
		return SearchPage{}, err
	}
	b, err := r.boardOf(ctx, &q.Query)
	if err != nil {
		return SearchPage{}, err
	}
	var page SearchPage
	position, more := q.After, true
	for read := 0; read < searchReads && more && len(page.Lines) < q.Limit; read++ {
		var found []leaderboard.NameMatch
		if found, more, err = r.store.FindNames(ctx, prefix, position, q.Limit<<(2*read)); err != nil {
			return SearchPage{}, err
		}
		if q.After == "" && read == 0 {
			found = append(exactID(q.Prefix, prefix), found...)
		}
		lines, err := r.linesOf(ctx, b, q.Query, prefix, found, &page.About)
		if err != nil {
			return SearchPage{}, err
		}
		for i := range found {
			if lines[i].User == "" {
				position = found[i].Position
				continue
			}
			if len(page.Lines) == q.Limit {
				more = true
				break
			}
			page.Lines, position = append(page.Lines, lines[i]), found[i].Position
		}
	}
	if more {
		page.Next = position
	}
	return page, nil
}

// exactID returns a match of the user whose id is a text, if it can be one. The user need not have a row of
// names.
func exactID(text, prefix string) []leaderboard.NameMatch {
	user := leaderboard.UserID(text)
	if user.Validate() != nil {
		return nil
	}
	return []leaderboard.NameMatch{{User: user, Position: prefix}}
}

// linesOf returns a line for each match. The line has no user if the user has no entry, or if the user has
// another place among the matches.
func (r *Reader) linesOf(ctx context.Context, b *leaderboard.Board, q Query, prefix string, found []leaderboard.NameMatch, about *About) ([]Line, error) {
	var users []leaderboard.UserID
	listed := map[leaderboard.UserID]bool{}
	for i := range found {
		if !listed[found[i].User] {
			listed[found[i].User], users = true, append(users, found[i].User)
		}
	}
	var entered []Line
	err := r.read(ctx, b, q, func(v *view) error {
		var standings []leaderboard.Standing
		var ladderView leaderboard.View
		var err error
		if len(users) == 0 {
			_, ladderView, err = v.Page(ctx, v.ladder, 1, 1, leaderboard.Ordinal)
		} else {
			standings, ladderView, err = v.Standings(ctx, v.ladder, users, v.method)
		}
		*about = v.about(ladderView)
		entered = v.lines(slices.DeleteFunc(standings, func(st leaderboard.Standing) bool { return st.Key == "" }))
		return err
	})
	if err != nil {
		return nil, err
	}
	q.Include.Profiles = true
	if err := r.addIncluded(ctx, q.Include, leaderboard.SeasonKey{Board: b.ID, Season: about.Season.ID}, entered); err != nil {
		return nil, err
	}
	byUser := map[leaderboard.UserID]*Line{}
	for i := range entered {
		byUser[entered[i].User] = &entered[i]
	}
	lines := make([]Line, len(found))
	for i := range found {
		if line := byUser[found[i].User]; line != nil && isPlace(&found[i], line.Profile, prefix) {
			lines[i] = *line
		}
	}
	return lines, nil
}

// isPlace reports whether a match is the first one of its user, and agrees with the user's profile. A user
// may match by name and by id, and a row of a former name may remain.
func isPlace(m *leaderboard.NameMatch, p *leaderboard.Profile, prefix string) bool {
	if p == nil || m.Folded == "" {
		return p == nil && m.Folded == "" // the exact id of a user without a profile
	}
	text, other := names.Index(p.DisplayName), names.Index(string(p.User))
	if m.IsID {
		text, other = other, text
	}
	switch {
	case m.Folded != text:
		return false
	case !strings.HasPrefix(other, prefix):
		return true
	}
	return text < other || text == other && m.IsID
}
