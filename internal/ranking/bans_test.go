package ranking_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
)

func (f *fixture) ban(b leaderboard.Ban) leaderboard.Ban {
	f.t.Helper()
	b.Banned = true
	got, err := f.SetBan(f.t.Context(), b)
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

func (f *fixture) lift() {
	f.t.Helper()
	// LiftEndedBans excludes bans that end at the given time.
	if _, err := f.LiftEndedBans(f.t.Context(), f.clock.now().Add(time.Microsecond)); err != nil {
		f.t.Fatal(err)
	}
}

func TestBanOnABoardHidesAUserThereOnly(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.create(leaderboard.Board{ID: "c"})
	f.submit("b", points("ann", "m", 5))
	f.submit("c", points("ann", "m", 6))
	f.ban(leaderboard.Ban{User: "ann", Board: "b"})
	f.wantList(ranking.Query{Board: "b"})
	f.wantList(ranking.Query{Board: "c"}, "ann 6 1")
	if got := f.submit("b", points("ann", "n", 1)); !got.Banned || got.Status != leaderboard.Applied || got.Score != 6 {
		t.Errorf("submit of a banned user: %+v, want applied, banned and score 6", got)
	}
	if got := f.submit("c", points("ann", "n", 7)); got.Banned || got.Rank != 1 {
		t.Errorf("submit on another board: %+v, want rank 1 and not banned", got)
	}
	f.ban(leaderboard.Ban{User: "ann"})
	f.wantList(ranking.Query{Board: "c"})
	for _, board := range []leaderboard.BoardID{"", "b"} {
		if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Board: board}); err != nil {
			t.Fatal(err)
		}
	}
	f.wantList(ranking.Query{Board: "b"}, "ann 6 1")
	f.wantList(ranking.Query{Board: "c"}, "ann 7 1")
}

func TestSetBanChecksTheBan(t *testing.T) {
	f := open(t)
	for want, b := range map[string]leaderboard.Ban{
		"user_id": {Banned: true},
		"reason":  {User: "ann", Banned: true, Reason: strings.Repeat("x", 257)},
		"until":   {User: "ann", Banned: true, Until: start},
	} {
		_, err := f.SetBan(t.Context(), b)
		var field *leaderboard.FieldError
		if !errors.As(err, &field) || field.Field != want {
			t.Errorf("SetBan(%+v): %v, want an error for field %s", b, err, want)
		}
	}
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "ann", Board: "none", Banned: true}); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("ban on an unknown board: %v, want ErrBoardNotFound", err)
	}
	if bans, err := f.UserBans(t.Context(), "ann"); err != nil || len(bans) != 0 {
		t.Errorf("bans after rejected bans: %+v, %v, want none", bans, err)
	}
}

func TestBanEndsByItself(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	f.submit("b", points("ann", "m", 5))
	f.submit("b", points("bob", "m", 3))
	f.afterDay()
	f.seal()
	f.submit("b", points("ann", "later", 1))
	end := f.clock.now().Add(time.Hour)
	f.ban(leaderboard.Ban{User: "ann", Board: "b", Until: end})
	f.clock.set(end.Add(-time.Microsecond))
	f.lift()
	f.wantList(ranking.Query{Board: "b"})
	f.wantList(dayQuery, "bob 3 1")
	f.clock.set(end)
	f.lift()
	f.wantList(ranking.Query{Board: "b"}, "ann 1 1")
	f.wantList(dayQuery, "ann 5 1", "bob 3 2")
	bans, err := f.UserBans(t.Context(), "ann")
	if err != nil || len(bans) != 1 || bans[0].Banned || !bans[0].At.Equal(end) || !bans[0].Until.IsZero() {
		t.Errorf("bans after the end: %+v, %v, want one lifted ban without an end", bans, err)
	}
	page, err := f.Acts(t.Context(), ranking.ActQuery{Action: "unban", Limit: 10})
	if err != nil || len(page.Acts) != 1 || page.Acts[0].Actor != leaderboard.SystemActor || page.Acts[0].User != "ann" || !page.Acts[0].At.Equal(end) {
		t.Errorf("acts with action \"unban\" after the end: %+v, %v, want one act, by the system, at the time when the ban ended", page.Acts, err)
	}
}

func TestALaterBanReplacesTheEnd(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	f.ban(leaderboard.Ban{User: "ann", Until: start.Add(time.Hour)})
	f.ban(leaderboard.Ban{User: "ann", Until: start.Add(3 * time.Hour)})
	f.clock.set(start.Add(2 * time.Hour))
	f.lift()
	f.wantList(ranking.Query{Board: "b"})
	f.ban(leaderboard.Ban{User: "ann"})
	f.clock.set(start.Add(1000 * time.Hour))
	f.lift()
	f.wantList(ranking.Query{Board: "b"})
}

// deadAfterBan is the store of a process that dies after SetBan.
type deadAfterBan struct {
	leaderboard.Store
}

func (s deadAfterBan) SetBan(ctx context.Context, b leaderboard.Ban) ([]leaderboard.Change, error) {
	if _, err := s.Store.SetBan(ctx, b); err != nil {
		return nil, err
	}
	return nil, errDied
}

// A process dies after the store has lifted the ban. The next process updates the ranks.
func TestAnInterruptedEndOfABanIsCompleted(t *testing.T) {
	f := open(t)
	f.create(dailyBoard)
	f.submit("b", points("ann", "m", 5))
	f.afterDay()
	f.seal()
	f.submit("b", points("ann", "later", 1))
	f.ban(leaderboard.Ban{User: "ann", Until: f.clock.now().Add(time.Hour)})
	f.clock.set(f.clock.now().Add(2 * time.Hour))
	died := serviceOver(t, deadAfterBan{f.store}, f.index)
	died.clock.set(f.clock.now())
	if _, err := died.LiftEndedBans(t.Context(), f.clock.now()); !errors.Is(err, errDied) {
		t.Fatalf("LiftEndedBans: %v, want %v", err, errDied)
	}
	f.wantList(ranking.Query{Board: "b"})
	f.lift()
	f.wantList(ranking.Query{Board: "b"}, "ann 1 1")
	f.wantList(dayQuery, "ann 5 1")
	for b, err := range f.store.BansEnding(t.Context(), f.clock.now().AddDate(1, 0, 0)) {
		t.Errorf("BansEnding yields %+v, %v, want none", b, err)
	}
}

func TestSweepEveryLiftsBansAtTheirEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		f.create(sumBoard)
		s := ranking.New(f.store, f.index, ranking.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		hidden := func(user leaderboard.UserID) bool {
			t.Helper()
			e, err := f.store.Entry(ctx, leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}, user)
			if err != nil {
				t.Fatal(err)
			}
			return e.Hidden
		}
		ban := func(user leaderboard.UserID, after time.Duration) {
			t.Helper()
			if _, err := s.SetBan(ctx, leaderboard.Ban{User: user, Banned: true, Until: time.Now().Add(after)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, user := range []string{"ann", "bob"} {
			f.submit("b", points(user, "m", 5))
		}
		ban("ann", 3*time.Second)
		done := make(chan struct{})
		go func() { s.SweepEvery(ctx, time.Minute); close(done) }()
		synctest.Wait()
		ban("bob", 2*time.Second)
		time.Sleep(time.Millisecond)
		for i, want := range []string{"true true", "true false", "false false"} {
			time.Sleep(time.Second)
			synctest.Wait()
			if got := fmt.Sprint(hidden("ann"), " ", hidden("bob")); got != want {
				t.Errorf("after %d seconds: ann and bob hidden: %s, want %s", i+1, got, want)
			}
		}
		cancel()
		<-done
		s.Close()
	})
}

func TestBansAreListedAndFound(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.create(leaderboard.Board{ID: "c"})
	f.ban(leaderboard.Ban{User: "Ann", Board: "b", Reason: "Aimbot", Actor: "key:1"})
	f.ban(leaderboard.Ban{User: "annika", Reason: "smurf", Actor: "key:2"})
	f.ban(leaderboard.Ban{User: "bob", Board: "c", Reason: "aimbot, again", Actor: "key:1"})
	f.ban(leaderboard.Ban{User: "cyd", Until: start.Add(time.Minute)})
	f.ban(leaderboard.Ban{User: "dan"})
	if _, err := f.SetBan(t.Context(), leaderboard.Ban{User: "dan"}); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start.Add(time.Minute)) // the ban of cyd has ended, but is not lifted yet
	for _, tt := range []struct {
		q    ranking.BanQuery
		want string
	}{
		{ranking.BanQuery{}, "Ann annika bob"},
		{ranking.BanQuery{Lifted: true}, "Ann annika bob cyd dan"},
		{ranking.BanQuery{Board: "b"}, "Ann annika"},
		{ranking.BanQuery{User: "aNN"}, "Ann annika"},
		{ranking.BanQuery{Reason: "aimbot"}, "Ann bob"},
		{ranking.BanQuery{Actor: "key:1", Board: "c"}, "bob"},
		{ranking.BanQuery{User: "zoe"}, ""},
	} {
		for _, limit := range []int{1, 2, ranking.MaxBans} {
			q := tt.q
			q.Limit = limit
			var got []string
			for {
				page, err := f.Bans(t.Context(), q)
				if err != nil || len(page.Bans) > limit {
					t.Fatalf("Bans(%+v) = %+v, %v, want at most the limit", q, page, err)
				}
				for _, b := range page.Bans {
					got = append(got, string(b.User))
				}
				if q.After = page.Next; q.After.User == "" {
					break
				}
			}
			slices.Sort(got) // the order of users depends on the store
			if strings.Join(got, " ") != tt.want {
				t.Errorf("Bans(%+v): %v, want %s", tt.q, got, tt.want)
			}
		}
	}
	if _, err := f.Bans(t.Context(), ranking.BanQuery{}); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("a page without a limit: %v, want ErrInvalid", err)
	}
}

func TestImportedBansEqualTheExportedOnes(t *testing.T) {
	f, g := open(t), open(t)
	for _, s := range []*fixture{f, g} {
		s.create(sumBoard)
		s.create(leaderboard.Board{ID: "c"})
		s.submit("b", points("ann", "m", 5))
		s.submit("b", points("bob", "m", 6))
	}
	want := []leaderboard.Ban{
		f.ban(leaderboard.Ban{User: "ann", Board: "b", Reason: "aimbot", Actor: "key:1", Until: start.Add(time.Hour)}),
		f.ban(leaderboard.Ban{User: "bob"}),
	}
	f.ban(leaderboard.Ban{User: "ann", Board: "c"})
	f.ban(leaderboard.Ban{User: "zoe"}) // zoe has no results on b
	var bans []leaderboard.Ban
	if err := f.ExportBans(t.Context(), "b", func(b leaderboard.Ban) error { bans = append(bans, b); return nil }); err != nil {
		t.Fatal(err)
	}
	byUser := func(x, y leaderboard.Ban) int { return cmp.Compare(x.User, y.User) } // the order of users depends on the store
	slices.SortFunc(bans, byUser)
	if fmt.Sprint(bans) != fmt.Sprint(want) {
		t.Errorf("exported %+v, want %+v", bans, want)
	}
	for range 2 {
		if err := g.ImportBans(t.Context(), bans); err != nil {
			t.Fatal(err)
		}
	}
	g.wantList(ranking.Query{Board: "b"})
	page, err := g.Bans(t.Context(), ranking.BanQuery{Limit: 10})
	slices.SortFunc(page.Bans, byUser)
	if err != nil || fmt.Sprint(page.Bans) != fmt.Sprint(want) {
		t.Errorf("imported %+v, %v, want %+v", page.Bans, err, want)
	}
	g.clock.set(start.Add(time.Hour))
	g.lift()
	if err := g.ImportBans(t.Context(), bans); err != nil {
		t.Fatal(err)
	}
	g.wantList(ranking.Query{Board: "b"}, "ann 5 1")
	bans[0].Revision = 0
	if err := g.ImportBans(t.Context(), bans[:1]); !errors.Is(err, leaderboard.ErrInvalid) {
		t.Errorf("import of a ban without a revision: %v, want ErrInvalid", err)
	}
}

func TestAnUnbanThatChangesNothingAmendsNothing(t *testing.T) {
	f := open(t)
	b := f.create(leaderboard.Board{ID: "b", Policy: leaderboard.Sum, Divisions: []string{"team"}, Season: leaderboard.Schedule{Kind: leaderboard.Monthly}})
	for _, user := range []string{"ann", "bob"} {
		r := points(user, "m", 5)
		r.Attributes = map[string]string{"team": "red"}
		f.submit("b", r)
	}
	f.clock.set(start.AddDate(0, 1, 0))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	amendments := func() int {
		record, err := f.store.Season(t.Context(), leaderboard.SeasonKey{Board: b.ID, Season: "202611"})
		if err != nil || record.SealedAt.IsZero() {
			t.Fatalf("season %+v, %v; want a sealed one", record, err)
		}
		return len(record.Amendments)
	}
	for i, step := range []struct {
		ban  leaderboard.Ban
		want int // amendments after the step
	}{
		{leaderboard.Ban{User: "ann", Board: "b"}, 0}, // was never banned
		{leaderboard.Ban{User: "ann"}, 0},
		{leaderboard.Ban{User: "eve", Board: "b"}, 0}, // has no entry
		{leaderboard.Ban{User: "ann", Board: "b", Banned: true}, 1},
		{leaderboard.Ban{User: "ann", Banned: true}, 1},
		{leaderboard.Ban{User: "ann", Board: "b"}, 1}, // the ban on every board still hides ann
		{leaderboard.Ban{User: "ann"}, 2},
		{leaderboard.Ban{User: "ann"}, 2},
	} {
		f.clock.set(f.clock.now().Add(time.Minute))
		if _, err := f.SetBan(t.Context(), step.ban); err != nil {
			t.Fatal(err)
		}
		if got := amendments(); got != step.want {
			t.Errorf("after step %d, %+v, the season has %d amendments, want %d", i, step.ban, got, step.want)
		}
	}
}

// The ban ended between the erasure and the import.
func TestImportOfAnEndedBanDoesNotReviveAnErasedUser(t *testing.T) {
	f := open(t)
	f.create(sumBoard)
	f.submit("b", points("ann", "m", 5))
	end := start.Add(2 * time.Hour)
	exported := []leaderboard.Ban{f.ban(leaderboard.Ban{User: "ann", Until: end})}
	f.clock.set(start.Add(time.Hour))
	if err := f.Erase(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	f.clock.set(start.Add(3 * time.Hour))
	if err := f.ImportBans(t.Context(), exported); err != nil {
		t.Fatal(err)
	}
	f.lift()
	if bans, err := f.UserBans(t.Context(), "ann"); err != nil || len(bans) > 0 {
		t.Errorf("UserBans after the import: %+v, %v; want none", bans, err)
	}

	other := open(t)
	other.clock.set(f.clock.now())
	if err := other.ImportBans(t.Context(), exported); err != nil {
		t.Fatal(err)
	}
	other.lift()
	page, err := other.Acts(t.Context(), ranking.ActQuery{Limit: 10})
	if err != nil || len(page.Acts) != 1 || page.Acts[0].Action != "unban" || !page.Acts[0].At.Equal(end) {
		t.Errorf("Acts after the import into another service: %+v, %v; want an unban at %v", page.Acts, err, end)
	}
}
