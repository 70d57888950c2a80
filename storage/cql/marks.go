package cql

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

// markBuckets is the number of partitions of one data center's marks: see changeBuckets.
const markBuckets = 16

// MarkFinal writes a mark for each user, or returns [leaderboard.ErrNotSealed]. The marks of
// each call have a new id, so the removal of a mark never hides a later one. Each data center
// has its own marks. A quorum there has the changed entry before the mark.
//
// The final standings of a concurrent Seal must include the changed entries. Seal adds its
// generation to the seal's Pending, reads the entries, and makes the generation valid. Each
// change of the seal is a swap (a lightweight transaction), so the swaps have an order.
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
func (s *Store) MarkFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, users []leaderboard.UserID, reason string) error {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey)
	if err != nil || !inc.openFor(b) {
		return cmp.Or(err, errNotSealed(seasonKey))
	}
	x, err := s.overtake(ctx, seasonKey, inc)
	isUnavailable := errors.Is(err, leaderboard.ErrUnavailable)
	if !isUnavailable && (err != nil || !x.sealed()) {
		return cmp.Or(err, errNotSealed(seasonKey))
	}
	id := gocql.MustRandomUUID().String()
	var inserts []op
	for _, user := range withoutRepeats(users) {
		inserts = append(inserts, op{insertMark, []any{s.dc, bucketOf(user, markBuckets), string(user), id, string(b.ID), string(season), reason}})
	}
	err = s.writeMarks(ctx, inserts)
	if err == nil && isUnavailable {
		err = errNotSealed(seasonKey)
	}
	return err
}

// overtake makes a running Seal start again: see MarkFinal.
func (s *Store) overtake(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) (seal, error) {
	x, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
		x.Overtaken++
		return !x.sealed() && len(x.Pending) > 0
	})
	return x, err
}

// In writeMarks, the second argument of each statement is the bucket.
func (s *Store) writeMarks(ctx context.Context, ops []op) error {
	byBucket := map[int][]op{}
	for _, o := range ops {
		bucket := o.args[1].(int)
		byBucket[bucket] = append(byBucket[bucket], o)
	}
	var batches [][]op
	for _, bucket := range slices.Sorted(maps.Keys(byBucket)) {
		batches = slices.AppendSeq(batches, slices.Chunk(byBucket[bucket], mostWrites))
	}
	return s.forEach(ctx, len(batches), func(ctx context.Context, i int) error { return s.conn.write(ctx, batches[i]...) })
}

// FinalMarks yields the marks of this data center.
func (s *Store) FinalMarks(ctx context.Context) iter.Seq2[leaderboard.FinalMark, error] {
	return func(yield func(leaderboard.FinalMark, error) bool) {
		marks := make([][]leaderboard.FinalMark, markBuckets)
		err := s.forEach(ctx, markBuckets, func(ctx context.Context, bucket int) (err error) {
			var user, id, board, season, reason string
			marks[bucket], err = gather(ctx, s.conn, op{selectMarks, []any{s.dc, bucket}}, []any{&user, &id, &board, &season, &reason}, func() (leaderboard.FinalMark, error) {
				key := leaderboard.SeasonKey{Board: leaderboard.BoardID(board), Season: leaderboard.SeasonID(season)}
				return leaderboard.FinalMark{SeasonKey: key, User: leaderboard.UserID(user), ID: id, Reason: reason}, nil
			})
			return err
		})
		if err != nil {
			yield(leaderboard.FinalMark{}, err)
			return
		}
		for _, m := range slices.Concat(marks...) {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// RemoveFinalMarks removes marks of this data center.
func (s *Store) RemoveFinalMarks(ctx context.Context, marks []leaderboard.FinalMark) error {
	var deletions []op
	for i := range marks {
		deletions = append(deletions, s.deleteMark(marks[i].User, marks[i].ID))
	}
	return s.writeMarks(ctx, deletions)
}

func (s *Store) deleteMark(user leaderboard.UserID, id string) op {
	return op{deleteMark, []any{s.dc, bucketOf(user, markBuckets), string(user), id}}
}

func (s *Store) eraseMarks(ctx context.Context, user leaderboard.UserID) error {
	var id string
	deletions, err := gather(ctx, s.conn, op{selectUserMarks, []any{s.dc, bucketOf(user, markBuckets), string(user)}}, []any{&id},
		func() (op, error) { return s.deleteMark(user, id), nil })
	if err != nil {
		return err
	}
	return s.writeMarks(ctx, deletions)
}
