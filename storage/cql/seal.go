package cql

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/open-leaderboard/leaderboard"
)

// A seal is a row of table seals. It names the valid generation of final standings. A
// generation is one complete set of a season's final standings. Each Seal writes a new
// one.
type seal struct {
	Generation string                  `json:"generation,omitempty"` // a UUID; empty if the season is not sealed
	SealedAt   time.Time               `json:"sealed_at,omitzero"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	// Overtaken counts changes of entries: erasures, and changes after which Amend was
	// called. A generation that was being written at such a change possibly lacks the
	// change. So if Overtaken changes while a generation is written, that generation
	// never becomes valid.
	Overtaken int `json:"erasures,omitempty"`
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
// generation is not pending any more, and writes a new one.
const pendingTimeout = 24 * time.Hour

func (x *seal) sealed() bool { return x.Generation != "" }

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

// swapSeal replaces the stored seal by next if the stored seal equals have. It reports
// whether it has replaced the seal.
func (s *Store) swapSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, have, next *seal) (bool, error) {
	text, err := json.Marshal(next)
	if err != nil {
		return false, fmt.Errorf("cql: seal: %w", err)
	}
	next.body = string(text)
	key := []any{string(seasonKey.Board), string(seasonKey.Season), inc.number}
	if have.body == "" {
		return s.conn.swap(ctx, op{createSeal, append(key, next.body)}, map[string]any{})
	}
	return s.conn.swap(ctx, op{changeSeal, append(append([]any{next.body}, key...), have.body)}, map[string]any{})
}

// changeSeal applies the function change to a seal, and returns the seal before and
// after. If another process changes the seal in between, changeSeal calls the function
// again with the newer seal. If the function returns false, changeSeal writes nothing and
// returns false as ok.
func (s *Store) changeSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, change func(*seal) bool) (have, next seal, ok bool, err error) {
	for {
		if have, err = s.readSeal(ctx, seasonKey, inc); err != nil {
			return have, next, false, err
		}
		next = have
		next.Amendments, next.Pending = slices.Clone(have.Amendments), slices.Clone(have.Pending)
		if !change(&next) {
			return have, next, false, nil
		}
		if ok, err = s.swapSeal(ctx, seasonKey, inc, &have, &next); ok || err != nil {
			return have, next, ok, err
		}
	}
}

// Seal writes the final standings of a season as a new generation. The generation becomes
// valid when the seal names it. While Seal writes, another process may make its own
// generation valid, or record that entries have changed. Then Seal discards its
// generation and starts again.
//
// Seal adds its generation to Pending before it writes the first row. It removes the
// generation from Pending when the generation becomes valid or is removed. So if a
// process dies during Seal, Pending still names its generation. The next Seal after at
// least a day removes this generation; so does a deletion of the season.
//
// Seal may start from a cached incarnation that another process has ended. So Seal reads
// the season's row in table seasons after it has added its generation to Pending. If the
// incarnation has ended, Seal starts again with the next incarnation. If it has not ended,
// a deletion of the season comes later, and so finds the generation in Pending.
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
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
		was, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
			x.Pending = append(x.Pending, pendingGeneration{f.generation, s.now().UTC()})
			return true
		})
		live := false
		if err == nil {
			live, err = s.whileOpen(ctx, seasonKey, inc, func(context.Context) error { return nil })
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
		_, sealed, ok, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
			if x.Generation != was.Generation || x.Overtaken != was.Overtaken || !slices.ContainsFunc(x.Pending, f.is) {
				return false
			}
			switch {
			case !x.sealed():
				x.SealedAt = a.At
			case !a.At.Equal(x.SealedAt) && !slices.ContainsFunc(x.Amendments, func(o leaderboard.Amendment) bool {
				return o.At.Equal(a.At) && o.Reason == a.Reason
			}):
				x.Amendments = append(x.Amendments, a)
			}
			x.Pending = slices.DeleteFunc(x.Pending, f.is)
			if x.sealed() {
				x.Pending = append(x.Pending, pendingGeneration{Generation: x.Generation}) // removed after the swap
			}
			x.Generation = f.generation
			return true
		})
		switch {
		case err != nil: // the outcome of the swap is unknown: the generation may be valid and must not be removed
			return leaderboard.SeasonRecord{}, err
		case ok:
			for _, l := range sealed.Pending {
				if err == nil && s.now().Sub(l.Since) > pendingTimeout {
					err = s.removePending(ctx, seasonKey, inc, l.Generation)
				}
			}
			return sealed.record(seasonKey, inc), err
		}
		if err := s.removePending(ctx, seasonKey, inc, f.generation); err != nil {
			return leaderboard.SeasonRecord{}, err
		}
	}
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
//   - If Amend finds that the season is sealed, it calls Seal, and this Seal reads the
//     change.
//
// If the writer dies before Amend returns, it has not acknowledged the change. The sender
// then sends the change again, and the writer that receives it calls Amend.
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.cachedOrRead(ctx, seasonKey) // the incarnation in which the caller changed entries
	if err != nil || !inc.openFor(b) {
		return leaderboard.SeasonRecord{}, cmp.Or(err, notSealed(seasonKey))
	}
	have, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
		x.Overtaken++
		return !x.sealed() && len(x.Pending) > 0
	})
	if err != nil {
		return leaderboard.SeasonRecord{}, err
	}
	if !have.sealed() {
		return leaderboard.SeasonRecord{}, notSealed(seasonKey)
	}
	record, err := s.Seal(ctx, b, season, a)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = notSealed(seasonKey)
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
		before := len(x.Pending)
		x.Pending = slices.DeleteFunc(x.Pending, f.is)
		return len(x.Pending) < before
	})
	return err
}

// unlist removes the generation f from the seal of an ended incarnation. The caller has
// removed the rows of f. If the seal then has neither a valid nor a pending generation,
// unlist deletes the seal.
func (s *Store) unlist(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, f finalSet) error {
	for {
		have, err := s.readSeal(ctx, seasonKey, inc)
		if err != nil || !slices.ContainsFunc(have.Pending, f.is) {
			return err
		}
		next := have
		next.Pending = slices.DeleteFunc(slices.Clone(have.Pending), f.is)
		var ok bool
		if next.sealed() || len(next.Pending) > 0 {
			ok, err = s.swapSeal(ctx, seasonKey, inc, &have, &next)
		} else {
			ok, err = s.dropSeal(ctx, seasonKey, inc, &have)
		}
		if ok || err != nil {
			return err
		}
	}
}

// dropSeal deletes the stored seal if it equals have. It reports whether it has deleted
// the seal.
func (s *Store) dropSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, have *seal) (bool, error) {
	return s.conn.swap(ctx, op{removeSeal, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, have.body}}, map[string]any{})
}

func notSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("cql: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}
