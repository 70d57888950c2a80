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
	Limit  int                // the number of acts, 1 to maxActs
}

// ActPage is a page of the audit log, the newest act first.
type ActPage struct {
	Acts []leaderboard.Act  // one or two records of each act: see [leaderboard.Act]
	Next leaderboard.ActKey // the After of the next page; empty on the last page
}

// AppendActs appends records to the audit log.
func (a *Admin) AppendActs(ctx context.Context, acts []leaderboard.Act) error {
	return eachRead(ctx, len(acts), func(ctx context.Context, i int) error { return a.store.AppendAct(ctx, acts[i]) })
}

// Acts returns a page of the audit log.
func (a *Admin) Acts(ctx context.Context, q ActQuery) (ActPage, error) {
	if q.Limit < 1 || q.Limit > maxActs {
		return ActPage{}, &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", maxActs, q.Limit)}
	}
	acts := a.store.Acts(ctx, q.After)
	if q.User != "" {
		acts = a.store.UserActs(ctx, q.User, q.After)
	}
	var page ActPage
	var last leaderboard.ActKey
	n := 0
	for act, err := range acts {
		if err != nil {
			return ActPage{}, err
		}
		if act.At.Before(q.Since) {
			break
		}
		if !q.matches(&act) {
			continue
		}
		if act.Key() != last {
			if n == q.Limit {
				page.Next = last
				break
			}
			last = act.Key()
			n++
		}
		page.Acts = append(page.Acts, act)
	}
	return page, nil
}

// maxHistory limits the number of acts that ResultActs returns.
const maxHistory = 1000

// ResultActs returns the newest maxHistory acts on a result, the newest first: of each act the
// outcome or, if there is none, the intent.
func (r *Reader) ResultActs(ctx context.Context, key leaderboard.ResultKey) ([]leaderboard.Act, error) {
	var acts []leaderboard.Act
	var last leaderboard.ActKey
	for act, err := range r.store.UserActs(ctx, key.User, leaderboard.ActKey{}) {
		if err != nil {
			return nil, err
		}
		if act.Match != key.Match || act.Board != key.Board || act.Season != key.Season || act.Key() == last {
			continue
		}
		if last = act.Key(); len(acts) == maxHistory {
			break
		}
		acts = append(acts, act)
	}
	return acts, nil
}

func (q *ActQuery) matches(a *leaderboard.Act) bool {
	return (q.Actor == "" || a.Actor == q.Actor) && (q.Board == "" || a.Board == q.Board) && (q.User == "" || a.User == q.User) &&
		(q.Action == "" || a.Action == q.Action || strings.HasPrefix(a.Action, q.Action+".")) &&
		(q.Before.IsZero() || a.At.Before(q.Before))
}
