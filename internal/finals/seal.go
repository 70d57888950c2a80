package finals

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
	"github.com/open-leaderboard/leaderboard/storage"
)

// A seal is the register of an incarnation. It names the valid generation of final standings.
type seal struct {
	Generation string                  `json:"generation,omitempty"` // random; empty if the season is not sealed
	SealedAt   time.Time               `json:"sealed_at,omitzero"`
	Amendments []leaderboard.Amendment `json:"amendments,omitempty"`
	Rules      int                     `json:"rules,omitempty"` // of the valid generation
	// Overtaken counts changes of entries that a pending generation may lack. If Overtaken
	// changes after the generation became pending, the generation never becomes valid.
	Overtaken int `json:"overtaken,omitempty"`
	// Ladders has the generations that wrote the directories, by division. The generation
	// Base wrote all other directories.
	Base    string            `json:"base,omitempty"`
	Ladders map[string]string `json:"ladders,omitempty"`
	// The region that wrote the valid generation. Parts means that several have written parts.
	Writer string `json:"writer,omitempty"`
	// the number of generations that were ever added to Pending
	Writes int64 `json:"writes,omitempty"`
	// number of erased positions in the valid generation, by division
	Erased map[string]int64 `json:"erased,omitempty"`
	// generations that a process is writing or removing, or left when it died
	Pending []pendingGeneration `json:"pending,omitempty"`

	body []byte
}

const parts = "several regions" // no name of a region has a space

// A pendingGeneration is not valid, but may have rows. If Since is zero, another generation
// has replaced it, and any process may remove it. Later generations may use its pages: see
// collect.
type pendingGeneration struct {
	Generation string    `json:"generation"`
	Since      time.Time `json:"since"`
}

func (p *pendingGeneration) isReplaced() bool { return p.Since.IsZero() }

var errEnded = errors.New("final standings: the season was deleted while its final standings were written")

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

func (x *seal) record(inc *storage.Incarnation) leaderboard.SeasonRecord {
	r := leaderboard.SeasonRecord{SeasonKey: inc.SeasonKey, SealedAt: x.SealedAt, Amendments: x.Amendments, Rules: inc.Rules}
	if x.sealed() {
		r.Rules = x.Rules
	}
	return r
}

func (p *season) readSeal(ctx context.Context) (seal, error) {
	var x seal
	var err error
	if x.body, err = p.b.Register(ctx, sealList(p.inc.ID), ""); err == nil && x.body != nil {
		if err = json.Unmarshal(x.body, &x); err != nil {
			err = fmt.Errorf("final standings: seal: %w: %w", leaderboard.ErrFormat, err)
		}
	}
	return x, err
}

func (p *season) swapSeal(ctx context.Context, oldSeal, newSeal *seal) (ok bool, err error) {
	if newSeal.body, err = json.Marshal(newSeal); err != nil {
		return false, fmt.Errorf("final standings: seal: %w", err)
	}
	return p.b.Swap(ctx, sealList(p.inc.ID), oldSeal.body, storage.Register{Value: newSeal.body})
}

// changeSeal applies change to the stored seal. If another process changes the seal
// meanwhile, changeSeal starts again. If change returns false, changeSeal writes nothing
// and returns ok as false.
func (p *season) changeSeal(ctx context.Context, change func(*seal) bool) (oldSeal, newSeal seal, ok bool, err error) {
	for {
		if oldSeal, err = p.readSeal(ctx); err != nil {
			return oldSeal, newSeal, false, err
		}
		newSeal = oldSeal
		newSeal.Amendments, newSeal.Pending = slices.Clone(oldSeal.Amendments), slices.Clone(oldSeal.Pending)
		newSeal.Erased, newSeal.Ladders = maps.Clone(oldSeal.Erased), maps.Clone(oldSeal.Ladders)
		if !change(&newSeal) {
			return oldSeal, newSeal, false, nil
		}
		if ok, err = p.swapSeal(ctx, &oldSeal, &newSeal); ok || err != nil {
			return oldSeal, newSeal, ok, err
		}
	}
}

// Seal writes the final standings of a season, unless the season is sealed.
func (f *Store) Seal(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID, at time.Time) (leaderboard.SeasonRecord, error) {
	return f.writeFinal(ctx, b, id, leaderboard.Amendment{At: at}, false)
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
func (f *Store) writeFinal(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID, a leaderboard.Amendment, amend bool) (leaderboard.SeasonRecord, error) {
	a.At = leaderboard.Truncate(a.At)
	for {
		inc, err := f.b.OpenIncarnation(ctx, b, id)
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		p := season{f, inc}
		oldSeal, w, err := p.newPageWriter(ctx, func(x *seal) bool { return amend || !x.sealed() })
		live := false
		if err == nil {
			live, err = p.isOpen(ctx)
		}
		if err == nil && live && w == nil {
			return oldSeal.record(&inc), nil
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
			err = errors.Join(err, p.removePending(ctx, w.generation))
		}
		if err != nil {
			return leaderboard.SeasonRecord{}, err
		}
		record, ok, err := w.validate(ctx, &oldSeal, a)
		if ok || err != nil {
			return record, err
		}
		if err := p.removePending(ctx, w.generation); err != nil {
			return leaderboard.SeasonRecord{}, err
		}
	}
}

// validate makes the generation of w valid, unless another generation has become valid or
// Overtaken has grown since oldSeal was read. Then validate removes generations that were
// replaced or have reached pendingTimeout.
func (w *pageWriter) validate(ctx context.Context, oldSeal *seal, a leaderboard.Amendment) (leaderboard.SeasonRecord, bool, error) {
	_, sealed, ok, err := w.changeSeal(ctx, func(x *seal) bool {
		isOwn := func(p pendingGeneration) bool { return p.Generation == w.generation }
		if x.Generation != oldSeal.Generation || x.Overtaken != oldSeal.Overtaken || !slices.ContainsFunc(x.Pending, isOwn) {
			return false
		}
		x.Pending = slices.DeleteFunc(x.Pending, isOwn)
		if !x.sealed() {
			x.SealedAt, x.Rules = a.At, w.inc.Rules
		} else {
			x.Pending = append(x.Pending, pendingGeneration{Generation: x.Generation})
			x.addAmendment(&a)
		}
		x.Generation, x.Base, x.Erased, x.Ladders, x.Writer = w.generation, w.generation, nil, nil, w.region()
		return true
	})
	if err != nil || !ok {
		return leaderboard.SeasonRecord{}, false, err // after an error, the generation may be valid and must not be removed
	}
	return sealed.record(&w.inc), true, w.removeOld(ctx, &sealed)
}

func (x *seal) addAmendment(a *leaderboard.Amendment) {
	if !slices.ContainsFunc(x.Amendments, func(o leaderboard.Amendment) bool { return o.At.Equal(a.At) && o.Reason == a.Reason }) {
		x.Amendments = append(x.Amendments, *a)
	}
}

func (p *season) removeOld(ctx context.Context, x *seal) error {
	for _, g := range x.Pending {
		if g.isReplaced() || p.b.Environment().Now().Sub(g.Since) <= pendingTimeout {
			continue
		}
		if err := p.removePending(ctx, g.Generation); err != nil {
			return err
		}
	}
	if !x.hasReplaced() {
		return nil
	}
	return p.collect(ctx)
}

// Amend replaces the final standings of a sealed season. If users are given, it usually
// writes only the pages that change: see [season.amend].
func (f *Store) Amend(ctx context.Context, b *leaderboard.Board, id leaderboard.SeasonID, a leaderboard.Amendment, users []leaderboard.UserID) (leaderboard.SeasonRecord, error) {
	seasonKey := leaderboard.SeasonKey{Board: b.ID, Season: id}
	inc, err := f.b.Incarnation(ctx, seasonKey, false) // another process may have sealed a later incarnation
	if err != nil || !inc.Of(b) {
		return leaderboard.SeasonRecord{}, cmp.Or(err, errNotSealed(seasonKey))
	}
	p := season{f, inc}
	oldSeal, err := p.overtake(ctx)
	if err != nil || !oldSeal.sealed() {
		return leaderboard.SeasonRecord{}, cmp.Or(err, errNotSealed(seasonKey))
	}
	if len(users) > 0 {
		a.At = leaderboard.Truncate(a.At)
		x, done, err := p.amend(ctx, withoutRepeats(users), &a)
		if errors.Is(err, errEnded) {
			err = errNotSealed(seasonKey)
		}
		if done || err != nil {
			return x.record(&inc), err
		}
	}
	record, err := f.writeFinal(ctx, b, id, a, true)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		err = errNotSealed(seasonKey)
	}
	return record, err
}

func (p *season) removePending(ctx context.Context, generation string) error {
	if err := p.removeOwn(ctx, generation, 0, nil); err != nil {
		return err
	}
	_, _, _, err := p.changeSeal(ctx, func(x *seal) bool {
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
		oldSeal, err := w.readSeal(ctx)
		if err != nil || !slices.ContainsFunc(oldSeal.Pending, isOwn) {
			return err
		}
		newSeal := oldSeal
		newSeal.Pending = slices.DeleteFunc(slices.Clone(oldSeal.Pending), isOwn)
		var ok bool
		if newSeal.sealed() || len(newSeal.Pending) > 0 {
			ok, err = w.swapSeal(ctx, &oldSeal, &newSeal)
		} else {
			ok, err = w.dropSeal(ctx, &oldSeal)
		}
		if ok || err != nil {
			return err
		}
	}
}

func (p *season) dropSeal(ctx context.Context, stored *seal) (bool, error) {
	return p.b.Swap(ctx, sealList(p.inc.ID), stored.body, storage.Register{})
}

// Season returns the record of a season.
func (f *Store) Season(ctx context.Context, key leaderboard.SeasonKey) (leaderboard.SeasonRecord, error) {
	inc, err := f.b.Incarnation(ctx, key, false)
	if err != nil || !inc.Open {
		return leaderboard.SeasonRecord{SeasonKey: key}, err
	}
	x, err := (&season{f, inc}).readSeal(ctx)
	return x.record(&inc), err
}

// Seasons returns the seasons of a board with results or final standings.
func (f *Store) Seasons(ctx context.Context, id leaderboard.BoardID) ([]leaderboard.SeasonRecord, error) {
	all, err := f.b.Incarnations(ctx, id)
	if err != nil {
		return nil, err
	}
	records := make([]leaderboard.SeasonRecord, len(all))
	if err := f.forEach(ctx, len(all), func(ctx context.Context, i int) error {
		x, err := (&season{f, all[i]}).readSeal(ctx)
		if err != nil {
			return err
		}
		nonEmpty := x.sealed()
		if !nonEmpty {
			nonEmpty, err = f.b.HasUsers(ctx, all[i].SeasonKey)
		}
		if nonEmpty {
			records[i] = x.record(&all[i])
		}
		return err
	}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(r leaderboard.SeasonRecord) bool { return r.Season == "" }), nil
}

// SeasonIDs returns the seasons of a board with an open incarnation.
func (f *Store) SeasonIDs(ctx context.Context, id leaderboard.BoardID) ([]leaderboard.SeasonID, error) {
	all, err := f.b.Incarnations(ctx, id)
	var ids []leaderboard.SeasonID
	for i := range all {
		ids = append(ids, all[i].Season)
	}
	return ids, err
}

func withoutRepeats(users []leaderboard.UserID) []leaderboard.UserID {
	return slices.Compact(slices.Sorted(slices.Values(users)))
}

func errNotSealed(s leaderboard.SeasonKey) error {
	return fmt.Errorf("final standings: season %q of board %q: %w", s.Season, s.Board, leaderboard.ErrNotSealed)
}
