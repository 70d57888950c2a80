package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
)

const (
	// pingTimeout bounds a ping of a server that may be silent.
	pingTimeout = 250 * time.Millisecond
	// pingInterval is the time between two pings of a silent server.
	pingInterval = 500 * time.Millisecond
)

// gates keep writers from servers that do not answer. Without gates, the first Update of each
// season would wait for UpdateTimeout, and a consumer of many boards would make no progress.
//
// After a failed Update, the process pings the servers of the season. If a server does not
// answer, its gate closes. While the gate is closed, an Update of a season on this server fails
// at once, and this process treats the season as unavailable. One goroutine pings the server,
// and opens the gate when the server answers.
type gates struct {
	mu     sync.Mutex
	closed map[string]bool // by the server's address; without a cluster, the address is empty
}

func (g *gates) isClosed(server string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed[server]
}

// shut closes the gate of a server, and reports whether it was open.
func (g *gates) shut(server string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed[server] {
		return false
	}
	if g.closed == nil {
		g.closed = map[string]bool{}
	}
	g.closed[server] = true
	return true
}

func (g *gates) open(server string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.closed, server)
}

var errSilent = fmt.Errorf("the server has not answered an earlier update: %w", leaderboard.ErrRankUnavailable)

// master returns the client and the address of the server that has a key.
func (x *Index) master(ctx context.Context, key string) (goredis.UniversalClient, string, error) {
	c, ok := x.client().(*goredis.ClusterClient)
	if !ok {
		return x.client(), "", nil
	}
	m, err := c.MasterForKey(ctx, key)
	if err != nil {
		return nil, "", err
	}
	return m, m.Options().Addr, nil
}

// isSilent reports whether the gate of any server of a season is closed. If the parameter all
// is true, isSilent reports whether all these gates are closed.
func (x *Index) isSilent(ctx context.Context, season *seasonIndex, all bool) bool {
	x.gates.mu.Lock()
	none := len(x.gates.closed) == 0
	x.gates.mu.Unlock()
	if none {
		return false
	}
	closed := func(key string) bool {
		_, server, err := x.master(ctx, key)
		return err == nil && x.gates.isClosed(server)
	}
	control := *season.control.Load()
	if all {
		return !slices.ContainsFunc(control, func(key string) bool { return !closed(key) })
	}
	return slices.ContainsFunc(control, closed)
}

// checkServers pings the servers of a season, and closes the gate of each server that does not
// answer.
func (x *Index) checkServers(season *seasonIndex) {
	checked := map[string]bool{}
	for _, key := range *season.control.Load() {
		ctx, cancel := context.WithTimeout(x.ctx, pingTimeout)
		client, server, err := x.master(ctx, key)
		if err == nil && !checked[server] && !x.gates.isClosed(server) {
			checked[server] = true
			if client.Ping(ctx).Err() != nil && x.ctx.Err() == nil && x.gates.shut(server) {
				x.background.Go(func() { x.pingUntilUp(server, key) })
			}
		}
		cancel()
	}
}

// pingUntilUp pings the master of a key until the master answers. It then opens the gate of the
// given server. After a failover, the master is another server, and no Update uses the given one.
func (x *Index) pingUntilUp(server, key string) {
	defer x.gates.open(server)
	for sleep(x.ctx, pingInterval) == nil {
		ctx, cancel := context.WithTimeout(x.ctx, pingTimeout)
		client, _, err := x.master(ctx, key)
		if err == nil {
			err = client.Ping(ctx).Err()
		}
		if c, ok := x.client().(*goredis.ClusterClient); ok && err != nil {
			c.ReloadState(x.ctx)
		}
		cancel()
		if err == nil {
			return
		}
	}
}
