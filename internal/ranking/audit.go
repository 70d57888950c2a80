package ranking

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const maxActs = 1000

// ActQuery selects acts of the audit log. Empty fields select all.
type ActQuery struct {
	Actor  string
	Action string // such as "board.update", or its part before the dot
	Board  leaderboard.BoardID
	User   leaderboard.UserID
	Since  time.Time          // inclusive
	Before time.Time          // exclusive
	After  leaderboard.ActKey // the last act of the previous page
	Limit  int                // 1 to maxActs
}

// ActPage is a page of acts, the newest first.
type ActPage struct {
	Acts []leaderboard.Act
	Next leaderboard.ActKey // the After of the next page; empty on the last page
}

// AppendAct appends an act to the audit log.
func (a *Admin) AppendAct(ctx context.Context, act leaderboard.Act) error {
	return a.store.AppendAct(ctx, act)
}

// Acts returns a page of the audit log.
func (a *Admin) Acts(ctx context.Context, q ActQuery) (ActPage, error) {
	if q.Limit < 1 || q.Limit > maxActs {
		return ActPage{}, &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", maxActs, q.Limit)}
	}
	var page ActPage
	for act, err := range a.store.Acts(ctx, q.After) {
		if err != nil {
			return ActPage{}, err
		}
		if act.At.Before(q.Since) {
			break
		}
		if !q.matches(&act) {
			continue
		}
		if len(page.Acts) == q.Limit {
			page.Next = page.Acts[q.Limit-1].Key()
			break
		}
		page.Acts = append(page.Acts, act)
	}
	return page, nil
}

func (q *ActQuery) matches(a *leaderboard.Act) bool {
	return (q.Actor == "" || a.Actor == q.Actor) && (q.Board == "" || a.Board == q.Board) && (q.User == "" || a.User == q.User) &&
		(q.Action == "" || a.Action == q.Action || strings.HasPrefix(a.Action, q.Action+".")) &&
		(q.Before.IsZero() || a.At.Before(q.Before))
}
