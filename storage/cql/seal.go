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

// seal is a row of table seals. It names the generation of final standings that is
// valid. A generation is one complete set of a season's final standings, and each Seal
// writes a new one.
type seal struct {
	Generation string                  `json:"generation,omitempty"` // a UUID; empty if the season is not sealed
	SealedAt   time.Time               `json:"sealed_at,omitzero"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	// Overtaken counts the changes of entries that a pending generation may lack:
	// erasures, and changes for which Amend was called. If Overtaken changed while a
	// generation was written, that generation never becomes valid.
	Overtaken int `json:"erasures,omitempty"`
	// Pending are the generations that are being written or removed. If the process
	// that did so died, its generation stays here.
	Pending []pendingGeneration `json:"loose,omitempty"`

	body string // the stored text
}

// pendingGeneration is a generation that is not valid, but may have rows. Since is the
// time at which its Seal started, or zero if the generation may be removed at once.
type pendingGeneration struct {
	Generation string    `json:"generation"`
	Since      time.Time `json:"since"`
}

// pendingTimeout is the age at which Seal removes a pending generation, because the
// process that wrote it has presumably died. If that process is alive, it must only
// write the generation again.
const pendingTimeout = 24 * time.Hour

func (x *seal) sealed() bool { return x.Generation != "" }

func (x *seal) record(seasonKey leaderboard.SeasonKey) leaderboard.SeasonRecord {
	return leaderboard.SeasonRecord{SeasonKey: seasonKey, SealedAt: x.SealedAt, Amendments: x.Amendments}
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

// swapSeal replaces the stored seal by next if the stored seal equals have, and
// reports whether it did.
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
// after. If another process changes the seal in between, changeSeal calls change
// again with the newer seal. If change returns false, changeSeal writes nothing and
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

// Seal writes the final standings of a season as a new generation. The generation is
// valid once the seal names it. While Seal writes, another process may make its own
// generation valid, or record that entries changed. Seal then discards its generation
// and starts again.
//
// The seal lists a generation as pending before the generation's first row is written,
// and until the generation is valid or removed. So if a process dies during Seal, its
// generation can be found: the first Seal at least a day later removes it, and so does
// deleting the season.
//
// Seal may start from a cached incarnation that another process has ended. So Seal reads
// the season's row after its generation is listed. If the incarnation has ended, Seal
// starts again with the next one. Otherwise every later deletion finds the generation
// in the list.
func (s *Store) Seal(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	a.At = leaderboard.Truncate(a.At)
	for {
		inc, err := s.opened(ctx, b, season)
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		generation, err := gocql.RandomUUID()
		if err != nil {
			return leaderboard.SeasonRecord{}, fmt.Errorf("cql: seal: %w", err)
		}
		f := final{s, seasonKey, generation.String()}
		was, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
			x.Pending = append(x.Pending, pendingGeneration{f.generation, s.now().UTC()})
			return true
		})
		live := false
		if err == nil {
			live, err = s.still(ctx, seasonKey, inc, func(context.Context) error { return nil })
		}
		if err == nil && live {
			err = f.make(ctx, inc)
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
				x.Pending = append(x.Pending, pendingGeneration{Generation: x.Generation}) // removed below
			}
			x.Generation = f.generation
			return true
		})
		switch {
		case err != nil: // the generation may be valid, so it must not be removed
			return leaderboard.SeasonRecord{}, err
		case ok:
			for _, l := range sealed.Pending {
				if err == nil && s.now().Sub(l.Since) > pendingTimeout {
					err = s.removePending(ctx, seasonKey, inc, l.Generation)
				}
			}
			return sealed.record(seasonKey), err
		}
		if err := s.removePending(ctx, seasonKey, inc, f.generation); err != nil {
			return leaderboard.SeasonRecord{}, err
		}
	}
}

// Amend replaces the final standings of a sealed season.
//
// Final standings must include the change of an entry also if it happens while Seal
// runs. Consider a writer that changes an entry and then calls Amend, and a concurrent
// Seal. Seal lists its generation as pending, then reads the entries, and then makes
// the generation valid. The seal is changed by conditional statements (swaps) only, so
// all its changes have one order.
//
//   - If Amend finds neither a pending nor a valid generation, every Seal that starts
//     later reads the entries after the change, and finds the change.
//   - If Amend finds a pending generation, it raises Overtaken by a swap. If the swap
//     of Amend comes before the swap of Seal, Seal starts again and reads the change.
//     If the swap of Seal comes first, the swap of Amend fails. Amend then reads the
//     seal again and finds the season sealed.
//   - If Amend finds the season sealed, it calls Seal, which reads the change.
//
// If the writer dies before Amend returns, it has acknowledged nothing. The change is
// then sent again, to a writer that calls Amend again.
func (s *Store) Amend(ctx context.Context, b *leaderboard.Board, season leaderboard.SeasonID, a leaderboard.Amendment) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: season}
	inc, err := s.incarnations.last(ctx, seasonKey) // the incarnation in which the caller changed entries
	if err != nil || !inc.of(b) {
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
	f := final{s, seasonKey, generation}
	if err := f.remove(ctx); err != nil {
		return err
	}
	_, _, _, err := s.changeSeal(ctx, seasonKey, inc, func(x *seal) bool {
		before := len(x.Pending)
		x.Pending = slices.DeleteFunc(x.Pending, f.is)
		return len(x.Pending) < before
	})
	return err
}

// unlist removes a generation without rows from the seal of an ended incarnation. It
// deletes a seal that lists no other generation.
func (s *Store) unlist(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, f final) error {
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

// dropSeal deletes the stored seal if it equals have, and reports whether it did.
func (s *Store) dropSeal(ctx context.Context, seasonKey leaderboard.SeasonKey, inc incarnation, have *seal) (bool, error) {
	return s.conn.swap(ctx, op{removeSeal, []any{string(seasonKey.Board), string(seasonKey.Season), inc.number, have.body}}, map[string]any{})
}

func notSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("cql: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}
