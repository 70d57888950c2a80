package cql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// newFinals seals a season of n users, in groups of three with the same score.
func newFinals(t *testing.T, n int) (*testStore, *recorder, leaderboard.Ladder) {
	t.Helper()
	s, rec, b := newClosed(t, n)
	if _, err := s.Seal(t.Context(), b, leaderboard.SeasonAll, stepsEpoch); err != nil {
		t.Fatal(err)
	}
	return s, rec, leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: b.ID, Season: leaderboard.SeasonAll}}
}

// newClosed is like newFinals without the seal.
func newClosed(t *testing.T, n int) (*testStore, *recorder, *leaderboard.Board) {
	t.Helper()
	rec := &recorder{conn: newModel(nil)}
	s := openTest(rec, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: -1})
	b := stepsBoard(leaderboard.Best)
	if err := s.CreateBoard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), &b, closedResults(&b, n)); err != nil {
		t.Fatal(err)
	}
	return s, rec, &b
}

func closedResults(b *leaderboard.Board, n int) []leaderboard.MatchResult {
	results := make([]leaderboard.MatchResult, n)
	for i := range results {
		results[i] = leaderboard.MatchResult{Score: leaderboard.Score(n - i/3*3), AchievedAt: stepsEpoch, ReceivedAt: stepsEpoch}
		results[i].Board, results[i].Season, results[i].User, results[i].Match = b.ID, leaderboard.SeasonAll, finalUser(i), "m"
	}
	return results
}

func finalUser(i int) leaderboard.UserID { return leaderboard.UserID(fmt.Sprintf("u%05d", i)) }

func TestReadsOfASealedSeasonAreCheap(t *testing.T) {
	const n = 2500
	s, rec, l := newFinals(t, n)
	ctx := t.Context()
	all, _, err := s.FinalStandings(ctx, l, 1, n)
	if err != nil || len(all) != n {
		t.Fatalf("FinalStandings returns %d standings, error %v; want %d", len(all), err, n)
	}
	var users []leaderboard.UserID
	for i := range 100 {
		users = append(users, finalUser(i*25))
	}
	for _, tt := range []struct {
		name         string
		cold, cached int // the most statements allowed without and with cached pages
		read         func() (got, want any, err error)
	}{
		{"the top", 3, 1, func() (any, any, error) {
			page, _, err := s.FinalStandings(ctx, l, 1, 10)
			return page, all[:10], err
		}},
		{"one position", 3, 1, func() (any, any, error) {
			page, _, err := s.FinalStandings(ctx, l, 2000, 1)
			return page, all[1999:2000], err
		}},
		{"1000 positions on many pages", 3, 1, func() (any, any, error) {
			page, _, err := s.FinalStandings(ctx, l, 501, 1000)
			return page, all[500:1500], err
		}},
		{"a position after the last position", 2, 1, func() (any, any, error) {
			_, total, err := s.FinalStandings(ctx, l, 9000, 10)
			return total, int64(n), err
		}},
		{"a user with neighbors on two pages", 3, 2, func() (any, any, error) {
			around, total, err := s.FinalAround(ctx, l, finalUser(1001), 4, 4)
			return []any{around, total}, []any{leaderboard.Neighborhood{Standings: all[997:1006], Of: 4, NotWorse: 1002}, int64(n)}, err
		}},
		{"a user whose ties end on the next page", 3, 2, func() (any, any, error) {
			around, _, err := s.FinalAround(ctx, l, finalUser(999), 0, 0)
			return around, leaderboard.Neighborhood{Standings: all[999:1000], NotWorse: 1002}, err
		}},
		{"an unknown user", 3, 3, func() (any, any, error) {
			_, _, err := s.FinalAround(ctx, l, "nobody", 4, 4)
			return fmt.Sprint(err), `final standing of user "nobody": entry not found`, nil
		}},
		{"the rank of a key", 3, 1, func() (any, any, error) {
			_, better, total, err := s.FinalAfter(ctx, l, leaderboard.SortKey(all[2300].Key), 0)
			return []any{better, total}, []any{leaderboard.Counts{Standings: 2298, Distinct: 766}, int64(n)}, err
		}},
		{"a page after a key", 3, 1, func() (any, any, error) {
			page, _, _, err := s.FinalAfter(ctx, l, all[1499].SortKey(), 1000)
			return page, all[1500:], err
		}},
		{"one user", 2, 2, func() (any, any, error) {
			got, _, err := s.FinalLookup(ctx, l, users[7:8])
			return got, all[175:176], err
		}},
		{"100 users", 5, 5, func() (any, any, error) {
			got, total, err := s.FinalLookup(ctx, l, users)
			var want []leaderboard.Standing
			for i := range users {
				want = append(want, all[i*25])
			}
			return []any{got, total}, []any{want, int64(n)}, err
		}},
		{"100 users, one without a standing", 6, 6, func() (any, any, error) {
			got, _, err := s.FinalLookup(ctx, l, append(slices.Clone(users[:99]), "nobody"))
			return got[99], leaderboard.Standing{User: "nobody"}, err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.forgetPages()
			for _, limit := range []int{tt.cold, tt.cached} {
				rec.cost = cost{}
				got, want, err := tt.read()
				if err != nil {
					t.Fatal(err)
				}
				if d := gocmp.Diff(want, got); d != "" {
					t.Errorf("answer (-want +got):\n%s", d)
				}
				if rec.cost.statements > limit {
					t.Errorf("%d statements, want at most %d", rec.cost.statements, limit)
				}
				if tt.cached < tt.cold {
					if _, _, err := s.FinalStandings(ctx, l, 1, n); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// In each round, a part of an amendment or an erasure runs before a statement of a read.
// The read must return the old or the new standings, with the old or the new total. After
// the change, a read with the cached pages must return the new standings.
func TestModelOfAReaderBesideAChange(t *testing.T) {
	needs.Also(t, "histories")
	first, every := stride(t)
	ladder := leaderboard.Ladder{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}}
	users := []leaderboard.UserID{"u0", "u1", "u2"}
	names := func(standings []leaderboard.Standing, total int64, err error) (string, error) {
		text := fmt.Sprint(total)
		for _, st := range standings {
			if st.Key != "" {
				text += " " + string(st.User)
			}
		}
		return text, err
	}
	for name, read := range map[string]func(context.Context, *testStore) (string, error){
		"a page": func(ctx context.Context, s *testStore) (string, error) {
			return names(s.FinalStandings(ctx, ladder, 1, 10))
		},
		"users": func(ctx context.Context, s *testStore) (string, error) {
			got, total, err := s.FinalLookup(ctx, ladder, users)
			slices.SortFunc(got, func(x, y leaderboard.Standing) int { return cmp.Compare(x.Ranks.Ordinal, y.Ranks.Ordinal) })
			return names(got, total, err)
		},
		"neighbors": func(ctx context.Context, s *testStore) (string, error) {
			n, total, err := s.FinalAround(ctx, ladder, "u2", 2, 2)
			return names(n.Standings, total, err)
		},
		"standings after a key": func(ctx context.Context, s *testStore) (string, error) {
			page, _, total, err := s.FinalAfter(ctx, ladder, "", 10)
			return names(page, total, err)
		},
	} {
		for change, c := range map[string]struct {
			run  func(context.Context, *writers, *testStore) error
			want []string // the allowed answers: the total and the users
		}{
			"an amendment": {func(ctx context.Context, w *writers, s *testStore) error {
				w.user = "u0"
				if err := w.apply(ctx, s, "late 50 blue"); err != nil {
					return err
				}
				return w.amendSeason(ctx, s)
			}, []string{"3 u1 u2 u0", "3 u0 u1 u2"}},
			"an amendment of one user": {func(ctx context.Context, w *writers, s *testStore) error {
				w.user = "u0"
				if err := w.apply(ctx, s, "late 50 blue"); err != nil {
					return err
				}
				return w.amendSeason(ctx, s, "u0")
			}, []string{"3 u1 u2 u0", "3 u0 u1 u2"}},
			"an erasure": {func(ctx context.Context, w *writers, s *testStore) error {
				_, err := s.Erase(ctx, "u1", w.clock)
				return err
			}, []string{"3 u1 u2 u0", "3 u2 u0", "2 u2 u0", "2 u1 u2 u0"}},
		} {
			t.Run(name+" beside "+change, func(t *testing.T) {
				for readIndex := range 4 {
					for n, more := first, true; more; n += every {
						w := newSeason(t)
						ctx := t.Context()
						if err := w.seal(ctx, w.third); err != nil {
							t.Fatal(err)
						}
						var changeErr error
						step, _ := w.conns[1].walk(func() { changeErr = c.run(ctx, w, w.stores[1]) })
						gate := &readGate{conn: w.third.conn}
						reader := openTest(gate, Options{DataCenter: "dc1", Buckets: 2, CacheUsers: -1})
						reader.parallel = 1
						reads := 0
						gate.beforeRead = func() {
							if reads++; reads == readIndex+1 {
								more = step(n + 1)
							}
						}
						got, err := read(ctx, reader)
						if reads <= readIndex {
							more = false
						}
						if err != nil || !slices.Contains(c.want, got) {
							t.Fatalf("%d statements of the change before read %d: the read returns %q, error %v; want one of %q", n+1, readIndex+1, got, err, c.want)
						}
						for step(1000) {
						}
						wantAfter := c.want[min(len(c.want)-1, 2)]
						if len(c.want) == 2 {
							wantAfter = c.want[1]
						}
						if got, err := read(ctx, reader); err != nil || changeErr != nil || got != wantAfter {
							t.Fatalf("%d statements of the change before read %d: after the change, a read returns %q, error %v, and the change has the error %v; want %q", n+1, readIndex+1, got, err, changeErr, wantAfter)
						}
					}
				}
			})
		}
	}
}

// The oracle is a plain list of the standings that are left. Each erased user leaves a gap.
func TestReadsOfASeasonWithErasedUsers(t *testing.T) {
	const n = 2200
	seed := stepsSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	s, _, l := newFinals(t, n)
	ctx := t.Context()
	all, _, err := s.FinalStandings(ctx, l, 1, n)
	if err != nil || len(all) != n {
		t.Fatalf("FinalStandings returns %d standings, error %v; want %d", len(all), err, n)
	}
	erased := []int{0, 998, 999, 1000, 1001, 1002, 1999, 2000, n - 1}
	for i := range 110 { // more users than a page has
		erased = append(erased, 1200+i)
	}
	for range 6 {
		erased = append(erased, rng.IntN(n))
	}
	left := slices.Clone(all)
	for i, position := range erased {
		user := all[position].User
		if _, err := s.Erase(ctx, user, stepsEpoch); err != nil {
			t.Fatal(err)
		}
		left = slices.DeleteFunc(left, func(st leaderboard.Standing) bool { return st.User == user })
		if i != 8 && i < len(erased)-1 {
			continue // compare only after the erasures at the ends of pages, and after all erasures
		}
		selected := func(ok func(*leaderboard.Standing) bool) []leaderboard.Standing {
			return slices.DeleteFunc(slices.Clone(left), func(st leaderboard.Standing) bool { return !ok(&st) })
		}
		from := func(position int64, n int) []leaderboard.Standing {
			all := selected(func(st *leaderboard.Standing) bool { return st.Ranks.Ordinal >= position })
			return all[:min(n, len(all))]
		}
		after := func(key leaderboard.SortKey) []leaderboard.Standing {
			return selected(func(st *leaderboard.Standing) bool { return st.SortKey() > key })
		}
		compare := func(query string, want, got any, total int64, err error) {
			t.Helper()
			if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" || err != nil || total != int64(len(left)) {
				t.Fatalf("seed %d, after %d erasures, %s: total %d of %d, error %v (-want +got):\n%s", seed, i+1, query, total, len(left), err, d)
			}
		}
		for range 30 {
			position, many := 1+rng.Int64N(n+10), rng.IntN(2)*rng.IntN(1100)
			st := &left[rng.IntN(len(left))]
			page, total, err := s.FinalStandings(ctx, l, position, many)
			compare(fmt.Sprint("FinalStandings ", position, many), from(position, many), page, total, err)

			reach := int64(many % 50)
			wantAround := leaderboard.Neighborhood{Standings: selected(func(o *leaderboard.Standing) bool {
				return o.Ranks.Ordinal >= st.Ranks.Ordinal-reach && o.Ranks.Ordinal <= st.Ranks.Ordinal+reach
			})}
			wantAround.Of = slices.Index(wantAround.Standings, *st)
			around, total, err := s.FinalAround(ctx, l, st.User, many%50, many%50)
			around.NotWorse = 0 // it may be the position of an erased user
			compare(fmt.Sprint("FinalAround ", st.User, many%50), wantAround, around, total, err)

			wantPage := after(st.SortKey())
			page, _, total, err = s.FinalAfter(ctx, l, st.SortKey(), many)
			compare(fmt.Sprint("FinalAfter ", st.User, many), wantPage[:min(many, len(wantPage))], page, total, err)

			next := after(leaderboard.SortKey(st.Key))[0]
			wantCounts := leaderboard.Counts{Standings: next.Ranks.Competition - 1, Distinct: next.Ranks.Dense - 1}
			_, better, total, err := s.FinalAfter(ctx, l, leaderboard.SortKey(st.Key), 0)
			compare(fmt.Sprint("FinalAfter the rank key of ", st.User), wantCounts, better, total, err)

			got, total, err := s.FinalLookup(ctx, l, []leaderboard.UserID{st.User, user, "nobody"})
			compare(fmt.Sprint("FinalLookup of ", st.User), []leaderboard.Standing{*st, {User: user}, {User: "nobody"}}, got, total, err)
		}
		if _, _, err := s.FinalAround(ctx, l, user, 1, 1); !errors.Is(err, leaderboard.ErrEntryNotFound) {
			t.Fatalf("FinalAround of an erased user returns the error %v, want %v", err, leaderboard.ErrEntryNotFound)
		}
	}
}

// In each round, an erasure waits before a different statement. Meanwhile another user is
// erased, and a reader caches the pages. After both erasures, the reader must return
// neither user.
func TestModelOfTwoErasuresInASealedSeason(t *testing.T) {
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	const want = `["u2 " "u2 red"]`
	for n, more := 0, true; more; n++ {
		w := newSeason(t)
		ctx := t.Context()
		if err := w.seal(ctx, w.third); err != nil {
			t.Fatal(err)
		}
		read := func() string {
			t.Helper()
			var users []string
			for _, team := range []string{"", "red", "blue"} {
				l := leaderboard.Ladder{SeasonKey: key}
				if team != "" {
					l.Division = leaderboard.Division{Attribute: "team", Value: team}
				}
				got, _, err := w.third.FinalStandings(ctx, l, 1, 10)
				if err != nil {
					t.Fatal(err)
				}
				for _, st := range got {
					users = append(users, string(st.User)+" "+team)
				}
			}
			return fmt.Sprintf("%q", users)
		}
		read()
		var slowErr error
		step, _ := w.conns[1].walk(func() { _, slowErr = w.stores[1].Erase(ctx, "u1", w.clock) })
		more = step(n)
		_, err := w.stores[0].Erase(ctx, "u0", w.clock)
		if err != nil {
			t.Fatal(err)
		}
		read()
		for step(1000) {
		}
		if got := read(); got != want || slowErr != nil {
			t.Fatalf("the erasure of u1 ran %d statements before that of u0: after both, a read returns %s, and the erasure of u1 has the error %v; want %s", n, got, slowErr, want)
		}
	}
}
