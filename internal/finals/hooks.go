package finals

import (
	"context"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// Hooks are what a backend calls: a [storage.Finals], and Remove.
type Hooks struct{ *Store }

var _ storage.Finals = Hooks{}

// Remove removes the final standings of an ended incarnation. The places (see directory.go) remain for RemoveUsers. Remove first makes
// the valid generation invalid: see open.go. A concurrent Seal or Amend removes its own rows: see
// checkOpen.
func (h Hooks) Remove(ctx context.Context, i *storage.Incarnation) error {
	p := season{h.Store, *i}
	for {
		_, x, _, err := p.changeSeal(ctx, func(x *seal) bool {
			if !x.sealed() {
				return false
			}
			*x = seal{Overtaken: x.Overtaken, Writes: x.Writes, Pending: append(x.Pending, pendingGeneration{Generation: x.Generation})}
			return true
		})
		if err != nil || x.body == nil {
			return err
		}
		if err := p.removeAll(ctx, &x); err != nil {
			return err
		}
		if ok, err := p.dropSeal(ctx, &x); ok || err != nil {
			return err
		}
	}
}

// RemoveUsers implements [storage.Finals].
func (h Hooks) RemoveUsers(ctx context.Context, i *storage.Incarnation, users []leaderboard.UserID) error {
	lists := make([]string, len(users))
	for j, user := range users {
		lists[j] = placeList(i.ID, user)
	}
	return h.b.RemoveRows(ctx, storage.Last, lists...)
}

// Erase implements [storage.Finals].
func (h Hooks) Erase(ctx context.Context, i *storage.Incarnation, user leaderboard.UserID) error {
	p := season{h.Store, *i}
	_, updated, _, err := p.changeSeal(ctx, func(x *seal) bool { x.Overtaken++; return len(x.Pending) > 0 })
	if err != nil {
		return err
	}
	return p.erase(ctx, &updated, user)
}

// SealedRules implements [storage.Finals].
func (h Hooks) SealedRules(ctx context.Context, i *storage.Incarnation) (rules int, sealed bool, err error) {
	x, err := (&season{h.Store, *i}).readSeal(ctx)
	return x.Rules, x.sealed(), err
}

// Overtake implements [storage.Finals].
func (h Hooks) Overtake(ctx context.Context, i *storage.Incarnation) (rules int, sealed bool, err error) {
	x, err := (&season{h.Store, *i}).overtake(ctx)
	return x.Rules, x.sealed(), err
}
