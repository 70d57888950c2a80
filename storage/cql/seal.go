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

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

// A seal is a row of table seals. It names the valid generation of final standings. A
// generation is one complete set of a season's final standings. A Seal and each Amend write
// a new one.
type seal struct {
	Generation string                  `json:"generation,omitempty"` // a UUID; empty if the season is not sealed
	SealedAt   time.Time               `json:"sealed_at,omitzero"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	// Overtaken counts changes of entries: erasures, and changes after which Amend was
	// called. A generation that was being written at such a change possibly lacks the
	// change. So if Overtaken changes while a generation is written, that generation
	// never becomes valid.
	Overtaken int `json:"erasures,omitempty"`
	// Layout is finalLayout. It is 0 if an older version of the store wrote the valid
	// generation, or changed the seal later.
	Layout int `json:"layout,omitempty"`
	// Erased contains, by division, the number of positions that are missing in the valid
	// generation after the erasures that have ended.
	Erased map[string]int64 `json:"erased,omitempty"`
	// Erasures counts the erasures in valid generations that have ended.
	Erasures int `json:"ended_erasures,omitempty"`
	// Pending lists the generations that a process writes or removes. If the process
	// dies, its generation stays in the list.
	Pending []pendingGeneration `json:"loose,omitempty"`

	body string // the stored text
}

// A pendingGeneration is a generation that is not valid, but may have rows. Since is the
// time at which Seal started to write it. A zero Since means that any Seal may remove the
// generation at once.
type pendingGeneration struct {
	Generation string    `json:"generation"`
	Since      time.Time `json:"since"`
}

// pendingTimeout is the age at which Seal removes a pending generation, because the
// process that wrote it has presumably died. If that process is alive, it finds that its
// generation is not pending, and writes a new generation.
const pendingTimeout = 24 * time.Hour

func (x *seal) sealed() bool { return x.Generation != "" }

// setErased sets Erased to the sizes of ladders.
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

// generations returns all generations that may have rows.
func (x *seal) generations() (all []string) {
	for _, l := range x.Pending {
		all = append(all, l.Generation)
	}
	if x.sealed() {
		all = append(all, x.Generation)
	}
	return all
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
		newSeal.Amendments, newSeal.Pending, newSeal.Erased = slices.Clone(oldSeal.Amendments), slices.Clone(oldSeal.Pending), maps.Clone(oldSeal.Erased)
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
		generation, err := gocql.RandomUUID()
		if err != nil {
			return leaderboard.SeasonRecord{}, fmt.Errorf("cql: seal: %w", err)
		}
		f := finalSet{s, seasonKey, generation.String()}
		oldSeal, _, listed, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
			x.Pending = append(x.Pending, pendingGeneration{f.generation, s.now().UTC()})
			return amend || !x.sealed()
		})
		live := false
		if err == nil {
			live, err = s.whileOpen(ctx, seasonKey, inc, func(context.Context) error { return nil })
		}
		if err == nil && live && !listed {
			return oldSeal.record(seasonKey, inc), nil
		}
		if err == nil && live {
			err = f.writeAll(ctx, inc)
		}
		if err == nil && !live || errors.Is(err, errEnded) {
			if err := s.unlist(ctx, seasonKey, inc, f); err != nil {
				return leaderboard.SeasonRecord{}, err
			}
			continue
		}
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		record, ok, err := s.validate(ctx, f, inc, &oldSeal, a)
		if ok || err != nil {
			return record, err
		}
		if err := s.removePending(ctx, seasonKey, inc, f.generation); err != nil {
			return leaderboard.SeasonRecord{}, err
		}
	}
}

// validate makes a generation valid, unless another generation has become valid or entries
// have changed since oldSeal, the seal before the generation was written. It reports whether it
// has made the generation valid. If so, it also removes the generation that was valid before,
// and pending generations older than pendingTimeout.
func (s *Store) validate(ctx context.Context, f finalSet, inc incarnation, oldSeal *seal, a leaderboard.Amendment) (leaderboard.SeasonRecord, bool, error) {
	_, sealed, ok, err := s.changeSeal(ctx, f.seasonKey, inc, func(x *seal) bool {
		if x.Generation != oldSeal.Generation || x.Overtaken != oldSeal.Overtaken || !slices.ContainsFunc(x.Pending, f.isGenerationOf) {
			return false
		}
		x.Pending = slices.DeleteFunc(x.Pending, f.isGenerationOf)
		if !x.sealed() {
			x.SealedAt = a.At
		} else {
			x.Pending = append(x.Pending, pendingGeneration{Generation: x.Generation}) // removed after the swap
			if !slices.ContainsFunc(x.Amendments, func(o leaderboard.Amendment) bool { return o.At.Equal(a.At) && o.Reason == a.Reason }) {
				x.Amendments = append(x.Amendments, a)
			}
		}
		x.Generation, x.Layout, x.Erased = f.generation, finalLayout, nil
		return true
	})
	if err != nil || !ok {
		return leaderboard.SeasonRecord{}, false, err // after an error, the generation may be valid and must not be removed
	}
	for _, l := range sealed.Pending {
		if err == nil && s.now().Sub(l.Since) > pendingTimeout {
			err = s.removePending(ctx, f.seasonKey, inc, l.Generation)
		}
	}
	return sealed.record(f.seasonKey, inc), true, err
}

// Amend replaces the final standings of a sealed season.
//
// A writer may change an entry while Seal runs. The final standings must include this
// change. Consider a writer that changes an entry and then calls Amend, and a concurrent
// Seal. Seal first adds its generation to Pending, then reads the entries, and then makes
// the generation valid. All changes of the seal are conditional statements (swaps), so
// they have a definite order.
//
//   - If Amend finds neither a pending nor a valid generation, Seal has not read any
//     entry yet. Seal then reads the change.
//   - If Amend finds a pending generation, it increments Overtaken by a swap. If this
//     swap comes before the last swap of Seal, Seal starts again and reads the change. If
//     the last swap of Seal comes first, the swap of Amend fails. Amend then reads the
//     seal again and finds that the season is sealed.
//   - If Amend finds that the season is sealed, it writes a new generation, and reads the
//     change.
//
// If the writer dies before Amend returns, it has not acknowledged the change. The sender
// then sends the change again, and the writer that receives it calls Amend.
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey) // the incarnation in which the caller changed entries
	if err != nil || !inc.openFor(b) {
		return leaderboard.SeasonRecord{}, cmp.Or(err, errNotSealed(seasonKey))
	}
	oldSeal, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
		x.Overtaken++
		return !x.sealed() && len(x.Pending) > 0
	})
	if err != nil {
		return leaderboard.SeasonRecord{}, err
	}
	if !oldSeal.sealed() {
		return leaderboard.SeasonRecord{}, errNotSealed(seasonKey)
	}
	record, err := s.writeFinal(ctx, b, season, a, true)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = errNotSealed(seasonKey)
	}
	return record, err
}

// removePending removes the rows of a generation, and then removes it from Pending.
func (s *Store) removePending(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, generation string) error {
	f := finalSet{s, seasonKey, generation}
	if err := f.removeAll(ctx); err != nil {
		return err
	}
	_, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
		count := len(x.Pending)
		x.Pending = slices.DeleteFunc(x.Pending, f.isGenerationOf)
		return len(x.Pending) < count
	})
	return err
}

// unlist removes the generation f from the seal of an ended incarnation. The caller has
// removed the rows of f. If the seal then has neither a valid nor a pending generation,
// unlist deletes the seal.
func (s *Store) unlist(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, f finalSet) error {
	for {
		oldSeal, err := s.readSeal(ctx, seasonKey, inc)
		if err != nil || !slices.ContainsFunc(oldSeal.Pending, f.isGenerationOf) {
			return err
		}
		newSeal := oldSeal
		newSeal.Pending = slices.DeleteFunc(slices.Clone(oldSeal.Pending), f.isGenerationOf)
		var ok bool
		if newSeal.sealed() || len(newSeal.Pending) > 0 {
			ok, err = s.swapSeal(ctx, seasonKey, inc, &oldSeal, &newSeal)
		} else {
			ok, err = s.dropSeal(ctx, seasonKey, inc, &oldSeal)
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

func errNotSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("cql: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}
