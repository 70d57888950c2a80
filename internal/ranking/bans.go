package ranking

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const maxReasonBytes = 256

// SetBan bans a user or lifts the ban, on the ban's board or on every board, and returns
// the ban that then stands. It sets the ban's At and Revision. A banned user is hidden in
// past and sealed seasons too. Results of the user are still stored, and count when the
// ban is lifted. Errors: [leaderboard.ErrBoardNotFound] if a ban names an unknown board.
func (a *Admin) SetBan(ctx context.Context, ban leaderboard.Ban) (leaderboard.Ban, error) {
	ban.At, ban.Revision = leaderboard.Truncate(a.now()), 0
	if err := a.checkBan(ctx, &ban); err != nil {
		return leaderboard.Ban{}, err
	}
	return runToEnd(ctx, a.tasks, func(ctx context.Context) (leaderboard.Ban, error) {
		if err := a.setBan(ctx, ban, banAmendment(ban.Banned)); err != nil {
			return leaderboard.Ban{}, err
		}
		return a.standingBan(ctx, ban.Key())
	})
}

// banAmendment returns why final standings are amended.
func banAmendment(banned bool) string {
	if banned {
		return "ban a user"
	}
	return "unban a user"
}

// CheckBan returns the error that SetBan would return for a ban that breaks a limit, and
// otherwise the ban that stands.
func (a *Admin) CheckBan(ctx context.Context, ban *leaderboard.Ban) (leaderboard.Ban, error) {
	if err := a.checkBan(ctx, ban); err != nil {
		return leaderboard.Ban{}, err
	}
	return a.standingBan(ctx, ban.Key())
}

func (a *Admin) checkBan(ctx context.Context, ban *leaderboard.Ban) error {
	if err := errors.Join(ban.User.Validate(), checkReason(ban.Reason)); err != nil {
		return err
	}
	if !ban.Banned {
		ban.Until = time.Time{}
		return nil
	}
	if ban.Board != "" {
		if _, err := a.board(ctx, ban.Board); err != nil {
			return err
		}
	}
	if !ban.Until.IsZero() && !ban.Until.After(a.now()) {
		return &leaderboard.FieldError{Field: "until", Problem: "must be in the future, not " + ban.Until.UTC().Format(time.RFC3339)}
	}
	return nil
}

func checkReason(reason string) error {
	if len(reason) > maxReasonBytes {
		return &leaderboard.FieldError{Field: "reason", Problem: fmt.Sprintf("must be at most %d bytes, not %d", maxReasonBytes, len(reason))}
	}
	return nil
}

func (s *shared) standingBan(ctx context.Context, key leaderboard.BanKey) (leaderboard.Ban, error) {
	bans, err := s.store.UserBans(ctx, key.User)
	for _, b := range bans {
		if b.Board == key.Board {
			return b, err
		}
	}
	return leaderboard.Ban{User: key.User, Board: key.Board}, err
}

// setBan stores the state of a ban and updates the ranks of the user's entries. It also
// updates the ranks of entries that the ban does not change: an earlier process may have
// changed them and died before it updated the ranks.
func (a *Admin) setBan(ctx context.Context, ban leaderboard.Ban, why string) error {
	changes, err := a.store.SetBan(ctx, ban)
	if err != nil {
		return err
	}
	keys, err := a.store.UserSeasons(ctx, ban.User)
	if err != nil {
		return err
	}
	var changed, others []leaderboard.Entry
	for i := range changes {
		if c := &changes[i]; c.Before.Hidden == c.After.Hidden {
			others = append(others, c.After) // another ban hides the user there
		} else {
			changed = append(changed, c.After)
		}
	}
	for _, key := range keys {
		if ban.Board != "" && key.Board != ban.Board ||
			slices.ContainsFunc(changes, func(c leaderboard.Change) bool { return c.After.SeasonKey == key }) {
			continue
		}
		e, err := a.store.Entry(ctx, key, ban.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		others = append(others, e)
	}
	if ban.Banned && !ban.Until.IsZero() {
		a.planLift()
	}
	return a.ranks.update(ctx, changed, others, why)
}

// CheckImport returns an error if one of the bans breaks a limit.
func (a *Admin) CheckImport(bans []leaderboard.Ban) error {
	for i := range bans {
		b := &bans[i]
		err := errors.Join(b.User.Validate(), checkReason(b.Reason))
		if err == nil && b.Board != "" {
			err = b.Board.Validate()
		}
		if err == nil && (b.Revision < 1 || b.Revision > int64(leaderboard.MaxScore)) {
			err = &leaderboard.FieldError{Field: "revision", Problem: fmt.Sprintf("%d is not in the range 1 to %d", b.Revision, int64(leaderboard.MaxScore))}
		}
		if err != nil {
			return fmt.Errorf("bans[%d]: %w", i, err)
		}
	}
	return nil
}

// ImportBans merges the states of bans that an export wrote. States that are older than
// the stored ones have no effect, so ImportBans may be repeated.
func (a *Admin) ImportBans(ctx context.Context, bans []leaderboard.Ban) error {
	if err := a.CheckImport(bans); err != nil {
		return err
	}
	for _, b := range bans {
		if b.Banned && !b.InForce(a.now()) {
			b = lifted(&b)
		}
		if _, err := runToEnd(ctx, a.tasks, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, a.setBan(ctx, b, banAmendment(b.Banned))
		}); err != nil {
			return err
		}
	}
	return nil
}

// lifted returns the state in which b's end leaves it. It depends on b alone, so every
// process lifts a ban in the same way. Its Until stays until the ranks have the user
// again: see liftEnded.
func lifted(b *leaderboard.Ban) leaderboard.Ban {
	next := leaderboard.Ban{User: b.User, Board: b.Board, Revision: b.Revision + 1, Reason: "the ban ended", At: b.Until, Until: b.Until}
	if next.At.Before(b.At) {
		next.At = b.At
	}
	return next
}

// liftEnded lifts a ban whose end has passed. If the process dies after the store has
// lifted the ban, and before the ranks have the user again, the lifted ban still has its
// Until. So [leaderboard.UserStore].BansEnding yields it, and liftEnded continues.
func (a *Admin) liftEnded(ctx context.Context, b leaderboard.Ban) error {
	if b.Banned {
		b = lifted(&b)
	}
	_, err := runToEnd(ctx, a.tasks, func(ctx context.Context) (struct{}, error) {
		if err := a.store.AppendAct(ctx, liftAct(&b)); err != nil {
			return struct{}{}, err
		}
		if err := a.setBan(ctx, b, banAmendment(false)); err != nil {
			return struct{}{}, err
		}
		b.Revision, b.Until = b.Revision+1, time.Time{}
		_, err := a.store.SetBan(ctx, b)
		return struct{}{}, err
	})
	return err
}

// liftAct returns the record of a lifted ban. It depends on the ban alone, so the log has
// it once, however many processes lift the ban.
func liftAct(b *leaderboard.Ban) leaderboard.Act {
	sum := sha256.Sum256([]byte(string(b.User) + "\n" + string(b.Board)))
	return leaderboard.Act{
		ID: fmt.Sprintf("end-%d-%x", b.Revision, sum[:8]), At: b.At, Action: "unban", Board: b.Board,
		ActDetail: leaderboard.ActDetail{User: b.User, Reason: b.Reason},
	}
}

// LiftEndedBans lifts each ban whose end has passed. It returns the earliest end up to
// the given time that has not passed, or the zero time.
func (a *Admin) LiftEndedBans(ctx context.Context, until time.Time) (next time.Time, err error) {
	for b, err := range a.store.BansEnding(ctx, until) {
		if err != nil {
			return time.Time{}, err
		}
		if a.now().Before(b.Until) {
			return b.Until, nil
		}
		if err := a.liftEnded(ctx, b); err != nil {
			return time.Time{}, err
		}
		a.log.InfoContext(ctx, "ban ended", "board", b.Board, "until", b.Until)
	}
	return time.Time{}, nil
}

// planLift makes liftBans read the ends of bans again.
func (s *shared) planLift() {
	select {
	case s.newEnd <- struct{}{}:
	default: // liftBans has not read the previous signal yet
	}
}

// liftBans lifts each ban at its end, until tick or ctx is done. interval is the time
// between two ticks. If the store does not answer, the next call lifts the bans.
func (a *Admin) liftBans(ctx context.Context, tick <-chan time.Time, interval time.Duration) {
	for {
		next, err := a.LiftEndedBans(ctx, a.now().Add(interval))
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "ended bans not lifted", "err", err)
		}
		var end <-chan time.Time
		if !next.IsZero() {
			timer := time.NewTimer(next.Sub(a.now()))
			defer timer.Stop()
			end = timer.C
		}
		select {
		case <-end:
		case <-a.newEnd:
		case <-tick:
			return
		case <-ctx.Done():
			return
		}
	}
}

// BanQuery selects bans. Empty fields select all.
type BanQuery struct {
	Board leaderboard.BoardID // only bans on this board and those on every board
	User  string              // part of the user id, in any case
	// Reason and Actor are parts of the fields, in any case.
	Reason, Actor string
	// Lifted includes bans that were lifted or have ended.
	Lifted bool
	After  leaderboard.BanKey // the last ban of the previous page
	Limit  int                // 1 to MaxBans
}

// MaxBans is the largest page of bans.
const MaxBans = 1000

// BanPage is a page of bans.
type BanPage struct {
	Bans []leaderboard.Ban
	Next leaderboard.BanKey // the After of the next page; empty on the last page
}

// Bans returns a page of bans in the store's order. It reads all bans up to the end of
// the page.
func (a *Admin) Bans(ctx context.Context, q BanQuery) (BanPage, error) {
	if q.Limit < 1 || q.Limit > MaxBans {
		return BanPage{}, &leaderboard.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d, not %d", MaxBans, q.Limit)}
	}
	var page BanPage
	for b, err := range a.store.Bans(ctx, q.After) {
		if err != nil {
			return BanPage{}, err
		}
		if !q.matches(&b, a.now()) {
			continue
		}
		if len(page.Bans) == q.Limit {
			page.Next = page.Bans[q.Limit-1].Key()
			break
		}
		page.Bans = append(page.Bans, b)
	}
	return page, nil
}

func (q *BanQuery) matches(b *leaderboard.Ban, now time.Time) bool {
	has := func(text, part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	return (q.Lifted || b.InForce(now)) && (q.Board == "" || b.Board == "" || b.Board == q.Board) &&
		has(string(b.User), q.User) && has(b.Reason, q.Reason) && has(b.Actor, q.Actor)
}

// UserBans returns the bans of a user, lifted ones too.
func (r *Reader) UserBans(ctx context.Context, user leaderboard.UserID) ([]leaderboard.Ban, error) {
	if err := user.Validate(); err != nil {
		return nil, err
	}
	return r.store.UserBans(ctx, user)
}

// ExportBans calls send with the bans that concern a board: those on the board, and those
// on every board of users who have results on the board.
func (a *Admin) ExportBans(ctx context.Context, board leaderboard.BoardID, send func(leaderboard.Ban) error) error {
	for b, err := range a.store.Bans(ctx, leaderboard.BanKey{}) {
		if err != nil {
			return err
		}
		concerns := b.Board == board
		if b.Board == "" {
			keys, err := a.store.UserSeasons(ctx, b.User)
			if err != nil {
				return err
			}
			concerns = slices.ContainsFunc(keys, func(k leaderboard.SeasonKey) bool { return k.Board == board })
		}
		if concerns {
			if err := send(b); err != nil {
				return err
			}
		}
	}
	return nil
}
