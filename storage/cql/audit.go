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
// A row of table audit is one act. Column detail has all that may name a user. An erasure
// removes this cell at a greater timestamp.
//
// AppendAct adds the act to the user's list of acts, writes the act, and reads the account.
// Erase writes the account, and reads the list. So Erase finds the act in the list, or
// AppendAct finds the erasure. The detail is removed in both cases.

func dayOf(t time.Time) int { return int(t.Unix() / (24 * 60 * 60)) }

// AppendAct appends an act to the audit log.
func (s *Store) AppendAct(ctx context.Context, a leaderboard.Act) error {
	a.At = leaderboard.Truncate(a.At)
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
	if err := s.conn.write(ctx, op{insertAct, []any{dayOf(a.At), -a.At.UnixMicro(), a.ID, string(body), string(detail)}}); err != nil || a.User == "" {
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
			if more, err = s.actsOfDay(ctx, query, yield); err != nil || !more {
				break
			}
		}
		if err != nil {
			yield(leaderboard.Act{}, err)
		}
	}
}

func (s *Store) actsOfDay(ctx context.Context, query op, yield func(leaderboard.Act, error) bool) (more bool, err error) {
	var body, detail string
	var decodeErr error
	more = true
	err = s.conn.read(ctx, query, []any{&body, &detail}, func() bool {
		var a leaderboard.Act
		if decodeErr = decodeAct(body, detail, &a); decodeErr != nil {
			return false
		}
		more = yield(a, nil)
		return more
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
