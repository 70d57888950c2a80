package redis

import (
	"context"
	"errors"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// refuseMoving is a hook on the client of each server of a cluster. It refuses commands for a slot that
// is being moved to this server.
//
// While a slot moves, some of its keys are on the old server, and some on the new one. If the old server
// no longer has the key of a script, it answers ASK. go-redis would then send ASKING and the script to
// the new server. There, the script would treat keys that have not arrived yet as missing, and could
// write wrong trees of sort keys. This hook makes the script fail instead. If the old server still has the
// key, the script fails there before its first change (see lua/inline/slot.lua).
type refuseMoving struct{}

var _ goredis.Hook = refuseMoving{}

var errMoving = errors.New("the slot of the key is being moved to another server")

// isMoving reports whether err means that a script has failed because its slot is being moved.
func isMoving(err error) bool {
	return errors.Is(err, errMoving) || err != nil && strings.Contains(err.Error(), "access a non local key")
}

// DialHook implements [goredis.Hook].
func (refuseMoving) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements [goredis.Hook].
func (refuseMoving) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements [goredis.Hook]. go-redis sends ASKING in pipelines only.
func (refuseMoving) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		for _, c := range commands {
			if c.Name() != "asking" {
				continue
			}
			for _, c := range commands {
				c.SetErr(errMoving)
			}
			return errMoving
		}
		return next(ctx, commands)
	}
}
