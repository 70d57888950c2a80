package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// countedReads counts the calls of RowValues. It calls during, unless nil, between the read of the
// values and its return.
type countedReads struct {
	storage.Backend
	calls, keys int
	during      func()
}

func (b *countedReads) RowValues(ctx context.Context, keys ...storage.RowKey) ([][]byte, error) {
	b.calls, b.keys = b.calls+1, b.keys+len(keys)
	values, err := b.Backend.RowValues(ctx, keys...)
	if during := b.during; during != nil {
		b.during = nil
		during()
	}
	return values, err
}

func putName(t *testing.T, s *engine.Store, user leaderboard.UserID, name string) {
	t.Helper()
	if _, err := s.PutProfiles(t.Context(), []leaderboard.Profile{{User: user, DisplayName: name, UpdatedAt: time.Now()}}); err != nil {
		t.Fatal(err)
	}
}

func checkName(t *testing.T, s *engine.Store, user leaderboard.UserID, want string) {
	t.Helper()
	if got, err := s.CachedProfiles(t.Context(), []leaderboard.UserID{user}); err != nil || got[0].DisplayName != want {
		t.Errorf("CachedProfiles of %s: %+v, error %v; want the name %q", user, got, err, want)
	}
}

// A process sees its own changes at once, and those of another process after ProfileStaleness.
func TestCachedProfilesAreAtMostTwoSecondsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := embedded.Store(t).Backend
		here, there := engine.New(backend), engine.New(backend)
		putName(t, here, "u", "first")
		checkName(t, there, "u", "first")
		checkName(t, there, "absent", "")
		putName(t, here, "u", "second")
		putName(t, here, "absent", "new")
		checkName(t, here, "u", "second")
		checkName(t, there, "u", "first")
		time.Sleep(leaderboard.ProfileStaleness)
		checkName(t, there, "u", "second")
		checkName(t, there, "absent", "new")
		if _, err := here.Erase(t.Context(), "u", time.Now()); err != nil {
			t.Fatal(err)
		}
		checkName(t, here, "u", "")
		time.Sleep(leaderboard.ProfileStaleness)
		checkName(t, there, "u", "")
	})
}

// A read that began before a change of the same process does not bring the old profile back.
func TestSlowReadsOfProfilesKeepChanges(t *testing.T) {
	reads := &countedReads{Backend: embedded.Store(t).Backend}
	s := engine.New(reads)
	putName(t, engine.New(reads.Backend), "u", "old")
	reads.during = func() { putName(t, s, "u", "new") }
	checkName(t, s, "u", "new")
	checkName(t, s, "u", "new")
}

func TestCachedProfilesReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := &countedReads{Backend: embedded.Store(t).Backend}
		s := engine.New(reads)
		var users []leaderboard.UserID
		for i := range 100 {
			users = append(users, leaderboard.UserID(fmt.Sprint("user ", i)))
		}
		for _, want := range []struct{ calls, keys int }{{1, 100}, {1, 100}} { // the second page comes from the cache
			if _, err := s.CachedProfiles(t.Context(), users); err != nil {
				t.Fatal(err)
			}
			if reads.calls != want.calls || reads.keys != want.keys {
				t.Errorf("after a page, the store made %d reads of %d rows, want %d of %d", reads.calls, reads.keys, want.calls, want.keys)
			}
		}
	})
}

// Whatever the order of the steps of PutProfiles and Erase, no profile from before the erasure remains.
func TestEraseAndPutProfilesRemoveTheProfile(t *testing.T) {
	store := embedded.Store(t)
	erasedAt := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const steps = 10 // of both calls together, the first ones
	for order := range 1 << steps {
		user := leaderboard.UserID(fmt.Sprint("user ", order))
		put := start(t, store.Backend, func(s *engine.Store) error {
			_, err := s.PutProfiles(t.Context(), []leaderboard.Profile{{User: user, DisplayName: "x", UpdatedAt: erasedAt}})
			return err
		})
		erase := start(t, store.Backend, func(s *engine.Store) error {
			_, err := s.Erase(t.Context(), user, erasedAt)
			return err
		})
		for i := range steps {
			if order>>i&1 == 0 {
				put()
			} else {
				erase()
			}
		}
		for !put() || !erase() {
		}
		if p, err := engine.New(store.Backend).CachedProfiles(t.Context(), []leaderboard.UserID{user}); err != nil || p[0].Exists() {
			t.Fatalf("order %010b: the profile is %+v, error %v; want none", order, p, err)
		}
	}
	for _, prefix := range []string{"x", "user"} {
		if found, _, err := store.FindNames(t.Context(), prefix, "", 1); err != nil || len(found) > 0 {
			t.Errorf("after the erasures, FindNames of %q returned %+v, error %v; want nothing", prefix, found, err)
		}
	}
	for bucket := range 256 {
		for row, err := range store.Rows(t.Context(), fmt.Sprintf("profiles/%02x", bucket), nil) {
			if err != nil || len(row.Key) != 32 || strings.Contains(string(row.Value), "user ") {
				t.Errorf("after the erasures, the row %q has the value %s, error %v; want rows without names and users", row.Key, row.Value, err)
			}
		}
	}
}
