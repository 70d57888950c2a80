package cql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A seal is a row of table seals. It names the valid generation of final standings.
type seal struct {
	Generation string                  `json:"generation,omitempty"` // a UUID; empty if the season is not sealed
	SealedAt   time.Time               `json:"sealed_at,omitzero"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	// Overtaken counts changes of entries that a pending generation may lack. If Overtaken
	// changes after the generation became pending, the generation never becomes valid.
	Overtaken int `json:"overtaken,omitempty"`
	// Ladders has the generations that wrote the directories, by division. The generation
	// Base wrote all other directories.
	Base    string            `json:"base,omitempty"`
	Ladders map[string]string `json:"ladders,omitempty"`
	// the data center that wrote the valid generation; empty if several have written parts
	Writer string `json:"writer,omitempty"`
	// the number of generations that were ever added to Pending
	Writes int64 `json:"writes,omitempty"`
	// number of erased positions in the valid generation, by division
	Erased map[string]int64 `json:"erased,omitempty"`
	// generations that a process is writing or removing, or left when it died
	Pending []pendingGeneration `json:"pending,omitempty"`

	body string
}

// A pendingGeneration is not valid, but may have rows. If Since is zero, another generation
// has replaced it, and any process may remove it. Later generations may use its pages: see
// collect.
type pendingGeneration struct {
	Generation string    `json:"generation"`
	Since      time.Time `json:"since"`
}

func (p *pendingGeneration) isReplaced() bool { return p.Since.IsZero() }

var errEnded = errors.New("cql: the season was deleted while its final standings were written")

// pendingTimeout is the age at which Seal and Amend remove a pending generation. A writer
// that is still alive starts again.
const pendingTimeout = 24 * time.Hour

func (x *seal) sealed() bool { return x.Generation != "" }

func (x *seal) hasReplaced() bool {
	return slices.ContainsFunc(x.Pending, func(p pendingGeneration) bool { return p.isReplaced() })
}

func (x *seal) addErased(division string, n int64) {
	if x.Erased == nil {
		x.Erased = map[string]int64{}
	}
	x.Erased[division] += n
}

func (x *seal) record(seasonKey leaderboard.SeasonKey, inc incarnation) leaderboard.SeasonRecord {
	return leaderboard.SeasonRecord{SeasonKey: seasonKey, SealedAt: x.SealedAt, Amendments: x.Amendments, Rules: inc.rules}
}

func (s *Store) readSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation) (seal, error) {
	var x seal
	q := op{selectSeal, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number}}
	err := s.conn.read(ctx, q, []any{&x.body}, func() bool { return true })
	if err == nil && x.body != "" {
		if err = json.Unmarshal([]byte(x.body), &x); err != nil {
			err = fmt.Errorf("cql: seal: %w: %w", leaderboard.ErrFormat, err)
		}
	}
	return x, err
}

func (s *Store) swapSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, oldSeal, newSeal *seal) (bool, error) {
	text, err := json.Marshal(newSeal)
	if err != nil {
		return false, fmt.Errorf("cql: seal: %w", err)
	}
	newSeal.body = string(text)
	key := []any{string(seasonKey.Board), string(seasonKey.Season), inc.number}
	if oldSeal.body == "" {
		return s.conn.swap(ctx, op{createSeal, append(key, newSeal.body)}, map[string]any{})
	}
	return s.conn.swap(ctx, op{changeSeal, append(append([]any{newSeal.body}, key...), oldSeal.body)}, map[string]any{})
}

// changeSeal applies change to the stored seal. If another process changes the seal
// meanwhile, changeSeal starts again. If change returns false, changeSeal writes nothing
// and returns ok as false.
func (s *Store) changeSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, change func(*seal) bool) (oldSeal, newSeal seal, ok bool, err error) {
	for {
		if oldSeal, err = s.readSeal(ctx, seasonKey, inc); err != nil {
			return oldSeal, newSeal, false, err
		}
		newSeal = oldSeal
		newSeal.Amendments, newSeal.Pending = slices.Clone(oldSeal.Amendments), slices.Clone(oldSeal.Pending)
		newSeal.Erased, newSeal.Ladders = maps.Clone(oldSeal.Erased), maps.Clone(oldSeal.Ladders)
		if !change(&newSeal) {
			return oldSeal, newSeal, false, nil
		}
		if ok, err = s.swapSeal(ctx, seasonKey, inc, &oldSeal, &newSeal); ok || err != nil {
			return oldSeal, newSeal, ok, err
		}
	}
}

// Seal writes the final standings of a season, unless the season is sealed.
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (leaderboard.SeasonRecord, error) {
	return s.writeFinal(ctx, b, season, leaderboard.Amendment{At: at}, false)
}

// writeFinal writes the final standings of a season as a new generation, which becomes
// valid when the seal names it. If amend is false and the season is sealed, writeFinal
// changes nothing. If another process makes a generation valid or raises Overtaken
// meanwhile, writeFinal discards its own generation and starts again.
//
// The generation is in Pending before its first row is written, and until it is valid or
// removed. If the process dies, a deletion of the season removes the generation, or a Seal
// or Amend removes it after pendingTimeout.
//
// The cached incarnation may have ended. So after the change of Pending, writeFinal reads
// the season's row, and starts again if the incarnation has ended. A later deletion finds
// the generation in Pending.
func (s *Store) writeFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, amend bool) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	a.At = leaderboard.Truncate(a.At)
	for {
		inc, err := s.openIncarnation(ctx, b, season, nil)
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		p := pagedSeason{s, seasonKey, inc}
		oldSeal, w, err := p.newPageWriter(ctx, func(x *seal) bool { return amend || !x.sealed() })
		live := false
		if err == nil {
			live, err = s.whileOpen(ctx, seasonKey, inc, func(context.Context) error { return nil })
		}
		if err == nil && live && w == nil {
			return oldSeal.record(seasonKey, inc), nil
		}
		if err == nil && live {
			err = w.writeAll(ctx)
		}
		if err == nil && !live || errors.Is(err, errEnded) {
			if err := w.unlist(ctx); err != nil {
				return leaderboard.SeasonRecord{}, err
			}
			continue
		}
		if errors.Is(err, leaderboard.ErrFormat) { // damaged data makes every attempt fail, so remove the rows
			err = errors.Join(err, s.removePending(ctx, seasonKey, inc, w.generation))
		}
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		record, ok, err := w.validate(ctx, &oldSeal, a)
		if ok || err != nil {
			return record, err
		}
		if err := s.removePending(ctx, seasonKey, inc, w.generation); err != nil {
			return leaderboard.SeasonRecord{}, err
		}
	}
}

// validate makes the generation of w valid, unless another generation has become valid or
// Overtaken has grown since oldSeal was read. Then validate removes generations that were
// replaced or have reached pendingTimeout.
func (w *pageWriter) validate(ctx context.Context, oldSeal *seal, a leaderboard.Amendment) (leaderboard.SeasonRecord, bool, error) {
	_, sealed, ok, err := w.s.changeSeal(ctx, w.seasonKey, w.inc, func(x *seal) bool {
		isOwn := func(p pendingGeneration) bool { return p.Generation == w.generation }
		if x.Generation != oldSeal.Generation || x.Overtaken != oldSeal.Overtaken || !slices.ContainsFunc(x.Pending, isOwn) {
			return false
		}
		x.Pending = slices.DeleteFunc(x.Pending, isOwn)
		if !x.sealed() {
			x.SealedAt = a.At
		} else {
			x.Pending = append(x.Pending, pendingGeneration{Generation: x.Generation})
			x.addAmendment(&a)
		}
		x.Generation, x.Base, x.Erased, x.Ladders, x.Writer = w.generation, w.generation, nil, nil, w.s.dc
		return true
	})
	if err != nil || !ok {
		return leaderboard.SeasonRecord{}, false, err // after an error, the generation may be valid and must not be removed
	}
	return sealed.record(w.seasonKey, w.inc), true, w.s.removeOld(ctx, w.seasonKey, w.inc, &sealed)
}

func (x *seal) addAmendment(a *leaderboard.Amendment) {
	if !slices.ContainsFunc(x.Amendments, func(o leaderboard.Amendment) bool { return o.At.Equal(a.At) && o.Reason == a.Reason }) {
		x.Amendments = append(x.Amendments, *a)
	}
}

func (s *Store) removeOld(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, x *seal) error {
	for _, g := range x.Pending {
		if g.isReplaced() || s.now().Sub(g.Since) <= pendingTimeout {
			continue
		}
		if err := s.removePending(ctx, seasonKey, inc, g.Generation); err != nil {
			return err
		}
	}
	if !x.hasReplaced() {
		return nil
	}
	return (&pagedSeason{s, seasonKey, inc}).collect(ctx)
}

// Amend replaces the final standings of a sealed season. If users are given, it usually
// writes only the pages that change: see [pagedSeason.amend].
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.readAgain(ctx, seasonKey) // another store may have sealed a later incarnation
	if err != nil || !inc.openFor(b) {
		return leaderboard.SeasonRecord{}, cmp.Or(err, errNotSealed(seasonKey))
	}
	oldSeal, err := s.overtake(ctx, seasonKey, inc)
	if err != nil || !oldSeal.sealed() {
		return leaderboard.SeasonRecord{}, cmp.Or(err, errNotSealed(seasonKey))
	}
	if len(users) > 0 {
		a.At = leaderboard.Truncate(a.At)
		x, done, err := (&pagedSeason{s, seasonKey, inc}).amend(ctx, withoutRepeats(users), &a)
		if errors.Is(err, errEnded) {
			err = errNotSealed(seasonKey)
		}
		if done || err != nil {
			return x.record(seasonKey, inc), err
		}
	}
	record, err := s.writeFinal(ctx, b, season, a, true)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = errNotSealed(seasonKey)
	}
	return record, err
}

func (s *Store) removePending(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, generation string) error {
	if err := (&pagedSeason{s, seasonKey, inc}).removeOwn(ctx, generation, 0, nil); err != nil {
		return err
	}
	_, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
		count := len(x.Pending)
		x.Pending = slices.DeleteFunc(x.Pending, func(p pendingGeneration) bool { return p.Generation == generation })
		return len(x.Pending) < count
	})
	return err
}

// unlist removes a generation without rows from the seal of an ended incarnation. If the
// seal has no other generation, unlist deletes the seal.
func (w *pageWriter) unlist(ctx context.Context) error {
	if w == nil {
		return nil
	}
	isOwn := func(p pendingGeneration) bool { return p.Generation == w.generation }
	for {
		oldSeal, err := w.s.readSeal(ctx, w.seasonKey, w.inc)
		if err != nil || !slices.ContainsFunc(oldSeal.Pending, isOwn) {
			return err
		}
		newSeal := oldSeal
		newSeal.Pending = slices.DeleteFunc(slices.Clone(oldSeal.Pending), isOwn)
		var ok bool
		if newSeal.sealed() || len(newSeal.Pending) > 0 {
			ok, err = w.s.swapSeal(ctx, w.seasonKey, w.inc, &oldSeal, &newSeal)
		} else {
			ok, err = w.s.dropSeal(ctx, w.seasonKey, w.inc, &oldSeal)
		}
		if ok || err != nil {
			return err
		}
	}
}

func (s *Store) dropSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, stored *seal) (bool, error) {
	return s.conn.swap(ctx, op{removeSeal, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, stored.body}}, map[string]any{})
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
			*x = seal{Overtaken: x.Overtaken, Writes: x.Writes, Pending: append(x.Pending, pendingGeneration{Generation: x.Generation})}
			return true
		})
		if err != nil || x.body == "" {
			return err
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
	return (&pagedSeason{s, key.SeasonKey, inc}).erase(ctx, &updated, key.user)
}

func withoutRepeats(users []leaderboard.UserID) []leaderboard.UserID {
	return slices.Compact(slices.Sorted(slices.Values(users)))
}

func errNotSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("cql: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}
