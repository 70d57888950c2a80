package observe

import (
	"context"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/open-leaderboard/leaderboard"
)

// Index returns a rank index that measures and traces the calls to x. It registers its
// metrics with reg.
func Index(x leaderboard.Index, reg prometheus.Registerer) leaderboard.Index {
	return &index{inner: x, calls: newCalls(reg, "index", "rank index")}
}

type index struct {
	inner leaderboard.Index
	calls calls
}

func (o *index) Synced(seasons ...leaderboard.SeasonKey) bool { return o.inner.Synced(seasons...) }

func (o *index) Invalidate(s leaderboard.SeasonKey) { o.inner.Invalidate(s) }

func (o *index) Advance(ctx context.Context, positions []leaderboard.LogPosition, all bool) (_ []leaderboard.Doubt, err error) {
	ctx, call := o.calls.begin(ctx, "Advance", "")
	defer call.end(&err)
	return o.inner.Advance(ctx, positions, all)
}

func (o *index) Confirm(ctx context.Context, b *leaderboard.Board, d leaderboard.Doubt, positions []leaderboard.LogPosition, session leaderboard.LogSession) (err error) {
	ctx, call := o.calls.begin(ctx, "Confirm", d.Board)
	defer call.end(&err)
	return o.inner.Confirm(ctx, b, d, positions, session)
}

func (o *index) Close() error { return o.inner.Close() }

func (o *index) Standings(ctx context.Context, l leaderboard.Ladder, users []leaderboard.UserID, methods ...leaderboard.Method) (_ []leaderboard.Standing, _ leaderboard.View, err error) {
	ctx, call := o.calls.begin(ctx, "Standings", l.Board)
	defer call.end(&err)
	return o.inner.Standings(ctx, l, users, methods...)
}

func (o *index) Page(ctx context.Context, l leaderboard.Ladder, position int64, n int, methods ...leaderboard.Method) (_ []leaderboard.Standing, _ leaderboard.View, err error) {
	ctx, call := o.calls.begin(ctx, "Page", l.Board)
	defer call.end(&err)
	return o.inner.Page(ctx, l, position, n, methods...)
}

func (o *index) PageAfter(ctx context.Context, l leaderboard.Ladder, after leaderboard.SortKey, n int, methods ...leaderboard.Method) (_ []leaderboard.Standing, _ leaderboard.View, err error) {
	ctx, call := o.calls.begin(ctx, "PageAfter", l.Board)
	defer call.end(&err)
	return o.inner.PageAfter(ctx, l, after, n, methods...)
}

func (o *index) Around(ctx context.Context, l leaderboard.Ladder, user leaderboard.UserID, above, below int, methods ...leaderboard.Method) (_ leaderboard.Neighborhood, _ leaderboard.View, err error) {
	ctx, call := o.calls.begin(ctx, "Around", l.Board)
	defer call.end(&err)
	return o.inner.Around(ctx, l, user, above, below, methods...)
}

func (o *index) Count(ctx context.Context, l leaderboard.Ladder, keys []leaderboard.RankKey, methods ...leaderboard.Method) (_ []leaderboard.Counts, _ leaderboard.View, err error) {
	ctx, call := o.calls.begin(ctx, "Count", l.Board)
	defer call.end(&err)
	return o.inner.Count(ctx, l, keys, methods...)
}

func (o *index) Survey(ctx context.Context, l leaderboard.Ladder, q leaderboard.SurveyQuery, methods ...leaderboard.Method) (_ leaderboard.Survey, _ leaderboard.View, err error) {
	ctx, call := o.calls.begin(ctx, "Survey", l.Board)
	defer call.end(&err)
	return o.inner.Survey(ctx, l, q, methods...)
}

func (o *index) Update(ctx context.Context, s leaderboard.SeasonKey, at time.Time, entries []leaderboard.Entry) (err error) {
	ctx, call := o.calls.begin(ctx, "Update", s.Board)
	defer call.end(&err)
	return o.inner.Update(ctx, s, at, entries)
}

func (o *index) Rebuild(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, entries iter.Seq2[leaderboard.Entry, error]) (err error) {
	ctx, call := o.calls.begin(ctx, "Rebuild", s.Board)
	defer call.end(&err)
	return o.inner.Rebuild(ctx, b, s, at, entries)
}

func (o *index) Restore(ctx context.Context, b *leaderboard.Board, s leaderboard.SeasonKey, at time.Time, scan func(leaderboard.Part) iter.Seq2[leaderboard.Entry, error]) (err error) {
	ctx, call := o.calls.begin(ctx, "Restore", s.Board)
	defer call.end(&err)
	return o.inner.Restore(ctx, b, s, at, scan)
}

func (o *index) Loaded(ctx context.Context, s leaderboard.SeasonKey) (_ bool, err error) {
	ctx, call := o.calls.begin(ctx, "Loaded", s.Board)
	defer call.end(&err)
	return o.inner.Loaded(ctx, s)
}

func (o *index) Fits(b *leaderboard.Board, s leaderboard.SeasonKey) bool { return o.inner.Fits(b, s) }

func (o *index) Drop(ctx context.Context, s leaderboard.SeasonKey) (err error) {
	ctx, call := o.calls.begin(ctx, "Drop", s.Board)
	defer call.end(&err)
	return o.inner.Drop(ctx, s)
}
