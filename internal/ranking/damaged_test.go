package ranking_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

// damagedUser is a store in which results and bans of the user "bad" cannot be read or
// changed. If board is not empty, only the results on this board are damaged.
type damagedUser struct {
	leaderboard.Store
	board leaderboard.BoardID
}

var errDamaged = fmt.Errorf("test: %w", leaderboard.ErrFormat)

func (s damagedUser) damaged(board leaderboard.BoardID, user leaderboard.UserID) bool {
	return user == "bad" && (s.board == "" || s.board == board)
}

func (s damagedUser) SetBan(ctx context.Context, b leaderboard.Ban) ([]leaderboard.Change, error) {
	if s.damaged("", b.User) {
		return nil, errDamaged
	}
	return s.Store.SetBan(ctx, b)
}

func (s damagedUser) Result(ctx context.Context, key leaderboard.ResultKey) (leaderboard.Record, error) {
	if s.damaged(key.Board, key.User) {
		return leaderboard.Record{}, errDamaged
	}
	return s.Store.Result(ctx, key)
}

func (s damagedUser) Results(ctx context.Context, key leaderboard.SeasonKey, user leaderboard.UserID) iter.Seq2[leaderboard.MatchResult, error] {
	if s.damaged(key.Board, user) {
		return func(yield func(leaderboard.MatchResult, error) bool) { yield(leaderboard.MatchResult{}, errDamaged) }
	}
	return s.Store.Results(ctx, key, user)
}

func (s damagedUser) Apply(ctx context.Context, b *leaderboard.Board, results []leaderboard.MatchResult) (leaderboard.ApplyReport, error) {
	outcomes := make([]leaderboard.Outcome, len(results))
	var intact []leaderboard.MatchResult
	var indexes []int
	for i := range results {
		if outcomes[i].Err = errDamaged; !s.damaged(b.ID, results[i].User) {
			intact, indexes = append(intact, results[i]), append(indexes, i)
		}
	}
	if len(intact) == 0 && len(results) > 0 {
		return leaderboard.ApplyReport{}, errDamaged
	}
	report, err := s.Store.Apply(ctx, b, intact)
	for n := range report.Outcomes {
		outcomes[indexes[n]] = report.Outcomes[n]
	}
	report.Outcomes = outcomes
	return report, err
}

func TestBansEndDespiteADamagedUser(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	for i, user := range []string{"bad", "ann", "bob"} {
		f.submit("b", points(user, "m", 5))
		f.ban(leaderboard.Ban{User: leaderboard.UserID(user), Until: start.Add(time.Duration(i+1) * time.Hour)})
	}
	s := serviceOver(t, damagedUser{Store: f.store}, f.index)
	s.clock.set(start.Add(150 * time.Minute))
	nextEnd, err := s.LiftEndedBans(t.Context(), start.Add(9*time.Hour))
	if !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("LiftEndedBans: %v, want ErrFormat and the user", err)
	}
	if want := start.Add(3 * time.Hour); !nextEnd.Equal(want) {
		t.Errorf("the next end is %v, want %v", nextEnd, want)
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 5 1")
}

// The void applies to the other users of every chunk, also on the linked board. It stays
// unfinished, so the next sweep repeats it.
func TestAVoidReachesTheOthersDespiteADamagedUser(t *testing.T) {
	needs.NoRace(t, "one call follows another")
	synctest.Test(t, func(t *testing.T) {
		for _, damagedBoard := range []leaderboard.BoardID{"b", "copy"} {
			f := open(t)
			b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Matches: true})
			f.create(leaderboard.Board{ID: "copy", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}})
			if err := f.FillLinked(t.Context()); err != nil {
				t.Fatal(err)
			}
			var batch []leaderboard.MatchResult
			for i := range 1100 { // more users than in a chunk
				batch = append(batch, points(fmt.Sprintf("u%04d", i), "m", 5))
			}
			batch = append(batch, points("bad", "m", 5), points("bad", "other", 1), points("u0001", "other", 1))
			for chunk := range slices.Chunk(batch, ranking.MaxBatch) {
				if _, err := f.Submit(t.Context(), &b, chunk); err != nil {
					t.Fatal(err)
				}
			}
			m := leaderboard.MatchState{MatchKey: leaderboard.MatchKey{SeasonKey: leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, Match: "m"}}
			s := serviceOver(t, damagedUser{f.store, damagedBoard}, f.index)
			if _, err := s.SetVoid(t.Context(), &b, m, true); !errors.Is(err, leaderboard.ErrFormat) || !strings.Contains(err.Error(), "bad") {
				t.Errorf("SetVoid with damage on %s: %v, want ErrFormat and the user", damagedBoard, err)
			}
			if state, err := f.store.Match(t.Context(), m.MatchKey); err != nil || state.Voids != 1 || state.Applied != 0 {
				t.Errorf("damage on %s: the match is %+v, %v, want Voids 1 and Applied 0 (an unfinished void)", damagedBoard, state, err)
			}
			bad := map[leaderboard.BoardID]string{"b": "bad 1 1", "copy": "bad 1 1"}
			if bad["copy"] = "bad 6 1"; damagedBoard == "b" {
				bad["b"] = "bad 6 1"
			}
			for id, first := range bad {
				want := []string{first, "u0001 1 2"}
				if first == "bad 1 1" {
					want[1] = "u0001 1 1"
				}
				f.wantList(ranking.Query{Board: id}, want...)
			}
		}
	})
}

func TestFillsGoOnDespiteADamagedUser(t *testing.T) {
	for _, damagedBoard := range []leaderboard.BoardID{"b", "copy"} {
		synctest.Test(t, func(t *testing.T) {
			f := open(t)
			f.create(sumBoard)
			for _, user := range []string{"ann", "bad", "zoe"} {
				f.submit("b", points(user, "m", 5))
			}
			s := serviceOver(t, damagedUser{f.store, damagedBoard}, f.index)
			s.create(leaderboard.Board{ID: "copy", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}})
			if err := s.FillLinked(t.Context()); err != nil {
				t.Errorf("damage on %s: FillLinked: %v", damagedBoard, err)
			}
			f.wantList(ranking.Query{Board: "copy"}, "ann 5 1", "zoe 5 1")
			if f.board("copy").Filling() {
				t.Errorf("damage on %s: the board is still filling", damagedBoard)
			}
		})
	}
}

func TestRollingWindowsAreFilledDespiteADamagedUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		f.create(sumBoard)
		f.create(leaderboard.Board{ID: "copy", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"},
			Retention: 1000 * time.Hour, Season: leaderboard.Schedule{Kind: leaderboard.Rolling, Days: 3}})
		if err := f.FillLinked(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, user := range []string{"ann", "bad", "zoe"} {
			f.submit("b", points(user, "m", 5))
		}
		s := serviceOver(t, damagedUser{f.store, "copy"}, f.index)
		f.clock.set(start.AddDate(0, 0, 1))
		s.clock.set(f.clock.now())
		if err := s.FillLinked(t.Context()); err != nil {
			t.Error(err)
		}
		window := ranking.Query{Board: "copy", Season: "20261122"}
		f.wantList(window, "ann 5 1", "zoe 5 1")
		if got := f.board("copy").Rolling.Filled; got != window.Season {
			t.Errorf("filled through %s, want %s", got, window.Season)
		}
	})
}

func (f *fixture) differences(sel ranking.Selection, repair bool) (texts []string) {
	f.t.Helper()
	if _, err := f.Verify(f.t.Context(), sel, repair, nil, func(d ranking.Difference) error {
		texts = append(texts, fmt.Sprintf("%s %s %s repaired:%v", d.Kind, d.Ladder.Board, d.User, d.Repaired))
		return nil
	}); err != nil {
		f.t.Error(err)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// The service counts the failed copies, and Verify reports the user. After the data are
// restored, Verify copies the missing results.
func TestResultsReachTheOtherBoardsDespiteADamagedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		b := f.create(sumBoard)
		for _, id := range []leaderboard.BoardID{"copy", "other"} {
			f.create(leaderboard.Board{ID: id, Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}})
		}
		if err := f.FillLinked(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, user := range []string{"ann", "bad", "zoe"} {
			f.submit("b", points(user, "m0", 5))
		}
		reg := prometheus.NewRegistry()
		store := damagedUser{f.store, "copy"}
		s := serviceOver(t, store, f.index)
		s.Service = ranking.New(store, f.index, ranking.Options{Now: s.clock.now, Registerer: reg})
		t.Cleanup(s.Service.Close)
		var batch []leaderboard.MatchResult
		for _, user := range []string{"zoe", "bad", "ann"} {
			correction := points(user, "m0", 10)
			correction.Revision = 1
			batch = append(batch, points(user, "m1", 1), correction)
		}
		receipts, err := s.Submit(t.Context(), &b, batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range receipts {
			if r.Status != leaderboard.Applied || r.Err != nil {
				t.Errorf("receipt %+v, want status APPLIED", r)
			}
		}
		for _, id := range []leaderboard.BoardID{"b", "other"} {
			f.wantList(ranking.Query{Board: id}, "zoe 11 1", "bad 11 1", "ann 11 1")
		}
		f.wantList(ranking.Query{Board: "copy"}, "zoe 11 1", "ann 11 1", "bad 5 3")
		if n := metrics(t, reg)["leaderboard_linked_damaged_total"]; n != 1 {
			t.Errorf("%v damaged copies are counted, want 1", n)
		}
		f.wantDifferences(s.differences(ranking.Selection{}, false), "DATA_DAMAGED copy bad repaired:false")
		f.wantDifferences(f.differences(ranking.Selection{Board: "copy"}, false), "RESULT_MISSING copy bad repaired:false")
		f.wantDifferences(f.differences(ranking.Selection{Board: "copy", Season: leaderboard.SeasonAll}, true), "RESULT_MISSING copy bad repaired:true")
		f.wantList(ranking.Query{Board: "copy"}, "zoe 11 1", "bad 11 1", "ann 11 1")
		f.wantDifferences(f.differences(ranking.Selection{}, false))
	})
}

func (f *fixture) wantDifferences(got []string, want ...string) {
	f.t.Helper()
	if !slices.Equal(got, want) {
		f.t.Errorf("Verify finds %q, want %q", got, want)
	}
}

func TestVerifyNamesUsersWhomAFillLeftOut(t *testing.T) {
	for _, damagedBoard := range []leaderboard.BoardID{"b", "copy"} {
		synctest.Test(t, func(t *testing.T) {
			f := open(t)
			f.create(sumBoard)
			for _, user := range []string{"ann", "bad"} {
				f.submit("b", points(user, "m", 5))
			}
			s := serviceOver(t, damagedUser{f.store, damagedBoard}, f.index)
			s.create(leaderboard.Board{ID: "copy", Policy: leaderboard.Sum, Source: &leaderboard.Source{Board: "b"}})
			if err := s.FillLinked(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.wantDifferences(s.differences(ranking.Selection{Board: "copy"}, false), "DATA_DAMAGED copy bad repaired:false")
			f.wantDifferences(f.differences(ranking.Selection{Board: "copy"}, true), "RESULT_MISSING copy bad repaired:true")
			f.wantList(ranking.Query{Board: "copy"}, "ann 5 1", "bad 5 1")
		})
	}
}

// A linked board may lack a result that it refused as late, or whose season was deleted.
func TestVerifyAcceptsResultsThatALinkedBoardNeedNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := linkedPair(t)
		f.submit("laps", withRevision(points("ann", "m1", 7), 0, start))
		f.submit("laps", withRevision(points("ann", "late", 7), 0, start.AddDate(0, -2, 0)))
		f.clock.set(start.Add(time.Hour))
		if err := f.store.DeleteSeason(t.Context(), leaderboard.SeasonKey{Board: "month", Season: november.Season}, f.clock.now()); err != nil {
			t.Fatal(err)
		}
		f.wantDifferences(f.differences(ranking.Selection{}, false))
	})
}
