package cql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// # Recent refusals
//
// A recent refusal ([leaderboard.Reason.IsRecent]) is a row of table refusals, which expires. It is not a
// part of the user's state (see state.go): the entry does not depend on it, and a result that the board
// refuses begins no season. A store reads the rows of a match only if the board refuses the result, or
// may have refused it before an amendment ([leaderboard.Board.NeedsRecent]).
//
// The timestamp of a row has the user's epoch, as those of table match_results. So an erasure removes the
// row even if a slow writer writes it late. The lower bits are the day of the write: a row that is written
// again after it has expired prevails over the expired row. Of two rows of one day, Cassandra keeps the
// greater bytes, which are those of the later refusal: a deletion of the season between them deleted the
// earlier one.

// readRecent reads the recent refusals that t.merge needs. If it needs none, t.recent stays nil.
func (t *task) readRecent(ctx context.Context) error {
	var ids []leaderboard.MatchID
	for _, r := range t.results {
		if t.b.NeedsRecent(r) && !slices.Contains(ids, r.Match) {
			ids = append(ids, r.Match)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	t.recent = map[leaderboard.MatchID][]leaderboard.Refusal{}
	const chunk = 100
	for ids := range slices.Chunk(ids, chunk) {
		q := op{selectRefusals, []any{userHash(t.user), string(t.b.ID), t.b.CreatedAt.UnixMicro(), textsOf(ids), string(t.seasonKey.Season)}}
		if err := t.s.eachRefusal(ctx, q, func(match leaderboard.MatchID, f leaderboard.RecentRefusal) {
			t.recent[match] = append(t.recent[match], f.Refusal)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) eachRefusal(ctx context.Context, q op, visit func(leaderboard.MatchID, leaderboard.RecentRefusal)) error {
	var match, season string
	var item, refusal []byte
	_, err := gather(ctx, s.conn, q, []any{&match, &season, &item, &refusal}, func() (struct{}, error) {
		f, err := decodeRefusal(take(&item), complementTime(take(&refusal)))
		if err == nil {
			visit(leaderboard.MatchID(match), leaderboard.RecentRefusal{Season: leaderboard.SeasonID(season), Refusal: f})
		}
		return struct{}{}, err
	})
	return err
}

// complementTime changes which one of two encoded refusals of a result is greater: see appendRefusal.
func complementTime(refusal []byte) []byte {
	refusal = slices.Clone(refusal)
	for i := 1; i < min(9, len(refusal)); i++ {
		refusal[i] = ^refusal[i]
	}
	return refusal
}

// RecentRefusals returns the recent refusals of a match result.
func (s *Store) RecentRefusals(ctx context.Context, b *leaderboard.Board, key leaderboard.ResultKey) ([]leaderboard.RecentRefusal, error) {
	q := op{selectMatchRefusals, []any{userHash(key.User), string(b.ID), b.CreatedAt.UnixMicro(), string(key.Match)}}
	if key.Season != "" {
		q = op{selectRefusals, []any{userHash(key.User), string(b.ID), b.CreatedAt.UnixMicro(), []string{string(key.Match)}, string(key.Season)}}
	}
	var refusals []leaderboard.RecentRefusal
	err := s.eachRefusal(ctx, q, func(_ leaderboard.MatchID, f leaderboard.RecentRefusal) { refusals = append(refusals, f) })
	deletedAt := map[leaderboard.SeasonID]time.Time{}
	for i := 0; i < len(refusals) && err == nil; i++ {
		season := refusals[i].Season
		if _, ok := deletedAt[season]; !ok {
			deletedAt[season], err = s.deletedAt(ctx, leaderboard.SeasonKey{Board: b.ID, Season: season})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cql: refusals of match %q of user %q: %w", key.Match, key.User, err)
	}
	refusals = slices.DeleteFunc(refusals, func(f leaderboard.RecentRefusal) bool { return b.IsDeleted(deletedAt[f.Season], f.ReceivedAt) })
	slices.SortFunc(refusals, leaderboard.RecentRefusal.Compare)
	return refusals, nil
}

// knownRefusals returns all refusals of a match. t.refused has those of this attempt.
func (t *task) knownRefusals(match leaderboard.MatchID, stored []leaderboard.Refusal) []leaderboard.Refusal {
	return slices.Concat(stored, t.recent[match], t.refused[match])
}

func (t *task) addRecent(match leaderboard.MatchID, f *leaderboard.Refusal) {
	if t.refused == nil {
		t.refused = map[leaderboard.MatchID][]leaderboard.Refusal{}
	}
	t.refused[match] = append(t.refused[match], *f)
}

// writeRecent writes the recent refusals of this attempt.
func (t *task) writeRecent(ctx context.Context, acc *account) error {
	var ops []op
	day := t.s.now().Unix() / int64((24 * time.Hour).Seconds())
	for match, refusals := range t.refused {
		for i := range refusals {
			f := &refusals[i]
			ops = append(ops, op{insertRefusal, []any{
				userHash(t.user), string(t.b.ID), t.b.CreatedAt.UnixMicro(), string(match), string(t.seasonKey.Season), refusalItem(f), complementTime(appendRefusal(nil, f)), acc.Epoch<<epochShift | day,
			}})
		}
	}
	return t.s.writeUser(ctx, ops...)
}

func (s *Store) eraseRecent(ctx context.Context, user leaderboard.UserID, acc *account) error {
	return s.conn.write(ctx, op{deleteRefusals, []any{acc.Epoch << epochShift, userHash(user)}})
}

// refuseUnopened reports whether the board refuses all results, whatever other results the user has, and
// the season has no data. If so, the task is done, and the caller must not open an incarnation.
func (t *task) refuseUnopened(ctx context.Context) (bool, error) {
	if t.recent == nil {
		return false, nil // the board refuses no result
	}
	for _, r := range t.results {
		d := t.b.Merge(leaderboard.Known{Refusals: t.recent[r.Match]}, *r)
		if d.Status != leaderboard.Rejected || !d.Reason.IsRecent() {
			return false, nil
		}
	}
	inc, err := t.s.incarnations.cachedOrRead(ctx, t.seasonKey)
	if err != nil || inc.openFor(t.b) {
		return false, err
	}
	return true, t.decideUnopened(ctx, t.b.Merge)
}

// decideUnopened decides about the results of a season that has no data.
func (t *task) decideUnopened(ctx context.Context, decide func(leaderboard.Known, leaderboard.MatchResult) leaderboard.Decision) error {
	var acc account
	var deletedAt time.Time
	reads := []func(context.Context) error{
		func(ctx context.Context) (err error) { _, err = t.s.liveBoard(ctx, t.b); return err },
		func(ctx context.Context) (err error) { acc, err = t.s.readAccount(ctx, t.user, t.b); return err },
		func(ctx context.Context) (err error) { deletedAt, err = t.s.deletedAt(ctx, t.seasonKey); return err },
	}
	if err := t.s.forEach(ctx, len(reads), func(ctx context.Context, i int) error { return reads[i](ctx) }); err != nil {
		return err
	}
	t.refused, t.outcomes = nil, make([]leaderboard.Outcome, len(t.results))
	for i, r := range t.results {
		known := leaderboard.Known{Refusals: t.knownRefusals(r.Match, nil), ErasedAt: acc.ErasedAt, DeletedAt: deletedAt}
		d := decide(known, *r)
		t.outcomes[i] = d.Outcome("", "")
		if d.Refuse != nil {
			t.addRecent(r.Match, d.Refuse)
		}
	}
	none := leaderboard.Entry{SeasonKey: t.seasonKey, User: t.user}
	t.change = leaderboard.Change{Before: none, After: none}
	return t.writeRecent(ctx, &acc)
}

// errFull means that a result must not open a season.
var errFull = errors.New("the board has the largest number of seasons")

// fullTime is how long a store does not count the seasons of a board again that has the largest number.
const fullTime = time.Minute

// checkSeasons returns errFull if b has the largest number of seasons.
func (s *Store) checkSeasons(ctx context.Context, b *leaderboard.Board) error {
	if !b.HasSeasonLimit() {
		return nil
	}
	if until, ok := s.full.Load(b.ID); ok && s.now().Before(until.(time.Time)) {
		return errFull
	}
	rows, err := s.seasonRows(ctx, b.ID)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r seasonIncarnation) bool { return !r.openFor(b) })
	if len(rows) < s.maxSeasons {
		s.full.Delete(b.ID)
		return nil
	}
	s.full.Store(b.ID, s.now().Add(fullTime))
	return errFull
}
