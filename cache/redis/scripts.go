package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
)

//go:embed lua
var luaFiles embed.FS

// script is a Lua script that works on one shard. A server gets the text only if it does not
// know the script's hash.
type script struct{ name, text, sha string }

func load(name string) *script { return newScript(name, luaText(name)) }

// luaText returns the text of a file without its extension. In each line "--include FILE", the text of FILE
// replaces the line.
func luaText(name string) string {
	b, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // the file is embedded, so the build is faulty
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "--include "); ok {
			line = luaText(file)
		}
		text.WriteString(line)
	}
	return text.String()
}

func newScript(name, text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{name, text, hex.EncodeToString(sum[:])}
}

var (
	updateScript    = load("update")
	standingsScript = load("standings")
	excerptScript   = load("excerpt")
	surveyScript    = load("survey")
	acquireScript   = load("acquire")
	beginScript     = load("begin")
	bulkScript      = load("bulk")
	usersScript     = load("users")
	checkScript     = load("check")
	flipScript      = load("flip")
	dropScript      = load("drop")
	freeScript      = load("free")
	leaseScript     = load("lease")
	probeScript     = load("probe")
	advanceScript   = load("advance")
	confirmScript   = load("confirm")
	ownerScript     = load("owner")
)

// Every script's answer begins with a status. After some statuses, a number n follows. lua/base.lua
// describes generations and fences.
const (
	statusOK     = iota
	statusNone   // the shard is empty
	statusShards // the season has n shards, not the number that the caller expects
	statusLost   // the shard is lost: a script failed half-way, or its keys have another layout
	statusFenced // the generation was replaced, or another process holds the lease; n is the newest fence, or 0
	statusFormat // a rank key has a wrong length; it must have n bytes
	statusGap    // earlier batches, or pieces of a bulk load, are missing
	statusDoubt  // the shard is in doubt: see doubt.go
)

// call is one run of a script on one shard, and its answer.
type call struct {
	script *script
	shard  int
	keys   []string // the shard's control key first
	args   []any
	cmd    *goredis.Cmd
	status int
	err    error // why there is no valid answer
	reply
}

// reply has the unread elements of an answer. Each method reads the first element. If this
// element is missing or has the wrong type, the method sets fault.
type reply struct {
	rest  []any
	fault bool
}

func (r *reply) next() any {
	if len(r.rest) == 0 {
		r.fault = true
		return nil
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

func (r *reply) int() int64 {
	v, ok := r.next().(int64)
	r.fault = r.fault || !ok
	return v
}

func (r *reply) str() string {
	v, ok := r.next().(string)
	r.fault = r.fault || !ok
	return v
}

func (r *reply) list() []any {
	v, ok := r.next().([]any)
	r.fault = r.fault || !ok
	return v
}

// sortKeys returns the sort keys in a list of strings. In each string, a zero byte separates sort
// keys (see lua/excerpt.lua). A sort key itself can have zero bytes only in its rank key (keyBytes bytes)
// and its time.
func (r *reply) sortKeys(keyBytes int) (out []string) {
	for list := (reply{rest: r.list()}); len(list.rest) > 0; r.fault = r.fault || list.fault {
		for rest := list.str(); rest != ""; {
			prefix := min(keyBytes+instantBytes, len(rest))
			end := len(rest)
			if n := strings.IndexByte(rest[prefix:], 0); n >= 0 {
				end = prefix + n
			}
			out = append(out, rest[:end])
			rest = rest[min(end+1, len(rest)):]
		}
	}
	return out
}

func (r *reply) strings() []string {
	list := reply{rest: r.list()}
	out := make([]string, len(list.rest))
	for i := range out {
		out[i] = list.str()
	}
	r.fault = r.fault || list.fault
	return out
}

// run sends calls in one round trip: one pipeline per server, all servers concurrently. If
// servers do not know a script, a second round trip sends its text. run returns the first
// error. The other calls may have succeeded.
func (x *Index) run(ctx context.Context, calls []*call) error {
	if reason := x.unfit.Load(); reason != nil {
		err := fmt.Errorf("%w: %w", leaderboard.ErrRankUnavailable, *reason)
		for _, c := range calls {
			c.status, c.reply, c.err = statusNone, reply{}, err
		}
		return err
	}
	x.send(ctx, calls, (*call).evalSHA)
	var unknown []*call
	for _, c := range calls {
		if goredis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		x.send(ctx, unknown, (*call).eval)
	}
	for _, c := range calls {
		v, err := c.cmd.Slice()
		c.status, c.reply, c.err = statusNone, reply{rest: v}, nil
		if err == nil {
			if c.status = int(c.int()); c.fault {
				err = fmt.Errorf("unexpected answer %v", v)
			}
		}
		if err != nil {
			c.err = fmt.Errorf("%s: %w: %w", c.script.name, leaderboard.ErrRankUnavailable, err)
		}
	}
	first := firstError(calls)
	if first != nil {
		// After a failover, the client may not know the new masters yet.
		if c, ok := x.client().(*goredis.ClusterClient); ok {
			c.ReloadState(ctx)
		}
	}
	return first
}

func firstError(calls []*call) error {
	for _, c := range calls {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

// shards returns the number of shards that the call expects.
func (c *call) shards() int { return c.args[0].(int) }

func (c *call) evalSHA(ctx context.Context, client goredis.Cmdable) *goredis.Cmd {
	return client.EvalSha(ctx, c.script.sha, c.keys, c.args...)
}

func (c *call) eval(ctx context.Context, client goredis.Cmdable) *goredis.Cmd {
	return client.Eval(ctx, c.script.text, c.keys, c.args...)
}

// send sends calls in one round trip and sets cmd in each call. The parameter do is evalSHA or
// eval.
func (x *Index) send(ctx context.Context, calls []*call, do func(*call, context.Context, goredis.Cmdable) *goredis.Cmd) {
	if len(calls) == 1 {
		calls[0].cmd = do(calls[0], ctx, x.client())
		return
	}
	pipe := x.client().Pipeline()
	for _, c := range calls {
		c.cmd = do(c, ctx, pipe)
	}
	// Ignore the error of Exec, because each call has its own error.
	_, _ = pipe.Exec(ctx)
}
