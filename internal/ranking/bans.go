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

// SetBan bans a user, or lifts a ban, on one board or on every board, also in past and sealed
// seasons. It sets At and Revision of ban, and returns the stored ban. A ban only hides the
// user: results still count. Errors: [leaderboard.ErrBoardNotFound] if ban.Banned is true and
// the board does not exist; a [leaderboard.FieldError].
func (a *Admin) SetBan(ctx context.Context, ban leaderboard.Ban) (leaderboard.Ban, error) {
	if err := a.completeBan(ctx, &ban); err != nil {
		return leaderboard.Ban{}, err
	}
	return runToEnd(ctx, a.tasks, func(ctx context.Context) (leaderboard.Ban, error) {
		if err := a.setBan(ctx, ban, banAmendmentReason(ban.Banned)); err != nil {
			return leaderboard.Ban{}, err
		}
		return a.storedBan(ctx, ban.Key())
	})
}

func (a *Admin) completeBan(ctx context.Context, ban *leaderboard.Ban) error {
	ban.At, ban.Revision = leaderboard.Truncate(a.now()), 0
	return a.checkBan(ctx, ban)
}

func banAmendmentReason(banned bool) string {
	if banned {
		return "ban a user"
	}
	return "unban a user"
}

// CheckBan checks a ban as SetBan does, but changes nothing. It returns the stored ban.
func (a *Admin) CheckBan(ctx context.Context, ban *leaderboard.Ban) (leaderboard.Ban, error) {
	if err := a.checkBan(ctx, ban); err != nil {
		return leaderboard.Ban{}, err
	}
	return a.storedBan(ctx, ban.Key())
}

// StoredBan returns the stored state of a ban. Without a state, only the user and the board are set.
func (a *Admin) StoredBan(ctx context.Context, key leaderboard.BanKey) (leaderboard.Ban, error) {
	return a.storedBan(ctx, key)
}

func (a *Admin) checkBan(ctx context.Context, ban *leaderboard.Ban) error {
	if err := errors.Join(ban.User.Validate(), CheckReason(ban.Reason)); err != nil {
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

// CheckReason returns a [leaderboard.FieldError] if a reason is too long.
func CheckReason(reason string) error {
	if len(reason) > maxReasonBytes {
		return &leaderboard.FieldError{Field: "reason", Problem: fmt.Sprintf("must be at most %d bytes, not %d", maxReasonBytes, len(reason))}
	}
	return nil
}

func (s *shared) storedBan(ctx context.Context, key leaderboard.BanKey) (leaderboard.Ban, error) {
	bans, err := s.store.UserBans(ctx, key.User)
	for _, b := range bans {
		if b.Board == key.Board {
			return b, err
		}
	}
	return leaderboard.Ban{User: key.User, Board: key.Board}, err
}

// setBan also updates the ranks of entries that it does not change: an earlier process may
// have changed these entries, and died before it updated the ranks.
func (a *Admin) setBan(ctx context.Context, ban leaderboard.Ban, reason string) error {
	changes, err := a.store.SetBan(ctx, ban)
	if err != nil {
		return err
	}
	keys, err := a.store.UserSeasons(ctx, ban.User)
	if err != nil {
		return err
	}
	var changedEntries, otherEntries []leaderboard.Entry
	for i := range changes {
		if c := &changes[i]; c.Before.Hidden == c.After.Hidden {
			otherEntries = append(otherEntries, c.After) // for example, another ban still hides the entry
		} else {
			changedEntries = append(changedEntries, c.After)
		}
	}
	for _, key := range keys {
		if slices.ContainsFunc(changes, func(c leaderboard.Change) bool { return c.After.SeasonKey == key }) {
			continue
		}
		if b, err := a.concernedBoard(ctx, &ban, key.Board); err != nil {
			return err
		} else if b == nil {
			continue
		}
		e, err := a.store.Entry(ctx, key, ban.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		otherEntries = append(otherEntries, e)
	}
	if ban.Banned && !ban.Until.IsZero() {
		a.planLift()
	}
	if err := a.ranks.update(fromLog(ctx), changedEntries, otherEntries, reason); err != nil {
		return err
	}
	return a.tryAmendments(ctx, entrySeasons(changedEntries, otherEntries))
}

// concernedBoard returns nil if the ban does not concern the board, or the board was deleted.
func (s *shared) concernedBoard(ctx context.Context, ban *leaderboard.Ban, id leaderboard.BoardID) (*leaderboard.Board, error) {
	b, err := s.board(ctx, id)
	if errors.Is(err, leaderboard.ErrBoardNotFound) {
		return nil, nil
	}
	if err != nil || !ban.Concerns(b) {
		return nil, err
	}
	return b, nil
}

// CheckImport returns an error if one of the bans is not valid.
func (a *Admin) CheckImport(bans []leaderboard.Ban) error {
	for i := range bans {
		b := &bans[i]
		err := errors.Join(b.User.Validate(), CheckReason(b.Reason))
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

// ImportBans merges exported bans into the stored bans. A ban that is older than the stored ban
// has no effect.
func (a *Admin) ImportBans(ctx context.Context, bans []leaderboard.Ban) error {
	if err := a.CheckImport(bans); err != nil {
		return err
	}
	for _, b := range bans {
		if b.Banned && !b.InForce(a.now()) {
			setAt := b.At
			b = lifted(&b)
			b.At = setAt // lifted moves At to the end; an erasure before At would spare the ban
		}
		if _, err := runToEnd(ctx, a.tasks, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, a.setBan(ctx, b, banAmendmentReason(b.Banned))
		}); err != nil {
			return err
		}
	}
	return nil
}

// lifted returns the state of ban b after its end. The state depends on b only, so every
// process writes the same state. Until stays set until the ranks include the user again: see
// liftEnded.
func lifted(b *leaderboard.Ban) leaderboard.Ban {
	state := leaderboard.Ban{User: b.User, Board: b.Board, Revision: b.Revision + 1, Reason: "the ban ended", At: b.Until, Until: b.Until}
	if state.At.Before(b.At) {
		state.At = b.At
	}
	return state
}

// liftEnded lifts a ban that has ended. Its last step clears Until: if the process dies before
// this step, [leaderboard.UserStore].BansEnding yields the ban again, and the next call
// repeats all steps.
func (a *Admin) liftEnded(ctx context.Context, b leaderboard.Ban) error {
	if b.Banned {
		b = lifted(&b)
	}
	_, err := runToEnd(ctx, a.tasks, func(ctx context.Context) (struct{}, error) {
		if err := a.store.AppendAct(ctx, liftAct(&b)); err != nil {
			return struct{}{}, err
		}
		if err := a.setBan(ctx, b, banAmendmentReason(false)); err != nil {
			return struct{}{}, err
		}
		b.Revision, b.Until = b.Revision+1, time.Time{}
		_, err := a.store.SetBan(ctx, b)
		return struct{}{}, err
	})
	return err
}

// The act depends on b only, so the audit log keeps one act if several processes lift the ban.
func liftAct(b *leaderboard.Ban) leaderboard.Act {
	sum := sha256.Sum256([]byte(string(b.User) + "\n" + string(b.Board)))
	return leaderboard.Act{
		ID: fmt.Sprintf("end-%d-%x", b.Revision, sum[:8]), At: laterOf(b.At, b.Until), Actor: leaderboard.SystemActor, Action: "unban", Board: b.Board,
		ActDetail: leaderboard.ActDetail{User: b.User, Reason: b.Reason},
	}
}

// liftEndedBans skips users with damaged data, and returns their errors. nextEnd is the next
// end of a ban, or the zero time if no other ban ends before until.
func (a *Admin) liftEndedBans(ctx context.Context, until time.Time) (nextEnd time.Time, err error) {
	var errs []error
	for b, err := range a.store.BansEnding(ctx, until) {
		if err == nil && a.now().Before(b.Until) {
			nextEnd = b.Until
			break
		}
		if err == nil {
			if err = a.liftEnded(ctx, b); err == nil {
				a.log.InfoContext(ctx, "ban ended", "board", b.Board, "until", b.Until)
				continue
			}
			err = fmt.Errorf("ranking: ban of user %q: %w", b.User, err)
		}
		errs = append(errs, err)
		if !damaged(err) {
			break
		}
	}
	return nextEnd, errors.Join(errs...)
}

func (s *shared) planLift() {
	select {
	case s.newEnd <- struct{}{}:
	default:
	}
}

// liftBans lifts each ban at its end. It returns at the next tick, or when ctx is done.
func (a *Admin) liftBans(ctx context.Context, tick <-chan time.Time, interval time.Duration) {
	for {
		nextEnd, err := a.liftEndedBans(ctx, a.now().Add(interval))
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "ended bans not lifted", "err", err)
		}
		var end <-chan time.Time
		if !nextEnd.IsZero() {
			end = time.After(nextEnd.Sub(a.now()))
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
	Board leaderboard.BoardID // on this board or on every board
	// User, Reason and Actor are parts of the ban's fields. Case is ignored.
	User          string
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

// Bans returns a page of bans in the store's order.
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
	contains := func(text, part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	return (q.Lifted || b.InForce(now)) && (q.Board == "" || b.Board == "" || b.Board == q.Board) &&
		contains(string(b.User), q.User) && contains(b.Reason, q.Reason) && contains(b.Actor, q.Actor)
}

// UserBans returns the bans of a user, including lifted bans.
func (r *Reader) UserBans(ctx context.Context, user leaderboard.UserID) ([]leaderboard.Ban, error) {
	if err := user.Validate(); err != nil {
		return nil, err
	}
	return r.store.UserBans(ctx, user)
}

// ExportBans calls send for each ban on a board, and for each ban on every board whose user
// has results on this board. Both include lifted bans.
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
