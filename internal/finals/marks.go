package finals

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"iter"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/codec"
	"github.com/open-leaderboard/leaderboard/storage"
)

// mark is the value of a row. The row's key is that of markKey.
type mark struct {
	Board  leaderboard.BoardID  `json:"board"`
	Season leaderboard.SeasonID `json:"season"`
	Reason string               `json:"reason"`
}

func markKey(user leaderboard.UserID, id string) []byte {
	return append(codec.AppendText(nil, user), id...)
}

// MarkFinal writes a mark for each user, or returns [leaderboard.ErrNotSealed]. The marks of
// each call have a new id, so the removal of a mark never hides a later one. Each region has
// its own marks. A quorum there has the changed entry before the mark.
//
// The final standings of a concurrent Seal must include the changed entries. Seal adds its
// generation to the seal's Pending, reads the entries, and makes the generation valid. Each
// change of the seal is a swap, so the swaps have an order.
// MarkFinal finds one of these cases:
//
//   - No generation is pending or valid: Seal reads the changed entries later.
//   - A generation is pending: MarkFinal raises [seal].Overtaken by a swap. If this swap
//     precedes the last swap of Seal, Seal starts again. Otherwise MarkFinal's swap fails,
//     and MarkFinal finds the next case.
//   - The season is sealed: MarkFinal writes marks, and Amend later reads the changed
//     entries.
//   - The swap is unavailable, for example because another data center is down: MarkFinal
//     writes marks and returns [leaderboard.ErrNotSealed]. If Seal has ended, Amend later
//     reads the changed entries. Otherwise Amend makes Seal start again.
func (f *Store) MarkFinal(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID, users []leaderboard.UserID, reason string) error {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: id}
	inc, err := f.b.Incarnation(ctx, seasonKey, true)
	if err != nil || !inc.Of(b) {
		return cmp.Or(err, errNotSealed(seasonKey))
	}
	x, err := (&season{f, inc}).overtake(ctx)
	isUnavailable := errors.Is(err, leaderboard.ErrUnavailable)
	if !isUnavailable && (err != nil || !x.sealed()) {
		return cmp.Or(err, errNotSealed(seasonKey))
	}
	value, err := json.Marshal(mark{b.ID, id, reason})
	if err != nil {
		return err
	}
	markID := rand.Text()
	var writes []storage.RowWrite
	for _, user := range withoutRepeats(users) {
		writes = append(writes, storage.RowWrite{List: f.markList(bucketOf(user)), Row: storage.Row{Key: markKey(user, markID), Value: value}, Version: written})
	}
	err = f.b.WriteAll(ctx, writes...)
	if err == nil && isUnavailable {
		err = errNotSealed(seasonKey)
	}
	return err
}

// overtake makes a running Seal start again: see MarkFinal.
func (p *season) overtake(ctx context.Context) (seal, error) {
	x, _, _, err := p.changeSeal(ctx, func(x *seal) bool {
		x.Overtaken++
		return !x.sealed() && len(x.Pending) > 0
	})
	return x, err
}

// FinalMarks yields the marks of this region.
func (f *Store) FinalMarks(ctx context.Context) iter.Seq2[leaderboard.FinalMark, error] {
	return func(yield func(leaderboard.FinalMark, error) bool) {
		var lists []string
		for bucket := range markBuckets {
			lists = append(lists, f.markList(bucket))
		}
		for row, err := range f.b.ListRows(ctx, lists, nil) {
			var m leaderboard.FinalMark
			if err == nil {
				m, err = decodeMark(&row.Row)
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

func decodeMark(row *storage.Row) (leaderboard.FinalMark, error) {
	d := codec.Decoder{Rest: row.Key}
	m := leaderboard.FinalMark{User: leaderboard.UserID(d.Text()), ID: string(d.Rest)}
	var value mark
	if err := json.Unmarshal(row.Value, &value); err != nil || d.Bad {
		return m, errFormat("mark")
	}
	m.Board, m.Season, m.Reason = value.Board, value.Season, value.Reason
	return m, nil
}

// RemoveFinalMarks removes marks of this region.
func (f *Store) RemoveFinalMarks(ctx context.Context, marks []leaderboard.FinalMark) error {
	return f.b.WriteAll(ctx, f.removals(marks)...)
}

func (f *Store) removals(marks []leaderboard.FinalMark) []storage.RowWrite {
	writes := make([]storage.RowWrite, len(marks))
	for i := range marks {
		m := &marks[i]
		writes[i] = storage.RowWrite{List: f.markList(bucketOf(m.User)), Row: storage.Row{Key: markKey(m.User, m.ID)}, Version: removed, Forget: true}
	}
	return writes
}

// EraseMarks removes this region's marks of a user.
func (f *Store) EraseMarks(ctx context.Context, user leaderboard.UserID) error {
	var marks []leaderboard.FinalMark
	for row, err := range f.b.ListRows(ctx, []string{f.markList(bucketOf(user))}, markKey(user, "")) {
		if err != nil {
			return err
		}
		m, err := decodeMark(&row.Row)
		if err != nil {
			return err
		}
		marks = append(marks, m)
	}
	return f.RemoveFinalMarks(ctx, marks)
}
