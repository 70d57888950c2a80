package ranking

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

const maxEffects = 100

// BanPreview is what SetBan would change.
type BanPreview struct {
	Ban leaderboard.Ban
	// Entries are the user's entries that would appear or disappear. Truncated means that
	// there are more than maxEffects.
	Entries   []EntryEffect
	Truncated bool
	// Seasons is the number of seasons of each board in which the user would appear or disappear.
	Seasons map[leaderboard.BoardID]int
	// Degraded means that at least one rank is unknown.
	Degraded bool
	AsOf     time.Time // when the computation began
}

// EntryEffect is an entry of an overall ladder that would appear or disappear. A rank is 0 if the
// user is hidden or the rank is unknown.
type EntryEffect struct {
	leaderboard.SeasonKey
	Score                 leaderboard.Score
	RankBefore, RankAfter int64 // competition ranks
}

// PreviewBan returns what SetBan would change, and changes nothing. Errors: those of SetBan.
func (a *Admin) PreviewBan(ctx context.Context, ban leaderboard.Ban) (BanPreview, error) {
	if err := a.completeBan(ctx, &ban); err != nil {
		return BanPreview{}, err
	}
	asOf := leaderboard.Truncate(a.now())
	bans, err := a.store.UserBans(ctx, ban.User)
	if err != nil {
		return BanPreview{}, err
	}
	var current *leaderboard.Ban
	if i := slices.IndexFunc(bans, func(b leaderboard.Ban) bool { return b.Board == ban.Board }); i >= 0 {
		stored := bans[i]
		current, bans = &stored, slices.Delete(bans, i, i+1)
	}
	p := BanPreview{AsOf: asOf, Seasons: map[leaderboard.BoardID]int{}}
	p.Ban, _ = leaderboard.MergeBan(current, ban, time.Time{})
	bans = append(bans, p.Ban)
	keys, err := a.store.UserSeasons(ctx, ban.User)
	if err != nil {
		return BanPreview{}, err
	}
	for _, key := range keys {
		b, err := a.concernedBoard(ctx, &ban, key.Board)
		if err != nil {
			return BanPreview{}, err
		}
		if b == nil {
			continue
		}
		e, err := a.store.Entry(ctx, key, ban.User)
		if errors.Is(err, leaderboard.ErrEntryNotFound) {
			continue
		}
		if err != nil {
			return BanPreview{}, err
		}
		hidden := slices.ContainsFunc(bans, func(ban leaderboard.Ban) bool { return ban.Hides(b) })
		if e.Key == "" || e.Hidden == hidden {
			continue
		}
		p.Seasons[key.Board]++
		if p.Truncated = len(p.Entries) == maxEffects; p.Truncated {
			continue
		}
		if err := a.addEntryEffect(ctx, &p, &e); err != nil {
			return BanPreview{}, err
		}
	}
	return p, nil
}

// The competition rank of e depends on other entries only. So addEntryEffect can read it even if
// the ladder does not contain e.
func (a *Admin) addEntryEffect(ctx context.Context, p *BanPreview, e *leaderboard.Entry) error {
	b, err := a.board(ctx, e.Board)
	if err != nil {
		return err
	}
	effect := EntryEffect{SeasonKey: e.SeasonKey, Score: b.ScoreOf(e.Key, scoreTime(b, e.Season, a.now()))}
	ranks, err := a.reader.ranksOf(ctx, b, e.Season, []leaderboard.RankKey{e.Key})
	switch {
	case errors.Is(err, leaderboard.ErrRankUnavailable):
		p.Degraded = true
	case err != nil:
		return err
	case e.Hidden:
		effect.RankAfter = ranks[0]
	default:
		effect.RankBefore = ranks[0]
	}
	p.Entries = append(p.Entries, effect)
	return nil
}

// BoardPreview is what AmendBoard would change.
type BoardPreview struct {
	Board leaderboard.Board
	// Seasons are the seasons that would change, the oldest first. Truncated means that there
	// are more than maxEffects.
	Seasons   []SeasonEffect
	Truncated bool
	// Changed is the number of seasons that would change. Removed is the number of those that
	// the next sweep would delete.
	Changed, Removed int
	// LosesDense means that the number of shards would change from 1 to more. In an index with shards,
	// seasons would then have no dense ranks before they are sealed.
	LosesDense bool
	AsOf       time.Time // when the computation began
}

// SeasonEffect is a season that would change. A zero time means never.
type SeasonEffect struct {
	leaderboard.Season
	Added                       bool // the board does not have the season yet
	ClosesBefore, ClosesAfter   time.Time
	RemovedBefore, RemovedAfter time.Time // as in SeasonInfo.RemovedAt
	RemovedNext                 bool      // the next sweep would delete the season
	Total                       *int64    // users in the overall ladder; nil if unknown
}

// PreviewAmendment returns what AmendBoard would change, and changes nothing. It shows no
// scores: [leaderboard.Board.Amend] rejects changes that would affect scores. Errors: those of
// AmendBoard.
func (a *Admin) PreviewAmendment(ctx context.Context, id leaderboard.BoardID, change func(*leaderboard.Board) error) (BoardPreview, error) {
	p := BoardPreview{AsOf: leaderboard.Truncate(a.now())}
	records, b, amended, err := a.checkAmendment(ctx, id, change)
	if err != nil {
		return BoardPreview{}, err
	}
	p.Board = amended
	p.LosesDense = b.Shards <= 1 && p.Board.Shards > 1
	now := a.now()
	effects, err := seasonEffects(&b, &p.Board, records, now)
	if err != nil {
		return BoardPreview{}, err
	}
	for i := range effects {
		e := &effects[i]
		if alwaysListed := e.season.isListed(e.phase, new(int64)); p.Changed < maxEffects || !alwaysListed {
			if e.Total, _, err = a.reader.total(ctx, &p.Board, e.ID); err != nil {
				return BoardPreview{}, err
			}
			if !e.season.isListed(e.phase, e.Total) {
				continue
			}
		}
		p.Changed++
		if e.RemovedNext = hasCome(e.RemovedAfter, now); e.RemovedNext {
			p.Removed++
		}
		if p.Truncated = p.Changed > maxEffects; !p.Truncated {
			p.Seasons = append(p.Seasons, e.SeasonEffect)
		}
	}
	return p, nil
}

// knownEffect is an effect on a season, which lists of seasons may not have.
type knownEffect struct {
	SeasonEffect
	season knownSeason
	phase  SeasonPhase
}

func seasonEffects(before, after *leaderboard.Board, records []leaderboard.SeasonRecord, now time.Time) ([]knownEffect, error) {
	ids, stored := make([]leaderboard.SeasonID, len(records)), map[leaderboard.SeasonID]*leaderboard.SeasonRecord{}
	for i := range records {
		ids[i], stored[records[i].Season] = records[i].Season, &records[i]
	}
	oldSeasons, err := knownSeasonsAt(before, ids, now)
	if err != nil {
		return nil, err
	}
	newSeasons, err := knownSeasonsAt(after, ids, now)
	if err != nil {
		return nil, err
	}
	info := func(b *leaderboard.Board, s *knownSeason) SeasonInfo {
		record := &leaderboard.SeasonRecord{}
		if s.stored {
			record = stored[s.ID]
		}
		return seasonInfo(b, s.Season, record, now)
	}
	known := map[leaderboard.SeasonID]SeasonInfo{}
	for i := range oldSeasons {
		known[oldSeasons[i].ID] = info(before, &oldSeasons[i])
	}
	var effects []knownEffect
	for _, season := range slices.Backward(newSeasons) {
		s := info(after, &season)
		old, ok := known[s.ID]
		if !ok || !old.ClosesAt.Equal(s.ClosesAt) || !old.RemovedAt.Equal(s.RemovedAt) {
			effects = append(effects, knownEffect{SeasonEffect{
				Season: s.Season, Added: !ok, ClosesBefore: old.ClosesAt, ClosesAfter: s.ClosesAt,
				RemovedBefore: old.RemovedAt, RemovedAfter: s.RemovedAt,
			}, season, s.Phase})
		}
	}
	return effects, nil
}
