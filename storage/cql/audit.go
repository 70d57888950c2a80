package cql

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// # The audit log
//
// A row of table audit is one act. Columns act and detail are its intent, and columns outcome and
// outcome_detail are its outcome. The details have all that may name a user. An erasure removes
// these two cells at a greater timestamp.
//
// AppendAct adds the act to the user's list of acts, writes the record, and reads the account.
// Erase writes the account, and reads the list. So Erase finds the act in the list, or
// AppendAct finds the erasure. The details are removed in both cases.

func dayOf(t time.Time) int { return int(t.Unix() / (24 * 60 * 60)) }

// AppendAct appends a record of an act to the audit log.
func (s *Store) AppendAct(ctx context.Context, a leaderboard.Act) error {
	a.At = leaderboard.Truncate(a.At)
	insert := insertAct
	if a.IsOutcome() {
		a.CompletedAt, insert = leaderboard.Truncate(a.CompletedAt), insertOutcome
	}
	detail, err := json.Marshal(&a.ActDetail)
	if err != nil {
		return fmt.Errorf("cql: encode an act: %w", err)
	}
	public := a
	public.ActDetail = leaderboard.ActDetail{}
	public.Erased = a.Erased || a.User != "" // decodeAct sets it to false if the act has its detail
	body, err := json.Marshal(&public)
	if err != nil {
		return fmt.Errorf("cql: encode an act: %w", err)
	}
	if a.User != "" {
		if err := s.conn.write(ctx, op{insertUserAct, []any{userHash(a.User), -a.At.UnixMicro(), a.ID}}); err != nil {
			return err
		}
	}
	if err := s.conn.write(ctx, op{insertActDay, []any{dayOf(a.At)}}); err != nil {
		return err
	}
	if err := s.conn.write(ctx, op{insert, []any{dayOf(a.At), -a.At.UnixMicro(), a.ID, string(body), string(detail)}}); err != nil || a.User == "" {
		return err
	}
	acc, err := s.readAccount(ctx, a.User)
	if err != nil || acc.ErasedAt.IsZero() || a.At.After(acc.ErasedAt) {
		return err
	}
	return s.eraseAct(ctx, userHash(a.User), -a.At.UnixMicro(), a.ID)
}

// In eraseAct, newest is the act's time in negated microseconds.
func (s *Store) eraseAct(ctx context.Context, hash []byte, newest int64, id string) error {
	day := dayOf(time.UnixMicro(-newest))
	if err := s.conn.write(ctx, op{eraseActDetail, []any{day, newest, id}}); err != nil {
		return err
	}
	return s.conn.write(ctx, op{deleteUserAct, []any{hash, newest, id}})
}

func (s *Store) eraseActs(ctx context.Context, user leaderboard.UserID) error {
	type act struct {
		newest int64
		id     string
	}
	var a act
	acts, err := gather(ctx, s.conn, op{selectUserActs, []any{userHash(user)}}, []any{&a.newest, &a.id}, func() (act, error) { return a, nil })
	if err != nil {
		return err
	}
	return s.forEach(ctx, len(acts), func(ctx context.Context, i int) error {
		return s.eraseAct(ctx, userHash(user), acts[i].newest, acts[i].id)
	})
}

// Acts yields the acts that are older than the given act, the newest first.
func (s *Store) Acts(ctx context.Context, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return func(yield func(leaderboard.Act, error) bool) {
		var day int
		days, err := gather(ctx, s.conn, op{selectActDays, nil}, []any{&day}, func() (int, error) { return day, nil })
		if err != nil {
			yield(leaderboard.Act{}, err)
			return
		}
		for _, day := range slices.Backward(days) {
			query := op{selectActs, []any{day}}
			if after.ID != "" {
				if day > dayOf(after.At) {
					continue
				}
				if day == dayOf(after.At) {
					query = op{selectActsAfter, []any{day, -after.At.UnixMicro(), after.ID}}
				}
			}
			var more bool
			if more, err = s.actsOf(ctx, query, yield); err != nil || !more {
				break
			}
		}
		if err != nil {
			yield(leaderboard.Act{}, err)
		}
	}
}

// UserActs yields the acts that concern a user and are older than the given act, the newest first.
func (s *Store) UserActs(ctx context.Context, user leaderboard.UserID, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return func(yield func(leaderboard.Act, error) bool) {
		query := op{selectUserActs, []any{userHash(user)}}
		if after.ID != "" {
			query = op{selectActsOf, []any{userHash(user), -after.At.UnixMicro(), after.ID}}
		}
		var newest int64
		var id string
		keys, err := gather(ctx, s.conn, query, []any{&newest, &id}, func() (leaderboard.ActKey, error) {
			return leaderboard.ActKey{At: time.UnixMicro(-newest).UTC(), ID: id}, nil
		})
		const chunk = 64
		for keys := range slices.Chunk(keys, chunk) {
			rows := make([][]leaderboard.Act, len(keys))
			if err = s.forEach(ctx, len(keys), func(ctx context.Context, i int) error {
				_, err := s.actsOf(ctx, op{selectAct, []any{dayOf(keys[i].At), -keys[i].At.UnixMicro(), keys[i].ID}}, func(a leaderboard.Act, _ error) bool {
					if !a.Erased {
						rows[i] = append(rows[i], a)
					}
					return true
				})
				return err
			}); err != nil {
				break
			}
			for _, a := range slices.Concat(rows...) {
				if !yield(a, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(leaderboard.Act{}, err)
		}
	}
}

// actsOf yields the records of the rows that a query selects. more is false if yield returned false.
func (s *Store) actsOf(ctx context.Context, query op, yield func(leaderboard.Act, error) bool) (more bool, err error) {
	var body, detail, outcome, outcomeDetail string
	var decodeErr error
	more = true
	err = s.conn.read(ctx, query, []any{&body, &detail, &outcome, &outcomeDetail}, func() bool {
		for _, cells := range [][2]string{{outcome, outcomeDetail}, {body, detail}} {
			if cells[0] == "" {
				continue
			}
			var a leaderboard.Act
			if decodeErr = decodeAct(cells[0], cells[1], &a); decodeErr != nil {
				return false
			}
			if more = yield(a, nil); !more {
				return false
			}
		}
		return true
	})
	if err == nil || !more {
		err = decodeErr
	}
	return more, err
}

// In decodeAct, detail is empty if the act's user was erased.
func decodeAct(body, detail string, a *leaderboard.Act) error {
	err := json.Unmarshal([]byte(body), a)
	if err == nil && detail != "" {
		a.Erased = false
		err = json.Unmarshal([]byte(detail), &a.ActDetail)
	}
	if err != nil {
		return fmt.Errorf("cql: act: %w: %w", leaderboard.ErrFormat, err)
	}
	return nil
}
