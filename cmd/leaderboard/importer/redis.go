package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/schollz/progressbar/v3"

	"github.com/open-leaderboard/leaderboard/internal/cli"
	"github.com/open-leaderboard/leaderboard/internal/config"
	"github.com/open-leaderboard/leaderboard/internal/records"
)

const (
	redisPage = 1000 // members of one answer
	// RedisPasswordEnv is the environment variable of the password of a Redis server that import and
	// compare read.
	RedisPasswordEnv = config.EnvPrefix + "SOURCE_PASSWORD"
)

// redisSet is a sorted set on a Redis server that other programs use.
type redisSet struct {
	client *redis.Client
	key    string
	url    string // without a password
	size   int64  // when it was opened
}

func isRedisURL(text string) bool {
	return strings.HasPrefix(text, "redis://") || strings.HasPrefix(text, "rediss://")
}

// openRedis connects to the server in a URL such as rediss://user@host:6380/KEY?db=2, and checks that
// the key is a sorted set. Errors never contain the password. The caller must close the set.
func openRedis(ctx context.Context, app *cli.App, text string) (*redisSet, error) {
	u, err := url.Parse(text)
	if err != nil { // a url.Error contains the whole text
		return nil, cli.Usagef("the Redis URL is invalid; it has the form redis://[USER[:PASSWORD]@]HOST[:PORT]/KEY[?db=N], with special characters percent-encoded")
	}
	key := strings.TrimPrefix(u.Path, "/")
	if key == "" || u.Host == "" {
		return nil, cli.Usagef("the Redis URL %s names no key of a sorted set; it has the form redis://HOST[:PORT]/KEY[?db=N]", u.Redacted())
	}
	server := *u
	server.Path, server.RawPath = "", ""
	o, err := redis.ParseURL(server.String())
	if err != nil {
		return nil, cli.Usagef("the Redis URL %s: %s", u.Redacted(), strings.ReplaceAll(err.Error(), server.String(), server.Redacted()))
	}
	if password := app.Getenv(RedisPasswordEnv); o.Password == "" {
		o.Password = password
	}
	quiet()
	o.ContextTimeoutEnabled, o.DialerRetries, o.MaxRetries = true, 1, -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	s := &redisSet{key: key, url: u.Redacted()}
	if err := s.check(ctx, *o); err != nil {
		return nil, fmt.Errorf("%s: %w", s.url, err)
	}
	// After a loss of the network, the client repeats a command for some seconds.
	o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = 6, 50*time.Millisecond, 4*time.Second
	s.client = redis.NewClient(o)
	return s, nil
}

// quiet keeps Redis' client from logging to stderr: the failed command returns the error.
var quiet = sync.OnceFunc(func() { redis.SetLogger(noLogger{}) })

// check reads the size of the set.
func (s *redisSet) check(ctx context.Context, o redis.Options) error {
	c := redis.NewClient(&o)
	defer func() { _ = c.Close() }() // nothing was written
	kind, err := c.Type(ctx, s.key).Result()
	if err == nil && kind == "zset" {
		s.size, err = c.ZCard(ctx, s.key).Result()
	}
	switch {
	case err != nil:
		return s.fault(err)
	case kind == "none":
		return fmt.Errorf("database %d has no key %q", o.DB, s.key)
	case kind != "zset":
		return fmt.Errorf("the key %q is a %s, not a sorted set", s.key, kind)
	}
	return nil
}

// fault adds what to do. The caller adds the URL.
func (s *redisSet) fault(err error) error {
	var answer redis.Error
	switch text := err.Error(); {
	case strings.HasPrefix(text, "MOVED "):
		return fmt.Errorf("the key %q is on another node of the cluster (%s); name this node in the URL", s.key, text)
	case strings.HasPrefix(text, "WRONGTYPE"):
		return fmt.Errorf("the key %q is no longer a sorted set: %w", s.key, err)
	case strings.HasPrefix(text, "NOAUTH"), strings.HasPrefix(text, "WRONGPASS"):
		return fmt.Errorf("%w; put the password into %s, or the user and the password into the URL", err, RedisPasswordEnv)
	case errors.As(err, &answer), errors.Is(err, context.Canceled):
		return err
	}
	// A network that fails may return io.EOF, which must not look like the end of the set.
	return fmt.Errorf("the Redis server does not answer: %v", err) //nolint:errorlint // see above
}

// redisReader reads the members with ZSCAN. It returns each member that is in the set from the
// beginning to the end, possibly several times.
type redisReader struct {
	ctx    context.Context
	set    *redisSet
	cursor uint64
	last   bool     // whether the server has returned the last page
	page   []string // members, each followed by its score
	line   int64
	// columns are those that all members have.
	columns map[string]columnFunc
	bar     *progressbar.ProgressBar
}

// newReader returns a reader of the members as results at the given time. The bar counts them.
func (s *redisSet) newReader(ctx context.Context, at time.Time, bar *progressbar.ProgressBar) *redisReader {
	return &redisReader{ctx: ctx, set: s, bar: bar, columns: snapshotColumns("redis:"+s.key, at, nil)}
}

// Next implements [records.Reader].
func (r *redisReader) Next() (records.Record, error) {
	for len(r.page) < 2 {
		if r.last {
			return records.Record{}, io.EOF
		}
		var err error
		if r.page, r.cursor, err = r.set.client.ZScan(r.ctx, r.set.key, r.cursor, "", redisPage).Result(); err != nil {
			return records.Record{}, r.set.fault(err)
		}
		r.last = r.cursor == 0
	}
	member, text := r.page[0], r.page[1]
	r.page = r.page[2:]
	r.line++
	_ = r.bar.Add(1)
	raw, err := json.Marshal([]string{member, text})
	if err != nil {
		return records.Record{}, err
	}
	rec := records.Record{Line: r.line, Raw: raw}
	score, err := scoreText(text)
	if rec.Err = err; err == nil {
		rec.Column = func(name string) (records.Value, bool) { return r.column(name, member, score) }
	}
	return rec, nil
}

func (r *redisReader) column(name, member, score string) (records.Value, bool) {
	switch name {
	case "user_id":
		if !utf8.ValidString(member) {
			return records.Value{Err: errors.New("is not valid UTF-8")}, true
		}
		return records.Value{Text: member}, member != ""
	case "score", "points":
		return records.Value{Text: score}, true
	}
	if f, ok := r.columns[name]; ok {
		return f(nil)
	}
	return records.Value{}, false
}

// scoreText returns a score of a sorted set, a float64, as the shortest decimal number that means it.
func scoreText(text string) (string, error) {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(f):
		return "", fmt.Errorf("score: %.40q is not a number", text)
	case math.IsInf(f, 0):
		return "", fmt.Errorf("score: %s is infinite", text)
	case math.Abs(f) > 1<<53:
		return "", fmt.Errorf("score: %s is beyond 2^53, from where Redis does not hold each integer", text)
	}
	return strconv.FormatFloat(f, 'f', -1, 64), nil
}

// Offset implements [records.Reader].
func (r *redisReader) Offset() int64 { return r.line }

// Header implements [records.Reader].
func (r *redisReader) Header() []string { return nil }

// Close implements [io.Closer].
func (s *redisSet) Close() error { return s.client.Close() }
