package cql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// A seal is a row of table seals. It names the valid generation of final standings. A
// generation is one complete set of a season's final standings. A Seal and each Amend write
// a new one.
type seal struct {
	Generation string                  `json:"generation,omitempty"` // a UUID; empty if the season is not sealed
	SealedAt   time.Time               `json:"sealed_at,omitzero"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	// Overtaken counts the changes of entries that a pending generation possibly lacks: erasures,
	// and changes after which MarkFinal or Amend was called. If Overtaken changes while a
	// generation is written, that generation never becomes valid.
	Overtaken int        `json:"erasures,omitempty"`
	Layout    sealLayout `json:"layout,omitempty"` // the layout of the valid generation
	// Base and Ladders name the directories of the valid generation, if its layout is
	// pagedLayout. Ladders has, by division, the generation that wrote the directory of the
	// ladder. Generation Base wrote all other directories.
	Base    string            `json:"base,omitempty"`
	Ladders map[string]string `json:"ladders,omitempty"`
	// Writer is the data center whose stores wrote the whole valid generation. It is empty if
	// several data centers did.
	Writer string `json:"writer,omitempty"`
	// Writes counts the generations that were listed in Pending.
	Writes int64 `json:"writes,omitempty"`
	// Erased contains, by division, the number of positions that are missing in the valid
	// generation after the erasures that have ended.
	Erased map[string]int64 `json:"erased,omitempty"`
	// Erasures counts the erasures that have ended, in valid generations of layouts before
	// pagedLayout.
	Erasures int `json:"ended_erasures,omitempty"`
	// Pending lists the generations that a process writes or removes. If the process
	// dies, its generation stays in the list.
	Pending []pendingGeneration `json:"loose,omitempty"`

	body string // the stored text
}

// A pendingGeneration is a generation that is not valid, but may have rows. Since is the
// time at which a Seal or an Amend started to write it. A zero Since means that any Seal or Amend
// may remove the generation at once.
//
// In pagedLayout, a pending generation with a zero Since was replaced. Its pages may also be
// pages of later generations: see collect.
type pendingGeneration struct {
	Generation string     `json:"generation"`
	Since      time.Time  `json:"since"`
	Layout     sealLayout `json:"layout,omitempty"`
}

// isReplaced reports whether p is a generation in pagedLayout that was replaced.
func (p *pendingGeneration) isReplaced() bool { return p.Layout == pagedLayout && p.Since.IsZero() }

// A sealLayout is a version of the layout of generations.
type sealLayout int

const (
	// positionLayout is the layout of the oldest generations, without fences and tails. The
	// versions of the store that wrote it ignore the field Layout, so a seal that such a store
	// has changed also has positionLayout.
	positionLayout sealLayout = iota
	fencedLayout              // has fences and tails: see finalread.go
	pagedLayout               // has immutable pages and directories: see directory.go
)

// pagedText is the text of pagedLayout in a stored seal. Versions of the store that wrote
// fencedLayout expect a number there. So they report an error, and never read or replace such
// final standings.
const pagedText = `"pages"`

// MarshalJSON implements [json.Marshaler].
func (l sealLayout) MarshalJSON() ([]byte, error) {
	if l == pagedLayout {
		return []byte(pagedText), nil
	}
	return strconv.AppendInt(nil, int64(l), 10), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *sealLayout) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "0", "1":
		*l = sealLayout(text[0] - '0')
	case pagedText:
		*l = pagedLayout
	default:
		return fmt.Errorf("layout %s is newer than this program; upgrade it: %w", text, leaderboard.ErrFormat)
	}
	return nil
}

// pendingTimeout is the age at which Seal and Amend remove a pending generation, because the
// process that wrote it has presumably died. If that process is alive, it finds that its
// generation is not pending, and writes a new generation.
const pendingTimeout = 24 * time.Hour

func (x *seal) sealed() bool { return x.Generation != "" }

// hasReplaced reports whether collect has to remove pages of a sealed season.
func (x *seal) hasReplaced() bool {
	return x.Layout == pagedLayout && slices.ContainsFunc(x.Pending, func(p pendingGeneration) bool { return p.isReplaced() })
}

// addErased adds n to the number of missing positions of a ladder.
func (x *seal) addErased(division string, n int64) {
	if x.Erased == nil {
		x.Erased = map[string]int64{}
	}
	x.Erased[division] += n
}

// setErased raises the numbers in Erased to the numbers of erased positions of ladders.
func (x *seal) setErased(ladders []finalSize) {
	for _, l := range ladders {
		if l.erased <= x.Erased[l.division] {
			continue
		}
		if x.Erased == nil {
			x.Erased = map[string]int64{}
		}
		x.Erased[l.division] = l.erased
	}
}

func (x *seal) record(seasonKey leaderboard.SeasonKey, inc incarnation) leaderboard.SeasonRecord {
	return leaderboard.SeasonRecord{SeasonKey: seasonKey, SealedAt: x.SealedAt, Amendments: x.Amendments, Rules: inc.rules}
}

// readSeal returns the seal of an incarnation, or a zero seal if the table has none.
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

// swapSeal replaces the stored seal by newSeal if the stored seal equals oldSeal. It reports
// whether it has replaced the seal.
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

// changeSeal applies the function change to a seal, and returns the seal before and
// after. If another process changes the seal in between, changeSeal calls the function
// again with the newer seal. If the function returns false, changeSeal writes nothing and
// returns false as ok.
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

// Seal writes the final standings of a season as a new generation, unless the season is
// sealed.
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, at time.Time) (leaderboard.SeasonRecord, error) {
	return s.writeFinal(ctx, b, season, leaderboard.Amendment{At: at}, false)
}

// writeFinal writes the final standings of a season as a new generation. If amend is false
// and the season is sealed, writeFinal changes nothing. The generation becomes valid when
// the seal names it. While writeFinal writes, another process may make its own generation
// valid, or record that entries have changed. Then writeFinal discards its generation and
// starts again. So of several concurrent calls of Seal, the call whose last swap comes first
// seals the season. The other calls find it sealed, even if they were paused for long.
//
// writeFinal adds its generation to Pending before it writes the first row. It removes the
// generation from Pending when the generation becomes valid or is removed. So if a process
// dies during writeFinal, Pending still names its generation. The next call after at least
// a day removes this generation; so does a deletion of the season.
//
// writeFinal may start from a cached incarnation that another process has ended. So it reads
// the season's row in table seasons after it has added its generation to Pending, or has
// found the season sealed. If the incarnation has ended, writeFinal starts again with the
// next incarnation. If it has not ended, a deletion of the season comes later, and so finds
// the generation in Pending.
func (s *Store) writeFinal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, amend bool) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	a.At = leaderboard.Truncate(a.At)
	for {
		inc, err := s.openIncarnation(ctx, b, season)
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
		if errors.Is(err, leaderboard.ErrFormat) { // every attempt fails, so none may leave its rows
			err = errors.Join(err, s.removePending(ctx, seasonKey, inc, pendingGeneration{Generation: w.generation, Layout: pagedLayout, Since: s.now()}))
		}
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		record, ok, err := w.validate(ctx, &oldSeal, a)
		if ok || err != nil {
			return record, err
		}
		if err := s.removePending(ctx, seasonKey, inc, pendingGeneration{Generation: w.generation, Layout: pagedLayout, Since: s.now()}); err != nil {
			return leaderboard.SeasonRecord{}, err
		}
	}
}

// validate makes a complete generation valid, unless another generation has become valid or
// entries have changed since oldSeal, the seal before the generation was written. It reports
// whether it has made the generation valid. If so, it also removes the generation that was valid
// before, and pending generations older than pendingTimeout.
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
			replaced := pendingGeneration{Generation: x.Generation} // removed after the swap
			if x.Layout == pagedLayout {
				replaced.Layout = pagedLayout
			}
			x.Pending = append(x.Pending, replaced)
			x.addAmendment(&a)
		}
		x.Generation, x.Base, x.Layout, x.Erased, x.Ladders, x.Writer = w.generation, w.generation, pagedLayout, nil, nil, w.s.dc
		return true
	})
	if err != nil || !ok {
		return leaderboard.SeasonRecord{}, false, err // after an error, the generation may be valid and must not be removed
	}
	return sealed.record(w.seasonKey, w.inc), true, w.s.removeOld(ctx, w.seasonKey, w.inc, &sealed)
}

// addAmendment appends an amendment, unless x contains it.
func (x *seal) addAmendment(a *leaderboard.Amendment) {
	if !slices.ContainsFunc(x.Amendments, func(o leaderboard.Amendment) bool { return o.At.Equal(a.At) && o.Reason == a.Reason }) {
		x.Amendments = append(x.Amendments, *a)
	}
}

// removeOld removes the generations that were replaced, and pending generations older than
// pendingTimeout.
func (s *Store) removeOld(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, x *seal) error {
	for _, g := range x.Pending {
		if g.isReplaced() || s.now().Sub(g.Since) <= pendingTimeout {
			continue
		}
		if err := s.removePending(ctx, seasonKey, inc, g); err != nil {
			return err
		}
	}
	if !x.hasReplaced() {
		return nil
	}
	return (&pagedSeason{s, seasonKey, inc}).collect(ctx)
}

// Amend replaces the final standings of a sealed season. If the caller names the users, and the
// season has pagedLayout, it usually writes only the pages that change: see [pagedSeason.amend].
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.readAgain(ctx, seasonKey) // another store may have sealed a later incarnation than the cached one
	if err != nil || !inc.openFor(b) {
		return leaderboard.SeasonRecord{}, cmp.Or(err, errNotSealed(seasonKey))
	}
	oldSeal, err := s.overtake(ctx, seasonKey, inc)
	if err != nil || !oldSeal.sealed() {
		return leaderboard.SeasonRecord{}, cmp.Or(err, errNotSealed(seasonKey))
	}
	if len(users) > 0 && oldSeal.Layout == pagedLayout {
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

// removePending removes the rows of a generation, and then removes it from Pending.
func (s *Store) removePending(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, g pendingGeneration) (err error) {
	if g.Layout == pagedLayout {
		err = (&pagedSeason{s, seasonKey, inc}).removeOwn(ctx, g.Generation, 0, nil)
	} else {
		err = finalSet{s, seasonKey, g.Generation}.removeAll(ctx)
	}
	if err != nil {
		return err
	}
	_, _, _, err = s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
		count := len(x.Pending)
		x.Pending = slices.DeleteFunc(x.Pending, func(p pendingGeneration) bool { return p.Generation == g.Generation })
		return len(x.Pending) < count
	})
	return err
}

// unlist removes the generation from the seal of an ended incarnation. The generation must not have
// pages or directories any more. If the seal then has neither a valid nor a pending generation,
// unlist deletes the seal.
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

// dropSeal deletes the seal in the table if it equals stored. It reports whether it has
// deleted the seal.
func (s *Store) dropSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, stored *seal) (bool, error) {
	return s.conn.swap(ctx, op{removeSeal, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, stored.body}}, map[string]any{})
}

// withoutRepeats returns the users, sorted and without repetitions.
func withoutRepeats(users []leaderboard.UserID) []leaderboard.UserID {
	return slices.Compact(slices.Sorted(slices.Values(users)))
}

func errNotSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("cql: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}
