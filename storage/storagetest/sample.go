package storagetest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	leaderboard "github.com/open-leaderboard/leaderboard"
)

// The sample is a fixed sequence of calls of a store. The repository has the data that an older
// version wrote with [WriteSample], and the older version's answers to [DescribeSample] and
// [ExtendSample]. From this data, the current version must give the same answers.
const (
	sampleUsers   = 18
	sampleMatches = 6
)

// sampleStart is when the boards are created and the first results arrive.
var sampleStart = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func sampleBoards() []leaderboard.Board {
	score := func(s leaderboard.Score) *leaderboard.Score { return &s }
	day := func(n int) time.Time { return sampleStart.AddDate(0, 0, n) }
	return []leaderboard.Board{
		{ID: "cup", Title: "Cup", Unit: "points", Policy: leaderboard.Best, MinScore: score(0), MaxScore: score(10_000),
			TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}, {Name: "fouls", Order: leaderboard.LowerFirst}},
			Divisions:   []string{"gender", "country"}, Retention: 1000 * time.Hour,
			Season: leaderboard.Schedule{Kind: leaderboard.Explicit, Grace: 48 * time.Hour, Windows: []leaderboard.Season{
				{ID: "s1", Start: day(0), End: day(10)}, {ID: "s2", Start: day(10), End: day(20)}, {ID: "s3", Start: day(20), End: day(30)},
			}}},
		{ID: "race", Policy: leaderboard.Best, Order: leaderboard.LowerFirst, Decimals: 3, Unit: "s"},
		{ID: "purse", Policy: leaderboard.Sum, Floor: score(0), TieBreakers: []leaderboard.TieBreaker{{Name: "wins"}}, Divisions: []string{"country"}},
		{ID: "form ü/1", Policy: leaderboard.Latest, Divisions: []string{"gender"},
			Season: leaderboard.Schedule{Kind: leaderboard.Weekly, TimeZone: "Europe/Berlin", Grace: 365 * 24 * time.Hour}},
		{ID: "trend", Policy: leaderboard.Decay, HalfLife: 36 * time.Hour},
		{ID: "again", Policy: leaderboard.Sum},
	}
}

func sampleUser(n int) leaderboard.UserID {
	return leaderboard.UserID([]string{"ann", "Bo b", "çelik/7", "用户", "d:e"}[n%5] + fmt.Sprint(n))
}

func sampleMatch(n int) leaderboard.MatchID { return leaderboard.MatchID(fmt.Sprintf("m%d", n)) }

// name is also the key's secret.
func sampleAPIKey(id, name string, scopes ...string) leaderboard.APIKey {
	return leaderboard.APIKey{ID: id, Name: name, Hash: sha256.Sum256([]byte(name)), Scopes: scopes, CreatedAt: sampleStart}
}

// The results include corrections, retractions, repeats, and results that the store refuses. Most
// results arrive in the 28 days that begin startDay days after sampleStart.
func sampleResults(b *leaderboard.Board, startDay, n int) ([]leaderboard.MatchResult, error) {
	random := uint32(len(b.ID) + startDay)
	pick := func(n int) int { // a linear congruential generator
		random = random*1664525 + 1013904223
		return int(random>>8) % n
	}
	var out []leaderboard.MatchResult
	for i := range n {
		at := sampleStart.AddDate(0, 0, startDay).Add(time.Duration(i) * 28 * 24 * time.Hour / time.Duration(n)).Add(time.Duration(pick(1e6)) * time.Microsecond)
		r := leaderboard.MatchResult{Revision: int64(pick(3)), Score: leaderboard.Score(pick(40) - 14),
			AchievedAt: at.Add(-time.Duration(pick(3)) * time.Hour), ReceivedAt: at}
		if r.AchievedAt.Before(sampleStart) {
			r.AchievedAt = sampleStart
		}
		r.Board, r.User, r.Match = b.ID, sampleUser(pick(sampleUsers)), sampleMatch(pick(sampleMatches))
		season, err := b.Season.At(r.AchievedAt)
		if err != nil {
			return nil, err
		}
		r.Season = season.ID
		for range b.TieBreakers {
			r.TieBreakers = append(r.TieBreakers, int64(pick(4)))
		}
		if pick(3) > 0 {
			r.Attributes = map[string]string{"gender": []string{"F", "M"}[pick(2)], "country": []string{"KEN", "NOR", "日本"}[pick(3)]}
		}
		if pick(4) == 0 {
			r.Metadata = fmt.Sprintf(`{"car":"no. %d","π":3.14}`, pick(100))
		}
		switch pick(12) {
		case 0:
			r = leaderboard.MatchResult{ResultKey: r.ResultKey, Revision: 3, Retracted: true, ReceivedAt: r.ReceivedAt}
		case 1:
			r.Assigned = true
		case 2:
			r.ReceivedAt = r.ReceivedAt.AddDate(0, 0, 15) // too late for a season of the board cup
		}
		out = append(out, r)
	}
	return out, nil
}

// sampleWriter notes the answers up to the first unexpected error.
type sampleWriter struct {
	ctx   context.Context
	store leaderboard.Store
	lines []string
	err   error
}

// note adds a line of JSON with a question and its answer, or the name of an expected error.
func (w *sampleWriter) note(question string, answer any, err error) {
	if w.err != nil {
		return
	}
	for name, known := range map[string]error{
		"ErrBoardNotFound": leaderboard.ErrBoardNotFound, "ErrBoardExists": leaderboard.ErrBoardExists, "ErrEntryNotFound": leaderboard.ErrEntryNotFound,
		"ErrResultNotFound": leaderboard.ErrResultNotFound, "ErrNotSealed": leaderboard.ErrNotSealed, "ErrAPIKeyNotFound": leaderboard.ErrAPIKeyNotFound,
	} {
		if errors.Is(err, known) {
			answer, err = name, nil
		}
	}
	if err != nil {
		w.err = fmt.Errorf("%s: %w", question, err)
		return
	}
	line, err := json.Marshal(map[string]any{question: answer})
	w.lines, w.err = append(w.lines, string(line)), err
}

func (w *sampleWriter) apply(id leaderboard.BoardID, startDay, n, batch int) {
	b, err := w.store.Board(w.ctx, id)
	if err != nil {
		w.note("Board", nil, err)
		return
	}
	results, err := sampleResults(&b, startDay, n)
	if err != nil {
		w.note("results", nil, err)
		return
	}
	for i := 0; i < len(results) && w.err == nil; i += batch {
		part := results[i:min(i+batch, len(results))]
		report, err := w.store.Apply(w.ctx, &b, part)
		for j, o := range report.Outcomes {
			w.note(fmt.Sprintf("Apply %s/%s/%s/%s %d", id, part[j].Season, part[j].User, part[j].Match, part[j].Revision),
				[]any{o.Status, o.Reason, sampleEntry(o.Entry)}, cmp.Or(err, o.Err))
		}
		w.noteChanges("Apply", report.Changes, err)
	}
}

func (w *sampleWriter) noteChanges(call string, changes []leaderboard.Change, err error) {
	slices.SortFunc(changes, func(x, y leaderboard.Change) int {
		return strings.Compare(fmt.Sprint(x.After.SeasonKey, x.After.User), fmt.Sprint(y.After.SeasonKey, y.After.User))
	})
	var out []any
	for _, c := range changes {
		out = append(out, []any{sampleEntry(c.Before), sampleEntry(c.After)})
	}
	w.note(call+": changes", out, err)
}

func (w *sampleWriter) ban(user leaderboard.UserID, banned bool, at time.Time) {
	changes, err := w.store.SetBan(w.ctx, leaderboard.Ban{User: user, Banned: banned, Reason: "cheated", At: at})
	w.noteChanges(fmt.Sprintf("SetBan %s %v", user, banned), changes, err)
}

func (w *sampleWriter) erase(user leaderboard.UserID, at time.Time) {
	changes, err := w.store.Erase(w.ctx, user, at)
	w.noteChanges(fmt.Sprintf("Erase %s", user), changes, err)
}

// Without a list of users, Amend considers all users.
func (w *sampleWriter) amendAll(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	return w.store.Amend(ctx, b, season, a, nil)
}

func (w *sampleWriter) makeFinal(id leaderboard.BoardID, season leaderboard.SeasonID, at time.Time, reason string,
	call func(context.Context, *leaderboard.Board, leaderboard.SeasonID, leaderboard.Amendment) (leaderboard.SeasonRecord, error),
) {
	b, err := w.store.Board(w.ctx, id)
	var record leaderboard.SeasonRecord
	if err == nil {
		record, err = call(w.ctx, &b, season, leaderboard.Amendment{At: at, Reason: reason})
	}
	w.note(fmt.Sprintf("final standings of %s/%s", id, season), record, err)
}

func (w *sampleWriter) seal(id leaderboard.BoardID, season leaderboard.SeasonID, at time.Time) {
	w.makeFinal(id, season, at, "", func(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
		return w.store.Seal(ctx, b, season, a.At)
	})
}

// WriteSample writes the sample to an empty store, and returns the store's answers.
func WriteSample(ctx context.Context, store leaderboard.Store) ([]string, error) {
	w := &sampleWriter{ctx: ctx, store: store}
	for _, b := range sampleBoards() {
		b.CreatedAt = sampleStart
		w.note("CreateBoard", b.ID, store.CreateBoard(ctx, b))
	}
	w.apply("again", 0, 20, 20)
	w.note("DeleteBoard", nil, store.DeleteBoard(ctx, "again", time.Time{}))
	w.note("CreateBoard", nil, store.CreateBoard(ctx, leaderboard.Board{ID: "again", Policy: leaderboard.Latest, CreatedAt: sampleStart.Add(time.Hour)}))
	for _, id := range []leaderboard.BoardID{"cup", "race", "purse", "form ü/1", "trend", "again"} {
		w.apply(id, 0, 70, 30)
	}
	w.note("DeleteSeason", nil, store.DeleteSeason(ctx, leaderboard.SeasonKey{Board: "form ü/1", Season: "2026W10"}, time.Time{}))
	for i, scopes := range [][]string{{"read"}, {"submit", "read"}, {"admin"}} {
		k := sampleAPIKey(fmt.Sprintf("key%d", i), fmt.Sprintf("secret%d", i), scopes...)
		if i == 1 {
			k.ExpiresAt = sampleStart.AddDate(1, 0, 0)
		}
		w.note("PutAPIKey", k.ID, store.PutAPIKey(ctx, k))
	}
	w.note("PutAPIKey", "key0", store.PutAPIKey(ctx, sampleAPIKey("key0", "secret3", "read")))
	w.note("DeleteAPIKey", nil, store.DeleteAPIKey(ctx, "key2"))
	w.seal("cup", "s1", sampleStart.AddDate(0, 0, 13))
	w.ban(sampleUser(1), true, sampleStart.AddDate(0, 0, 14))
	w.ban(sampleUser(2), true, sampleStart.AddDate(0, 0, 14))
	w.erase(sampleUser(3), sampleStart.AddDate(0, 0, 21))
	w.erase(sampleUser(1), sampleStart.AddDate(0, 0, 40))
	w.ban(sampleUser(2), false, sampleStart.AddDate(0, 0, 15))
	w.ban(sampleUser(4), true, sampleStart.AddDate(0, 0, 15))
	w.ban("nobody yet", true, sampleStart.AddDate(0, 0, 15))
	w.makeFinal("cup", "s1", sampleStart.AddDate(0, 0, 16), "a ban", w.amendAll)
	w.seal("cup", "s2", sampleStart.AddDate(0, 0, 23))
	w.seal("purse", leaderboard.SeasonAll, sampleStart.AddDate(0, 0, 29))
	w.apply("purse", 1, 30, 7)
	if _, err := store.AmendBoard(ctx, "race", func(b *leaderboard.Board) error {
		b.Title, b.Decimals = "Race", 2
		return nil
	}); err != nil {
		w.note("AmendBoard", nil, err)
	}
	return w.lines, w.err
}

// ExtendSample makes further writes to a store with the sample, and returns the store's answers.
func ExtendSample(ctx context.Context, store leaderboard.Store) ([]string, error) {
	w := &sampleWriter{ctx: ctx, store: store}
	for _, id := range []leaderboard.BoardID{"cup", "race", "purse", "form ü/1", "trend", "again"} {
		w.apply(id, 0, 20, 5) // results that WriteSample applied already
		w.apply(id, 2, 40, 16)
	}
	w.makeFinal("cup", "s1", sampleStart.AddDate(0, 0, 40), "corrections", w.amendAll)
	w.makeFinal("cup", "s3", sampleStart.AddDate(0, 0, 40), "", w.amendAll)
	w.seal("cup", "s3", sampleStart.AddDate(0, 0, 41))
	w.ban(sampleUser(4), false, sampleStart.AddDate(0, 0, 42))
	w.ban("nobody yet", false, sampleStart.AddDate(0, 0, 42))
	w.ban(sampleUser(5), true, sampleStart.AddDate(0, 0, 42))
	w.erase(sampleUser(6), sampleStart.AddDate(0, 0, 43))
	for n := range sampleUsers {
		b, err := store.Board(ctx, "cup")
		if err != nil {
			return nil, err
		}
		change, err := store.Recount(ctx, &b, "s2", sampleUser(n))
		w.noteChanges("Recount", []leaderboard.Change{change}, err)
	}
	w.note("DeleteSeason", nil, store.DeleteSeason(ctx, leaderboard.SeasonKey{Board: "purse", Season: leaderboard.SeasonAll}, time.Time{}))
	w.note("DeleteBoard", nil, store.DeleteBoard(ctx, "trend", time.Time{}))
	w.note("DeleteAPIKey", nil, store.DeleteAPIKey(ctx, "key0"))
	return w.lines, w.err
}

// DescribeSample calls the reading methods, and returns a line of JSON for each call. It sorts
// answers without a defined order, and omits users and results that a season does not have.
func DescribeSample(ctx context.Context, store leaderboard.Store) ([]string, error) {
	w := &sampleWriter{ctx: ctx, store: store}
	boards, err := store.Boards(ctx)
	w.note("Boards", boards, err)
	for _, b := range append(sampleBoards(), leaderboard.Board{ID: "none"}) {
		board, err := store.Board(ctx, b.ID)
		w.note(fmt.Sprintf("Board %s", b.ID), board, err)
		seasons, err := store.Seasons(ctx, b.ID)
		w.note(fmt.Sprintf("Seasons %s", b.ID), seasons, err)
		for _, s := range seasons {
			w.describeSeason(s.SeasonKey)
		}
		w.describeSeason(leaderboard.SeasonKey{Board: b.ID, Season: "none"})
	}
	users := []leaderboard.UserID{"nobody", "nobody yet"}
	for n := range sampleUsers {
		users = append(users, sampleUser(n))
	}
	for _, user := range users {
		ban, err := sampleBan(ctx, store, user)
		w.note(fmt.Sprintf("Ban %s", user), ban, err)
		seasons, err := store.UserSeasons(ctx, user)
		w.note(fmt.Sprintf("UserSeasons %s", user), seasons, err)
	}
	unregistered, err := collect(store.UnregisteredUsers(ctx))
	w.note("UnregisteredUsers", unregistered, err)
	keys, err := store.APIKeys(ctx)
	w.note("APIKeys", keys, err)
	for i := range 5 {
		k, err := store.APIKey(ctx, sha256.Sum256([]byte(fmt.Sprintf("secret%d", i))))
		w.note(fmt.Sprintf("APIKey secret%d", i), k.ID, err)
	}
	return w.lines, w.err
}

func (w *sampleWriter) describeSeason(s leaderboard.SeasonKey) {
	name := fmt.Sprintf("%s/%s", s.Board, s.Season)
	record, err := w.store.Season(w.ctx, s)
	w.note("Season "+name, record, err)
	users, err := collect(w.store.Users(w.ctx, s))
	slices.Sort(users)
	w.note("Users "+name, users, err)
	scanned, err := collect(w.store.Scan(w.ctx, s, leaderboard.Part{}))
	slices.SortFunc(scanned, func(x, y leaderboard.Entry) int { return cmp.Compare(x.User, y.User) })
	w.note("Scan "+name, sampleEntries(scanned), err)
	orphans, err := collect(w.store.OrphanRows(w.ctx, s))
	w.note("OrphanRows "+name, len(orphans), err)
	for _, user := range users {
		e, err := w.store.Entry(w.ctx, s, user)
		w.note(fmt.Sprintf("Entry %s/%s", name, user), sampleEntry(e), err)
		results, err := collect(w.store.Results(w.ctx, s, user))
		w.note(fmt.Sprintf("Results %s/%s", name, user), results, err)
		for n := range sampleMatches {
			r, err := w.store.Result(w.ctx, leaderboard.ResultKey{SeasonKey: s, User: user, Match: sampleMatch(n)})
			if !errors.Is(err, leaderboard.ErrResultNotFound) {
				w.note(fmt.Sprintf("Result %s/%s/%s", name, user, sampleMatch(n)), r, err)
			}
		}
	}
	for _, division := range []leaderboard.Division{{}, {Attribute: "gender", Value: "F"}, {Attribute: "gender", Value: "M"},
		{Attribute: "country", Value: "KEN"}, {Attribute: "country", Value: "NOR"}, {Attribute: "country", Value: "日本"}, {Attribute: "country", Value: "none"}} {
		w.describeLadder(leaderboard.Ladder{SeasonKey: s, Division: division}, users)
	}
}

func (w *sampleWriter) describeLadder(l leaderboard.Ladder, users []leaderboard.UserID) {
	name := fmt.Sprintf("%s/%s %v", l.Board, l.Season, l.Division)
	entries, err := collect(w.store.Entries(w.ctx, l, ""))
	w.note("Entries "+name, sampleEntries(entries), err)
	if n := len(entries); n > 0 {
		rest, err := collect(w.store.Entries(w.ctx, l, entries[n/2].SortKey()))
		w.note("Entries after the middle "+name, len(rest), err)
	}
	standings, total, err := w.store.FinalStandings(w.ctx, l, 1, 1000)
	if errors.Is(err, leaderboard.ErrNotSealed) {
		return
	}
	w.note("FinalStandings "+name, []any{total, sampleStandings(standings)}, err)
	standings, total, err = w.store.FinalStandings(w.ctx, l, 3, 2)
	w.note("FinalStandings from 3 "+name, []any{total, sampleStandings(standings)}, err)
	for _, user := range users {
		st, err := finalStanding(w.ctx, w.store, l, user)
		if !errors.Is(err, leaderboard.ErrEntryNotFound) {
			w.note(fmt.Sprintf("FinalStanding %s of %s", name, user), sampleStandings([]leaderboard.Standing{st}), err)
		}
	}
}

type storedBan struct {
	User   leaderboard.UserID
	Banned bool
	Reason string
	At     time.Time
}

// If the user is not banned on all boards, only User is set.
func sampleBan(ctx context.Context, store leaderboard.Store, user leaderboard.UserID) (storedBan, error) {
	bans, err := store.UserBans(ctx, user)
	for _, b := range bans {
		if b.Banned && b.Board == "" {
			return storedBan{b.User, b.Banned, b.Reason, b.At}, err
		}
	}
	return storedBan{User: user}, err
}

// The key is in hexadecimal, because JSON cannot hold arbitrary bytes.
func sampleEntry(e leaderboard.Entry) leaderboard.Entry {
	e.Key = leaderboard.RankKey(hex.EncodeToString([]byte(e.Key)))
	return e
}

func sampleEntries(entries []leaderboard.Entry) []leaderboard.Entry {
	out := make([]leaderboard.Entry, len(entries))
	for i, e := range entries {
		out[i] = sampleEntry(e)
	}
	return out
}

func sampleStandings(standings []leaderboard.Standing) []leaderboard.Standing {
	out := make([]leaderboard.Standing, len(standings))
	for i, s := range standings {
		s.Key = leaderboard.RankKey(hex.EncodeToString([]byte(s.Key)))
		out[i] = s
	}
	return out
}

// CheckSample calls DescribeSample, ExtendSample and DescribeSample on a store with the sample, and
// compares the answers with want.
func CheckSample(t *testing.T, store leaderboard.Store, want []string) {
	t.Helper()
	var got []string
	for _, step := range []func(context.Context, leaderboard.Store) ([]string, error){DescribeSample, ExtendSample, DescribeSample} {
		lines, err := step(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, lines...)
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("answers (-stored +got):\n%s", d)
	}
}
