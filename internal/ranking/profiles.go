package ranking

import (
	"context"
	"fmt"

	"github.com/open-leaderboard/leaderboard"
)

// MaxProfiles is the largest number of profiles of one call.
const MaxProfiles = 1000

// Include selects what the lines of an answer have beside the standing.
type Include struct {
	Entry    bool
	Profiles bool
}

// addIncluded sets the entries and the profiles of lines.
func (r *Reader) addIncluded(ctx context.Context, include Include, key leaderboard.SeasonKey, lines []Line) error {
	if include.Entry {
		if err := r.addEntries(ctx, key, lines); err != nil {
			return err
		}
	}
	if !include.Profiles || len(lines) == 0 {
		return nil
	}
	users := make([]leaderboard.UserID, len(lines))
	for i := range lines {
		users[i] = lines[i].User
	}
	profiles, err := r.store.CachedProfiles(ctx, users)
	for i := range profiles {
		if profiles[i].Exists() {
			lines[i].Profile = &profiles[i]
		}
	}
	return err
}

// Profile returns the stored profile of a user. Errors: [leaderboard.ErrProfileNotFound].
func (r *Reader) Profile(ctx context.Context, user leaderboard.UserID) (leaderboard.Profile, error) {
	if err := user.Validate(); err != nil {
		return leaderboard.Profile{}, err
	}
	return r.store.Profile(ctx, user)
}

// Profiles returns the profiles of users, as [leaderboard.ProfileStore].CachedProfiles does.
func (r *Reader) Profiles(ctx context.Context, users []leaderboard.UserID) ([]leaderboard.Profile, error) {
	return r.store.CachedProfiles(ctx, users)
}

// CheckProfile returns all faults of a profile, each a [leaderboard.FieldError].
func (a *Admin) CheckProfile(p *leaderboard.Profile) error { return p.Check(a.now()) }

// PutProfiles stores profiles of different users, as [leaderboard.ProfileStore].PutProfiles does. The
// profiles must be valid.
func (a *Admin) PutProfiles(ctx context.Context, profiles []leaderboard.Profile) ([]leaderboard.ProfileChange, error) {
	if len(profiles) == 0 {
		return nil, nil
	}
	updatedAt := leaderboard.Truncate(a.now())
	for i := range profiles {
		profiles[i].UpdatedAt = updatedAt
	}
	return runToEnd(ctx, a.tasks, func(ctx context.Context) ([]leaderboard.ProfileChange, error) {
		return a.store.PutProfiles(ctx, profiles)
	})
}

// ExportProfiles calls send for the profile of each user with results in the selected seasons. A user
// with results in several seasons may be repeated.
func (a *Admin) ExportProfiles(ctx context.Context, sel Selection, send func(*leaderboard.Profile) error) error {
	return sel.eachSeason(ctx, a.store, func(_ *leaderboard.Board, key leaderboard.SeasonKey) error {
		return eachChunk(a.store.Users(ctx, key), MaxProfiles, func(users []leaderboard.UserID) error {
			profiles, err := a.store.CachedProfiles(ctx, users)
			if err != nil {
				return fmt.Errorf("ranking: export profiles: %w", err)
			}
			for i := range profiles {
				if !profiles[i].Exists() {
					continue
				}
				if err := send(&profiles[i]); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
