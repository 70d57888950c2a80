package storagetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// replay compares the store's answers with the model's answers.
type replay struct {
	ctx   context.Context
	store leaderboard.Store
	model *model
	// The last entry that the store returned for each user.
	seen map[leaderboard.SeasonKey]map[leaderboard.UserID]leaderboard.Entry
	// All seasons and users of the history, including deleted seasons and erased users.
	keys  map[leaderboard.SeasonKey]bool
	users map[leaderboard.UserID]bool
}

func newReplay(ctx context.Context, store leaderboard.Store) *replay {
	return &replay{
		ctx: ctx, store: store, model: newModel(),
		seen: map[leaderboard.SeasonKey]map[leaderboard.UserID]leaderboard.Entry{},
		keys: map[leaderboard.SeasonKey]bool{}, users: map[leaderboard.UserID]bool{},
	}
}

func (p *replay) lastSeen(s leaderboard.SeasonKey, user leaderboard.UserID) leaderboard.Entry {
	return p.seen[s][user]
}

func (p *replay) recordSeen(s leaderboard.SeasonKey, user leaderboard.UserID, e leaderboard.Entry) {
	if p.seen[s] == nil {
		p.seen[s] = map[leaderboard.UserID]leaderboard.Entry{}
	}
	p.seen[s][user] = e
}

func (p *replay) do(o op) error {
	key := leaderboard.SeasonKey{Board: o.id, Season: o.season}
	switch o.kind {
	case opCreateBoard:
		if _, ok := p.model.boards[o.board.ID]; ok {
			return nil
		}
		return p.createBoard(o.board)
	case opDeleteBoard:
		return p.deleteBoard(o.id, o.at)
	case opAmendBoard:
		return p.amendBoard(o.board)
	case opDivisions:
		return p.changeDivisions(o.board)
	case opApply:
		return p.apply(o.board, o.results)
	case opVoid:
		return p.void(o.board, leaderboard.MatchKey{SeasonKey: key, Match: o.match}, o.at)
	case opBan:
		return p.setBan(o.ban)
	case opErase:
		return p.erase(o.user, o.at)
	case opRecount:
		return p.recount(key, o.user)
	case opSeal:
		return p.seal(key, leaderboard.Amendment{At: o.at, Reason: "test"})
	case opAmendSeason:
		return p.amendSeason(key, leaderboard.Amendment{At: o.at, Reason: "amended"})
	case opDeleteSeason:
		return p.deleteSeason(key, o.at)
	case opEndSeason:
		return p.endSeason(key, o.at)
	default:
		return p.compareAll()
	}
}

func (p *replay) createBoard(b leaderboard.Board) error {
	if err := p.store.CreateBoard(p.ctx, b); err != nil {
		return fmt.Errorf("CreateBoard(%q): %w", b.ID, err)
	}
	p.model.boards[b.ID] = b
	return nil
}

func (p *replay) deleteBoard(id leaderboard.BoardID, at time.Time) error {
	_, exists := p.model.boards[id]
	err := p.store.DeleteBoard(p.ctx, id, at)
	if !exists {
		if !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return fmt.Errorf("DeleteBoard of an unknown board: error %w, want ErrBoardNotFound", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("DeleteBoard: %w", err)
	}
	p.model.deleteBoard(id, at)
	for s := range p.seen {
		if s.Board == id {
			delete(p.seen, s)
		}
	}
	return nil
}

// lastReceipt is not before the ReceivedAt of any result in a history.
var lastReceipt = epoch.AddDate(0, 0, 60)

func (p *replay) amendBoard(change leaderboard.Board) error {
	amended, ok := p.model.boards[change.ID]
	if !ok {
		return nil
	}
	amended.Season.Grace = change.Season.Grace
	amended.WidenedAt = lastReceipt
	got, err := p.store.AmendBoard(p.ctx, change.ID, replaceBy(amended))
	if err != nil {
		return fmt.Errorf("AmendBoard: %w", err)
	}
	p.model.boards[change.ID] = amended
	return diff("AmendBoard", amended, got)
}

func (p *replay) void(board leaderboard.Board, key leaderboard.MatchKey, at time.Time) error {
	b, ok := p.model.boards[board.ID]
	if !ok || !b.CreatedAt.Equal(board.CreatedAt) {
		return nil
	}
	p.keys[key.SeasonKey] = true
	state := leaderboard.MatchState{MatchKey: key, Voids: p.model.matches[key].Voids + 1, Reason: "test", Actor: "ann", At: micros(at)}
	got, err := p.store.SetMatch(p.ctx, &b, state)
	if err != nil {
		return fmt.Errorf("SetMatch: %w", err)
	}
	if p.model.isDeleted(&state) {
		stored := p.model.matches[key]
		stored.MatchKey = key
		return diff("SetMatch of a state that is not later than a deletion", stored, got)
	}
	state.Applied = p.model.matches[key].Applied
	if err := diff("SetMatch", state, got); err != nil {
		return err
	}
	users, err := collect(p.store.MatchUsers(p.ctx, key))
	if err != nil {
		return fmt.Errorf("MatchUsers: %w", err)
	}
	slices.Sort(users)
	if err := diff("MatchUsers", p.model.matchUsers(key), users); err != nil {
		return err
	}
	var results []leaderboard.MatchResult
	for _, user := range users {
		results = append(results, leaderboard.MatchResult{ResultKey: leaderboard.ResultKey{SeasonKey: key.SeasonKey, User: user, Match: key.Match}, VoidOnly: true})
	}
	p.model.setVoids(state)
	report, err := p.store.Apply(p.ctx, &b, results)
	if err != nil {
		return fmt.Errorf("Apply of a void: %w", err)
	}
	for i := range report.Changes {
		e := report.Changes[i].After
		p.recordSeen(e.SeasonKey, e.User, e)
	}
	state.Applied = state.Voids
	if got, err = p.store.SetMatch(p.ctx, &b, state); err != nil {
		return fmt.Errorf("SetMatch: %w", err)
	}
	p.model.matches[key] = state
	return diff("SetMatch after Apply", state, got)
}

func (p *replay) changeDivisions(change leaderboard.Board) error {
	amended, ok := p.model.boards[change.ID]
	if !ok {
		return nil
	}
	amended.Divisions = change.Divisions
	b, err := p.store.AmendBoard(p.ctx, change.ID, replaceBy(amended))
	if err != nil {
		return fmt.Errorf("AmendBoard: %w", err)
	}
	p.model.boards[change.ID] = b
	seasons, err := p.store.StartRecount(p.ctx, &b)
	if err != nil {
		return fmt.Errorf("StartRecount: %w", err)
	}
	for _, s := range p.model.seasonKeys("") {
		// A sealed season keeps its divisions.
		sealed := p.model.sealed[s]
		want := sealed == nil || sealed.record.Rules == len(b.PastDivisions)
		if got := slices.Contains(seasons, s.Season); s.Board == b.ID && got != want {
			return fmt.Errorf("StartRecount returned the seasons %q: contains %q = %v, want %v", seasons, s.Season, got, want)
		}
	}
	for _, season := range seasons {
		s := leaderboard.SeasonKey{Board: b.ID, Season: season}
		users, err := collect(p.store.Users(p.ctx, s))
		if err != nil {
			return fmt.Errorf("Users: %w", err)
		}
		for _, user := range users {
			c, err := p.store.Recount(p.ctx, &b, season, user)
			if err != nil {
				return fmt.Errorf("Recount: %w", err)
			}
			if c.Before.Version == c.After.Version {
				if err := diff("Recount with the same version", c.Before, c.After); err != nil {
					return err
				}
			} else if err := p.checkChanges("Recount", []leaderboard.Change{c}); err != nil {
				return err
			}
		}
	}
	b, err = p.store.AmendBoard(p.ctx, b.ID, replaceBy(b)) // b has no RecountDue, so this call ends the recount
	p.model.boards[b.ID] = b
	return err
}

func (p *replay) apply(board leaderboard.Board, results []leaderboard.MatchResult) error {
	b, ok := p.model.boards[board.ID]
	if !ok || !b.CreatedAt.Equal(board.CreatedAt) {
		_, err := p.store.Apply(p.ctx, &board, results)
		if len(results) > 0 && !errors.Is(err, leaderboard.ErrBoardNotFound) {
			return fmt.Errorf("Apply to a deleted board: error %w, want ErrBoardNotFound", err)
		}
		return nil
	}
	callerBoard := b
	if len(results)%2 == 0 { // as if the caller had read the board before all changes of its divisions
		callerBoard = *b.WithRules(0)
	}
	report, err := p.store.Apply(p.ctx, &callerBoard, results)
	if err != nil {
		return fmt.Errorf("Apply: %w", err)
	}
	if len(report.Outcomes) != len(results) {
		return fmt.Errorf("Apply of %d results returned %d outcomes, want one for each result", len(results), len(report.Outcomes))
	}
	for i, r := range results {
		p.keys[r.SeasonKey], p.users[r.User] = true, true
		o := report.Outcomes[i]
		if err := p.checkKey(p.model.line(r.SeasonKey, r.User), r.Board, o.Before); err != nil {
			return fmt.Errorf("Apply: Before of outcome %d: %w", i, err)
		}
		want := p.model.apply(r)
		if got := (wantOutcome{o.Status, o.Reason, o.Repeated, o.Stands}); o.Err != nil || got != want {
			return fmt.Errorf("Apply: the outcome of result %d is %+v, error %v; want %+v", i, got, o.Err, want)
		}
		if err := p.checkKey(p.model.line(r.SeasonKey, r.User), r.Board, o.After); err != nil {
			return fmt.Errorf("Apply: After of outcome %d: %w", i, err)
		}
	}
	for i, r := range results {
		o := report.Outcomes[i]
		if err := p.checkEntry(r.SeasonKey, r.User, o.Entry); err != nil {
			return fmt.Errorf("Apply: entry of outcome %d: %w", i, err)
		}
		if prev := p.lastSeen(r.SeasonKey, r.User); (prev.Key != "" || o.Entry.Key != "") && prev.Version != o.Entry.Version && !slices.ContainsFunc(report.Changes, func(c leaderboard.Change) bool {
			return c.After.SeasonKey == r.SeasonKey && c.After.User == r.User
		}) {
			return fmt.Errorf("Apply: version of user %q went from %d to %d, but the report has no change of the user; want one", r.User, prev.Version, o.Entry.Version)
		}
	}
	return p.checkChanges("Apply", report.Changes)
}

// Before must be the last entry that the store returned. After must be the model's entry.
func (p *replay) checkChanges(method string, changes []leaderboard.Change) error {
	type userSeason struct {
		leaderboard.SeasonKey
		leaderboard.UserID
	}
	listed := map[userSeason]bool{}
	for _, c := range changes {
		s, user := c.After.SeasonKey, c.After.User
		if c.Before.SeasonKey != s || c.Before.User != user {
			return fmt.Errorf("%s: a change has Before of %q in %v, but After of %q in %v; want the same user and season", method, c.Before.User, c.Before.SeasonKey, user, s)
		}
		if listed[userSeason{s, user}] {
			return fmt.Errorf("%s returns two changes of user %q in %v, want at most one", method, user, s)
		}
		listed[userSeason{s, user}] = true
		if c.After.Version <= c.Before.Version {
			return fmt.Errorf("%s: the change of user %q has version %d before and %d after, want a higher version after", method, user, c.Before.Version, c.After.Version)
		}
		if prev := p.lastSeen(s, user); prev.Key != "" || c.Before.Key != "" {
			if err := diff(method+": Before of user "+string(user), prev, c.Before); err != nil {
				return err
			}
		}
		if err := p.checkEntry(s, user, c.After); err != nil {
			return fmt.Errorf("%s: After: %w", method, err)
		}
		p.recordSeen(s, user, c.After)
	}
	return nil
}

func (p *replay) setBan(ban leaderboard.Ban) error {
	changes, err := p.store.SetBan(p.ctx, ban)
	if err != nil {
		return fmt.Errorf("SetBan: %w", err)
	}
	p.users[ban.User] = true
	p.model.setBan(ban)
	return p.checkChanges("SetBan", changes)
}

func (p *replay) erase(user leaderboard.UserID, at time.Time) error {
	changes, err := p.store.Erase(p.ctx, user, at)
	if err != nil {
		return fmt.Errorf("Erase: %w", err)
	}
	p.users[user] = true
	for s := range p.keys {
		if e := p.lastSeen(s, user); e.Key != "" && !slices.ContainsFunc(changes, func(c leaderboard.Change) bool { return c.After.SeasonKey == s }) {
			return fmt.Errorf("Erase returns no change of %q in %v, want one because the user had an entry", user, s)
		}
	}
	p.model.erase(user, at)
	return p.checkChanges("Erase", changes)
}

func (p *replay) recount(s leaderboard.SeasonKey, user leaderboard.UserID) error {
	b, ok := p.model.boards[s.Board]
	if !ok {
		return nil
	}
	c, err := p.store.Recount(p.ctx, &b, s.Season, user)
	if err != nil {
		return fmt.Errorf("Recount: %w", err)
	}
	if err := diff("Recount of undamaged data", c.Before, c.After); err != nil {
		return err
	}
	return p.checkEntry(s, user, c.After)
}

func (p *replay) endSeason(s leaderboard.SeasonKey, at time.Time) error {
	stored, ok := p.model.boards[s.Board]
	if !ok {
		return nil
	}
	amended := stored.Clone()
	if amended.Season.EndEarly(leaderboard.EarlyEnd{ID: s.Season, At: at, DecidedAt: epoch.AddDate(0, 0, 25)}) != nil {
		return nil //nolint:nilerr // the board lacks the season, or at is not inside the season
	}
	amended.WidenedAt = lastReceipt
	got, err := p.store.AmendBoard(p.ctx, s.Board, replaceBy(amended))
	if err == nil {
		err = diff("AmendBoard", amended, got)
	}
	if err != nil {
		return fmt.Errorf("AmendBoard: %w", err)
	}
	p.model.boards[s.Board] = amended
	for user := range p.users {
		c, err := p.store.Recount(p.ctx, &amended, s.Season, user)
		if err != nil {
			return fmt.Errorf("Recount: %w", err)
		}
		if err := p.checkEntry(s, user, c.After); err != nil {
			return fmt.Errorf("Recount after an early end: %w", err)
		}
		p.recordSeen(s, user, c.After)
	}
	return nil
}

func (p *replay) seal(s leaderboard.SeasonKey, a leaderboard.Amendment) error {
	seal := func(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
		return p.store.Seal(ctx, b, season, a.At)
	}
	sealed := p.model.sealed[s]
	if sealed == nil {
		return p.makeFinal(s, a, "Seal", nil, seal)
	}
	b := p.model.boards[s.Board]
	record, err := seal(p.ctx, &b, s.Season, a)
	if err != nil {
		return fmt.Errorf("Seal of a sealed season: %w", err)
	}
	if err := diff("Seal of a sealed season", sealed.record, record); err != nil {
		return err
	}
	return p.compareFinal(s)
}

func (p *replay) amendSeason(s leaderboard.SeasonKey, a leaderboard.Amendment) error {
	b, ok := p.model.boards[s.Board]
	if !ok || p.model.sealed[s] != nil {
		// Half of the amendments name all users. If no standing has changed, such an amendment must
		// do nothing.
		var users []leaderboard.UserID
		if a.At.UnixMicro()%2 == 0 {
			users = slices.Sorted(maps.Keys(p.users))
		}
		return p.makeFinal(s, a, "Amend", users, func(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
			return p.store.Amend(ctx, b, season, a, users)
		})
	}
	if _, err := p.store.Amend(p.ctx, &b, s.Season, a, nil); !errors.Is(err, leaderboard.ErrNotSealed) {
		return fmt.Errorf("Amend of a season that is not sealed: error %w, want ErrNotSealed", err)
	}
	return nil
}

func (p *replay) makeFinal(s leaderboard.SeasonKey, a leaderboard.Amendment, method string, users []leaderboard.UserID,
	call func(context.Context, *leaderboard.Board, leaderboard.SeasonID, leaderboard.Amendment) (leaderboard.SeasonRecord, error)) error {
	b, ok := p.model.boards[s.Board]
	if !ok {
		return nil
	}
	p.keys[s] = true
	if err := p.compareSeason(s); err != nil {
		return err
	}
	ladders := map[leaderboard.Division][]leaderboard.Entry{}
	for _, d := range p.model.divisions(s) {
		var err error
		if ladders[d], err = collect(p.store.Entries(p.ctx, leaderboard.Ladder{SeasonKey: s, Division: d}, "")); err != nil {
			return fmt.Errorf("Entries: %w", err)
		}
	}
	record, err := call(p.ctx, &b, s.Season, a)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if len(users) == 0 || !p.model.agrees(s, ladders) {
		p.model.seal(s, a, ladders)
	}
	if err := diff(method, p.model.sealed[s].record, record); err != nil {
		return err
	}
	return p.compareFinal(s)
}

func (p *replay) deleteSeason(s leaderboard.SeasonKey, at time.Time) error {
	if err := p.store.DeleteSeason(p.ctx, s, at); err != nil {
		return fmt.Errorf("DeleteSeason: %w", err)
	}
	if err := p.store.FinishDeletions(p.ctx); err != nil { // no deletion is left to finish
		return fmt.Errorf("FinishDeletions: %w", err)
	}
	if _, err := p.store.RemoveOrphanRows(p.ctx, time.Minute); err != nil {
		return fmt.Errorf("RemoveOrphanRows: %w", err)
	}
	p.model.deleteSeason(s, at)
	delete(p.seen, s) // after a deletion, versions may start from 1 again
	return nil
}
