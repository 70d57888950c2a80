package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
)

// A BoardClient calls one board of a server. Errors of its methods are [*Error] if the server has answered.
type BoardClient struct {
	c    *Client
	path string
	err  error
}

// Board returns the board with an id. It makes no call; the default board has the id "default".
func (c *Client) Board(id string) BoardClient {
	path, err := pathOf("/v1/boards", id)
	return BoardClient{c, path, err}
}

// pathOf appends ids to a path. Proxies and URL parsers remove the segments "." and "..", so such ids are
// refused. The server allows them in no new id.
func pathOf(path string, ids ...string) (string, error) {
	for _, id := range ids {
		if id == "" || id == "." || id == ".." {
			return "", fmt.Errorf("client: %q is not an id", id)
		}
		path += "/" + strings.ReplaceAll(url.PathEscape(id), ":", "%3A")
	}
	return path, nil
}

// call returns the answer to a request. err is an earlier error.
func call[T any](ctx context.Context, c *Client, r request, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	var out T
	if err := c.call(ctx, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// get reads a path with ids and a suffix.
func get[T any](ctx context.Context, b BoardClient, suffix string, query any, ids ...string) (*T, error) {
	path, err := pathOf(b.path+suffix, ids...)
	return call[T](ctx, b.c, request{method: http.MethodGet, path: path, query: query, safe: true}, errors.Join(b.err, err))
}

type data[T any] struct {
	Data T `json:"data"`
}

// unwrap returns the field data of an answer.
func unwrap[T any](d *data[T], err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &d.Data, nil
}

// Boards returns the boards that the caller may see.
func (c *Client) Boards(ctx context.Context) ([]Board, error) {
	res, err := get[struct {
		Boards []Board `json:"boards"`
	}](ctx, BoardClient{c: c}, "/v1/boards", nil)
	if err != nil {
		return nil, err
	}
	return res.Boards, nil
}

// Get returns the settings of the board.
func (b BoardClient) Get(ctx context.Context) (*Board, error) { return get[Board](ctx, b, "", nil) }

// Top returns one page of the ranking, by default the first 10 entries. q may be nil.
func (b BoardClient) Top(ctx context.Context, q *ListScoresQuery) (*Leaderboard, error) {
	return unwrap(get[data[Leaderboard]](ctx, b, "/scores", q))
}

// Entries returns all entries of a ranking, from the start that q gives. It reads pages of q.Limit entries, by
// default 1,000. After an error, it ends.
func (b BoardClient) Entries(ctx context.Context, q *ListScoresQuery) iter.Seq2[Entry, error] {
	query := valueOf(q)
	if query.Limit == 0 {
		query.Limit = 1000
	}
	return pages(query.PageToken, func(token string) ([]Entry, string, error) {
		if query.PageToken = token; token != "" {
			query.StartRank = 0
		}
		page, err := b.Top(ctx, &query)
		return valueOf(page).Leaderboard, valueOf(page).NextPageToken, err
	})
}

// Search returns the entries of users whose names or ids begin with q.Prefix. After an error, it ends.
func (b BoardClient) Search(ctx context.Context, q SearchUsersQuery) iter.Seq2[Entry, error] {
	return pages(q.PageToken, func(token string) ([]Entry, string, error) {
		q.PageToken = token
		page, err := unwrap(get[data[Leaderboard]](ctx, b, "/users", q))
		return valueOf(page).Leaderboard, valueOf(page).NextPageToken, err
	})
}

// Seasons returns the seasons of the board, the newest first. After an error, it ends.
func (b BoardClient) Seasons(ctx context.Context) iter.Seq2[ListSeasonsSeason, error] {
	return pages("", func(token string) ([]ListSeasonsSeason, string, error) {
		page, err := unwrap(get[data[ListSeasonsSeasons]](ctx, b, "/seasons", &ListSeasonsQuery{PageToken: token}))
		return valueOf(page).Seasons, valueOf(page).NextPageToken, err
	})
}

// Results returns the results of a user, the newest season first. q may be nil. After an error, it ends.
func (b BoardClient) Results(ctx context.Context, user string, q *ListUserResultsQuery) iter.Seq2[GetResultResponse, error] {
	query := valueOf(q)
	return pages(query.PageToken, func(token string) ([]GetResultResponse, string, error) {
		query.PageToken = token
		page, err := get[ListUserResultsResponse](ctx, b, "/results", &query, user)
		return valueOf(page).Results, valueOf(page).NextPageToken, err
	})
}

func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// pages returns the elements of all pages. read returns those of one page, and the token of the next.
func pages[T any](token string, read func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for token := token; ; {
			list, next, err := read(token)
			if err != nil {
				yield(none, err)
				return
			}
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == token {
				yield(none, errors.New("client: the server repeated a page token"))
				return
			}
			token = next
		}
	}
}

// User returns the entry of a user, with neighbors. q may be nil. A user without an entry is an [*Error]
// with the reason ENTRY_NOT_FOUND.
func (b BoardClient) User(ctx context.Context, user string, q *GetUserScoreQuery) (*GetUserScoreUserScore, error) {
	return unwrap(get[data[GetUserScoreUserScore]](ctx, b, "/scores", q, user))
}

// Lookup returns the entries of up to 5,000 users, with their ranks among themselves.
func (b BoardClient) Lookup(ctx context.Context, r LookupScoresRequest) (*Leaderboard, error) {
	return unwrap(call[data[Leaderboard]](ctx, b.c, request{method: http.MethodPost, path: b.path + "/scores:lookup", body: r, safe: true}, b.err))
}

// Stats returns statistics of a ranking. q may be nil.
func (b BoardClient) Stats(ctx context.Context, q *GetStatsQuery) (*GetStatsStats, error) {
	return unwrap(get[data[GetStatsStats]](ctx, b, "/stats", q))
}

// Season returns a season, or the newest with entries if id is "latest". q may be nil.
func (b BoardClient) Season(ctx context.Context, id string, q *GetSeasonQuery) (*ListSeasonsSeason, error) {
	return unwrap(get[data[ListSeasonsSeason]](ctx, b, "/seasons", q, id))
}

// Result returns the state of a result. q may be nil.
func (b BoardClient) Result(ctx context.Context, user, match string, q *GetResultQuery) (*GetResultResponse, error) {
	return get[GetResultResponse](ctx, b, "/results", q, user, match)
}

// Correct changes the given fields of a stored result. After a broken connection, it is not retried, as
// it could undo another correction.
func (b BoardClient) Correct(ctx context.Context, user, match string, r CorrectResultRequest) (*CorrectResultResponse, error) {
	path, err := pathOf(b.path+"/results", user, match)
	return call[CorrectResultResponse](ctx, b.c, request{method: http.MethodPatch, path: path, body: r}, errors.Join(b.err, err))
}

// Retract undoes a result.
func (b BoardClient) Retract(ctx context.Context, user, match string, r RetractResultRequest) (*RetractResultResponse, error) {
	path, err := pathOf(b.path+"/results", user, match)
	return call[RetractResultResponse](ctx, b.c, request{method: http.MethodPost, path: path + ":retract", body: r, safe: true}, errors.Join(b.err, err))
}

// UserScores returns the entries of a user on all boards. q may be nil.
func (c *Client) UserScores(ctx context.Context, user string, q *ListUserScoresQuery) (*ListUserScoresUserScores, error) {
	path, err := pathOf("/v1/users", user)
	return unwrap(get[data[ListUserScoresUserScores]](ctx, BoardClient{c, path, err}, "/scores", q))
}

// Profile returns the profile of a user.
func (c *Client) Profile(ctx context.Context, user string) (*Profile, error) {
	path, err := pathOf("/v1/users", user)
	return get[Profile](ctx, BoardClient{c, path, err}, "/profile", nil)
}

// PutProfile replaces the profile of a user, and returns the profile that counts. With a Revision, it is
// retried after a broken connection. q may be nil.
func (c *Client) PutProfile(ctx context.Context, user string, p ProfileInput, q *PutProfileQuery) (*Profile, error) {
	path, err := pathOf("/v1/users", user)
	return call[Profile](ctx, c, request{method: http.MethodPut, path: path + "/profile", query: q, body: p, safe: p.Revision != 0}, err)
}
