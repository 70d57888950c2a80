package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// completeSteps bounds the steps of one call of complete. Usually, two steps are enough.
	completeSteps = 8
	// completeInterval is the least time between two calls of complete by completeLater.
	completeInterval = time.Second
)

// channelState is the result of complete. For channels, homes, items and terms, see lua/channel.lua.
type channelState struct {
	complete bool   // whether no home lacks items
	changed  bool   // whether a shard is not loaded, or not on the expected server
	live     string // the newest live generation of all shards
}

// completion is a call of complete. doubt.go shows why complete is correct.
type completion struct {
	x       *Index
	season  *seasonIndex
	control []string
	servers []string // the expected server of each shard; nil if any server will do
	// needs has, for each channel, the sender's first report with its present terms. The home needs the
	// items of this report.
	needs map[ends]channelReport
}

// ends are the two shards of a channel: the sender of the items, and the home that receives them.
type ends struct{ sender, home int }

// channelReport is one shard's state of the two channels between this shard and another shard.
type channelReport struct {
	sent     int64  // items sent to the other shard
	terms    string // of the channel to the other shard
	received int64  // items received from the other shard
	adopted  string // the terms of the channel from the other shard, as this shard has adopted them
	list     string // the name of the list of items that the other shard must state again, or ""
}

// incomplete is a channel whose home may lack items. The fields adopted, received and list are the home's.
type incomplete struct {
	ends
	adopted  string
	report   channelReport // of the sender
	received int64
	list     string
	items    []string // that the sender must state again
}

// complete makes the home of each channel receive all items that were sent before the call. If
// servers is not nil and a shard is on another server, complete stops. If items that a step needs have
// been removed, complete empties one of the two shards.
func (x *Index) complete(ctx context.Context, season *seasonIndex, control, servers []string) (state channelState, err error) {
	c := completion{x, season, control, servers, map[ends]channelReport{}}
	for range completeSteps {
		var reports [][]channelReport
		if reports, state, err = c.report(ctx); err != nil || reports == nil {
			return state, err
		}
		all := c.incomplete(reports)
		if len(all) == 0 {
			state.complete = true
			return state, nil
		}
		// The senders' states must be newer than the homes' states: see doubt.go.
		if reports, state, err = c.report(ctx); err != nil || reports == nil {
			return state, err
		}
		for _, n := range all {
			n.report = reports[n.sender][n.home]
		}
		if state.changed, err = c.advance(ctx, state.live, all); err != nil || state.changed {
			return state, err
		}
	}
	return state, nil
}

// report reads the states of all channels. It returns no reports if state.changed is true, or if the
// shards have different live generations.
func (c *completion) report(ctx context.Context) (reports [][]channelReport, state channelState, err error) {
	calls := callEach(reportScript, c.control)
	if err := c.x.run(ctx, calls); err != nil {
		return nil, state, err
	}
	same := true
	for shard, call := range calls {
		if call.status != statusOK || c.servers != nil && call.str() != c.servers[shard] {
			return nil, channelState{changed: true}, nil
		}
		if c.servers == nil {
			call.str()
		}
		live := call.str()
		same = same && (shard == 0 || live == state.live)
		if fenceOf(live) > fenceOf(state.live) {
			state.live = live
		}
		row := make([]channelReport, len(c.control))
		for i := range row {
			row[i] = channelReport{call.int(), call.str(), call.int(), call.str(), call.str()}
		}
		reports = append(reports, row)
	}
	if err := fault(calls); err != nil || !same {
		return nil, state, err
	}
	return reports, state, nil
}

// fenceOf returns the fence of a generation: see lua/base.lua.
func fenceOf(generation string) int64 {
	text, _, _ := strings.Cut(generation, "-")
	fence, _ := strconv.ParseInt(text, 10, 64) // 0 if there is no generation
	return fence
}

func (c *completion) incomplete(reports [][]channelReport) (all []*incomplete) {
	for sender := range reports {
		for home := range reports {
			if sender == home {
				continue
			}
			from, to := reports[sender][home], reports[home][sender]
			need, ok := c.needs[ends{sender, home}]
			if !ok || need.terms != from.terms {
				need = from
				c.needs[ends{sender, home}] = need
			}
			if to.adopted != from.terms || to.received < need.sent || to.list != "" {
				all = append(all, &incomplete{ends{sender, home}, to.adopted, from, to.received, to.list, nil})
			}
		}
	}
	return all
}

// advance makes one step for all incomplete channels. It reports whether it emptied shards.
func (c *completion) advance(ctx context.Context, live string, all []*incomplete) (emptied bool, err error) {
	var lost []int
	if all, lost, err = c.adopt(ctx, live, all); err != nil {
		return false, err
	}
	behind, err := c.restate(ctx, live, all)
	if err != nil {
		return false, err
	}
	if lost = append(lost, behind...); len(lost) > 0 {
		var calls []*call
		for _, shard := range lost {
			calls = append(calls, newCall(dropScript, c.control, shard, "lose"))
		}
		return true, c.x.run(ctx, calls)
	}
	var senders []int
	for _, n := range all {
		if !slices.Contains(senders, n.sender) {
			senders = append(senders, n.sender)
		}
	}
	if len(senders) > 0 {
		_, err = c.x.drain(ctx, c.season, c.control, "", senders)
	}
	return false, err
}

// adopt makes homes adopt the terms of their senders. It returns the channels for restate, and the senders
// that must be emptied.
func (c *completion) adopt(ctx context.Context, live string, all []*incomplete) (rest []*incomplete, lost []int, err error) {
	calls, asked := map[int]*call{}, map[int][]*incomplete{}
	for _, n := range all {
		if n.adopted == n.report.terms && n.list == "" {
			rest = append(rest, n)
			continue
		}
		if calls[n.home] == nil {
			calls[n.home] = newCall(adoptScript, c.control, n.home, live)
		}
		calls[n.home].args = append(calls[n.home].args, n.sender, n.adopted, n.report.terms, n.report.sent)
		asked[n.home] = append(asked[n.home], n)
	}
	if err := c.runAll(ctx, calls); err != nil {
		return nil, nil, err
	}
	for home, call := range calls {
		if call.status != statusOK {
			continue
		}
		for _, n := range asked[home] {
			n.received, n.list, n.items = call.int(), call.str(), call.strings()
			switch n.received {
			case -1: // another process has changed the terms
			case -2: // the home has removed items that the sender must state again
				lost = append(lost, n.sender)
			default:
				rest = append(rest, n)
			}
		}
	}
	return rest, lost, nil
}

// restate makes senders send missing items again. It returns the homes that must be emptied, because their
// senders have removed the missing items.
func (c *completion) restate(ctx context.Context, live string, all []*incomplete) (lost []int, err error) {
	calls, asked := map[int]*call{}, map[int][]*incomplete{}
	for _, n := range all {
		sender := n.sender
		if calls[sender] == nil {
			calls[sender] = newCall(restateScript, c.control, sender, live)
		}
		args := append(calls[sender].args, n.home, n.report.terms, n.received, n.list, len(n.items))
		for _, item := range n.items {
			args = append(args, item)
		}
		calls[sender].args = args
		asked[sender] = append(asked[sender], n)
	}
	if err := c.runAll(ctx, calls); err != nil {
		return nil, err
	}
	for sender, call := range calls {
		for _, n := range asked[sender] {
			if call.status == statusOK && call.int() == 0 {
				lost = append(lost, n.home)
			}
		}
	}
	return lost, nil
}

func (c *completion) runAll(ctx context.Context, byShard map[int]*call) error {
	var calls []*call
	for _, call := range byShard {
		calls = append(calls, call)
	}
	if len(calls) == 0 {
		return nil
	}
	return c.x.run(ctx, calls)
}

// completeLater calls complete in the background, after a home has refused the items of an Update.
func (x *Index) completeLater(season *seasonIndex, control []string) {
	season.mu.Lock()
	defer season.mu.Unlock()
	if time.Since(season.completedAt) < completeInterval || x.ctx.Err() != nil {
		return
	}
	season.completedAt = time.Now()
	x.background.Go(func() {
		ctx, cancel := context.WithTimeout(x.ctx, x.o.UpdateTimeout)
		defer cancel()
		_, _ = x.complete(ctx, season, control, nil) // after an error, the next Update or reader tries again
	})
}
