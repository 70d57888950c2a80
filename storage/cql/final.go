package cql

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A finalSet is a generation of final standings in positionLayout or fencedLayout (see
// seal.go), which older programs wrote. The next amendment replaces it.
type finalSet struct {
	s          *Store
	seasonKey  leaderboard.SeasonKey
	generation string
}

func (f finalSet) args(others ...any) []any {
	return append([]any{string(f.seasonKey.Board), string(f.seasonKey.Season), f.generation}, others...)
}

// finalPage is the number of positions in a page of table final_standings.
const finalPage = 1000

func pageOf(position int64) int { return int((position - 1) / finalPage) }

var errEnded = errors.New("cql: the season was deleted while its final standings were written")

type finalSize struct {
	division string
	written  int64 // the greatest position
	erased   int64 // the number of erased positions
}

func (f finalSet) sizes(ctx context.Context, q op) ([]finalSize, error) {
	var l finalSize
	var erased []int64
	return gather(ctx, f.s.conn, q, []any{&l.division, &l.written, &erased}, func() (finalSize, error) {
		l.erased = int64(len(erased))
		erased = nil
		return l, nil
	})
}

// removeAll deletes all rows of the generation. Reads depend on the order of the deletions:
// see finalread.go.
func (f finalSet) removeAll(ctx context.Context) error {
	ladders, err := f.sizes(ctx, op{selectFinalLadders, f.args()})
	if err != nil {
		return err
	}
	for _, l := range ladders {
		for page := 0; page <= pageOf(l.written); page++ {
			// the overall ladder has every user, and one statement deletes a user's rows of
			// all ladders
			if l.division == "" {
				var user string
				users, err := gather(ctx, f.s.conn, op{selectFinalUsers, f.args(l.division, page)}, []any{&user}, func() (string, error) { return user, nil })
				if err != nil {
					return err
				}
				// a page whose standings were all erased returns one row without a user
				users = slices.DeleteFunc(users, func(user string) bool { return user == "" })
				err = f.s.forEach(ctx, len(users), func(ctx context.Context, i int) error {
					return f.s.conn.write(ctx, op{deleteUserPositions, f.args(users[i])})
				})
				if err != nil {
					return err
				}
			}
			if err := f.s.conn.write(ctx, op{deleteFinalPage, f.args(l.division, page)}); err != nil {
				return err
			}
		}
		if err := f.s.conn.write(ctx, op{deleteFinalFences, f.args(l.division)}); err != nil {
			return err
		}
	}
	return f.s.conn.write(ctx, op{deleteFinalLadders, f.args()})
}

// sweepFinal removes the final standings of an ended incarnation, except for the places
// (see directory.go), which sweepUsers removes. It first makes the valid generation
// invalid: see finalread.go. A concurrent Seal or Amend removes its own rows: see
// checkOpen.
func (s *Store) sweepFinal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) error {
	for {
		_, x, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
			if !x.sealed() {
				return false
			}
			old := pendingGeneration{Generation: x.Generation}
			if x.Layout == pagedLayout {
				old.Layout = pagedLayout
			}
			*x = seal{Overtaken: x.Overtaken, Writes: x.Writes, Pending: append(x.Pending, old)}
			return true
		})
		if err != nil || x.body == "" {
			return err
		}
		for _, g := range x.Pending {
			if g.Layout != pagedLayout {
				if err := (finalSet{s, seasonKey, g.Generation}).removeAll(ctx); err != nil {
					return err
				}
			}
		}
		if err := (&pagedSeason{s, seasonKey, inc}).removeAll(ctx, &x); err != nil {
			return err
		}
		if ok, err := s.dropSeal(ctx, seasonKey, inc, &x); ok || err != nil {
			return err
		}
	}
}

// eraseFinal removes a user from the final standings. The other users keep their ranks.
func (s *Store) eraseFinal(ctx context.Context, key *userKey) error {
	inc := incarnation{number: key.incarnation}
	_, updated, _, err := s.changeSeal(ctx, key.SeasonKey, inc, func(x *seal) bool { x.Overtaken++; return len(x.Pending) > 0 })
	if err != nil {
		return err
	}
	for _, g := range updated.Pending {
		if g.Layout != pagedLayout {
			if err := (finalSet{s, key.SeasonKey, g.Generation}).erase(ctx, key.user); err != nil {
				return err
			}
		}
	}
	if err := (&pagedSeason{s, key.SeasonKey, inc}).erase(ctx, &updated, key.user); err != nil {
		return err
	}
	if !updated.sealed() || updated.Layout == pagedLayout {
		return nil
	}
	f := finalSet{s, key.SeasonKey, updated.Generation}
	if err := f.erase(ctx, key.user); err != nil {
		return err
	}
	ladders, err := f.sizes(ctx, op{selectFinalLadders, f.args()})
	if err != nil {
		return err
	}
	_, _, _, err = s.changeSeal(ctx, key.SeasonKey, inc, func(x *seal) bool {
		if x.Generation != f.generation {
			return false
		}
		x.setErased(ladders)
		x.Erasures++
		return true
	})
	return err
}

func (f finalSet) erase(ctx context.Context, user leaderboard.UserID) error {
	type userPosition struct {
		division string
		position int64
		standing leaderboard.SortKey // empty in positionLayout
	}
	var p userPosition
	var key []byte
	var achieved int64
	positions, err := gather(ctx, f.s.conn, op{selectUserPositions, f.args(string(user))}, []any{&p.division, &p.position, &key, &achieved}, func() (userPosition, error) {
		if p.standing = ""; len(key) > 0 {
			st := leaderboard.Standing{User: user, Key: leaderboard.RankKey(key), AchievedAt: time.UnixMicro(achieved)}
			p.standing = st.SortKey()
		}
		return p, nil
	})
	if err != nil {
		return err
	}
	for _, p := range positions {
		if err := f.s.conn.write(ctx, op{eraseFinalPosition, append([]any{[]int64{p.position}}, f.args(p.division)...)}); err != nil {
			return err
		}
		if p.standing != "" {
			if err := f.eraseFence(ctx, p.division, p.position, p.standing); err != nil {
				return err
			}
		}
		if err := f.s.conn.write(ctx, op{deleteFinalStanding, f.args(p.division, pageOf(p.position), p.position)}); err != nil {
			return err
		}
	}
	return f.s.conn.write(ctx, op{deleteUserPositions, f.args(string(user))})
}

// eraseFence removes the fence at a standing, because a fence contains the user's id. It
// first makes the next standing of the page a fence (see finalread.go).
func (f finalSet) eraseFence(ctx context.Context, division string, position int64, standing leaderboard.SortKey) error {
	page, err := f.rows(ctx, division, position, 2)
	if err != nil {
		return err
	}
	for i := range page {
		if page[i].Ranks.Ordinal > position {
			if err := f.s.conn.write(ctx, op{insertFinalFence, f.args(division, []byte(page[i].SortKey()), pageOf(position))}); err != nil {
				return err
			}
			break
		}
	}
	return f.s.conn.write(ctx, op{deleteFinalFence, f.args(division, []byte(standing))})
}
