package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/cluster"
)

// shardKeys returns the keys of a shard, each followed by its value.
func shardKeys(t *testing.T, x *Index, control string) (all []any) {
	t.Helper()
	keys, err := names(t.Context(), x)
	must(t, err)
	for _, key := range keys {
		if strings.HasPrefix(key, control) {
			value, err := x.client().Dump(t.Context(), key).Result()
			must(t, err)
			all = append(all, key, value)
		}
	}
	return all
}

// moveBack replaces the keys of a shard by older keys, as if a server with an older copy had taken over.
func moveBack(t *testing.T, x *Index, control string, older []any) {
	t.Helper()
	for all := shardKeys(t, x, control); len(all) > 0; all = all[2:] {
		must(t, x.client().Del(t.Context(), all[0].(string)).Err())
	}
	for ; len(older) > 0; older = older[2:] {
		must(t, x.client().Restore(t.Context(), older[0].(string), 0, older[1].(string)).Err())
	}
	must(t, x.client().HSet(t.Context(), control, "id", "1 another server", "seen", 0).Err())
}

// lateSeason is a season of two shards. Shard 0 sends items to their home, shard 1: see lua/channel.lua.
type lateSeason struct {
	t       *testing.T
	x       *Index
	s       *store
	control []string
	version uint64
}

func openLateSeason(t *testing.T) *lateSeason {
	x, s := openIndex(t, options([]string{cluster.Redis(t)}, 2)), newStore(60)
	s.rebuild(t, x)
	l := &lateSeason{t: t, x: x, s: s, control: *x.season(testSeason).control.Load(), version: 1}
	l.change()
	return l
}

// change gives some users new rank keys, but does not deliver the resulting items.
func (l *lateSeason) change() {
	l.t.Helper()
	l.version++
	for i := range 20 {
		e := entry(fmt.Sprint("user ", i), l.version, int64(l.version)*100+int64(i), "F")
		l.s.put(e)
		must(l.t, l.x.run(l.t.Context(), []*call{newCall(updateScript, l.control, shardOf(e.User, 2), append([]any{"", 0, "", 0}, entryArgs(&e)...)...)}))
	}
}

// outbox returns the items in shard 0's outbox for shard 1.
func (l *lateSeason) outbox() delivery {
	l.t.Helper()
	c := newCall(updateScript, l.control, 0, "", 0, "", 0)
	must(l.t, l.x.run(l.t.Context(), []*call{c}))
	all := readSent(nil, []*call{c}).items
	if len(all) != 1 {
		l.t.Fatalf("shard 0 has %d outboxes, want 1", len(all))
	}
	return all[0]
}

func (l *lateSeason) generation() string {
	l.t.Helper()
	live, err := l.x.client().HGet(l.t.Context(), l.control[0], "live").Result()
	must(l.t, err)
	return live
}

// deliver delivers d, and returns the number of items that shard 1 has received, or refusedItems.
func (l *lateSeason) deliver(d delivery) int64 {
	l.t.Helper()
	args := []any{d.generation, d.sender, d.terms, d.offset, len(d.items)}
	for _, item := range d.items {
		args = append(args, item)
	}
	c := newCall(deliverScript, l.control, 1, args...)
	must(l.t, l.x.run(l.t.Context(), []*call{c}))
	c.str() // the server
	return c.int()
}

// field returns a field of a shard's hash :w: see lua/base.lua and lua/channel.lua.
func (l *lateSeason) field(shard int, name string) string {
	l.t.Helper()
	v, err := l.x.client().HGet(l.t.Context(), rawLive(l.t, l.x, shard).at+"w", name).Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		l.t.Fatal(err)
	}
	return v
}

// finish completes the channels, ends the doubt, and checks all ranks.
func (l *lateSeason) finish() {
	l.t.Helper()
	d := advance(l.t, l.x, at(5))
	if d == nil {
		l.t.Fatal("Advance returned no doubt, want one")
	}
	for _, e := range l.s.entries {
		must(l.t, l.x.Update(l.t.Context(), testSeason, epoch, []leaderboard.Entry{e}))
	}
	must(l.t, l.x.Confirm(l.t.Context(), testBoard, *d, at(5), leaderboard.LogSession{Partitions: 1}))
	checkLadders(l.t, l.x, l.s.entries)
}

// Shard 0 loses its last writes. Calls that a process prepared before the loss, and sends after the
// doubt has ended, change nothing.
func TestLateCalls(t *testing.T) {
	l := openLateSeason(t)
	l.deliver(l.outbox())
	older := shardKeys(t, l.x, l.control[0])
	l.change()
	late := l.outbox()
	if n := l.deliver(late); n != late.offset+int64(len(late.items)) {
		t.Fatalf("the home received %d items, want %d", n, late.offset+int64(len(late.items)))
	}
	moveBack(t, l.x, l.control[0], older)
	l.finish()

	if n := l.deliver(late); n != refusedItems {
		t.Errorf("the answer to a delivery with former terms is %d, want %d", n, refusedItems)
	}
	acked := l.field(0, "o1")
	ack := newCall(updateScript, l.control, 0, "", 0, "", 1, late.generation, 1, late.terms, 1_000_000)
	must(t, l.x.run(t.Context(), []*call{ack}))
	if got := l.field(0, "o1"); got != acked {
		t.Errorf("after an acknowledgement with former terms, %s items are acknowledged, want %s", got, acked)
	}
	terms := l.field(1, "f0")
	adopt := newCall(adoptScript, l.control, 1, late.generation, 0, late.terms, late.terms, 1)
	must(t, l.x.run(t.Context(), []*call{adopt}))
	if n := adopt.int(); n != -1 || l.field(1, "f0") != terms {
		t.Errorf("the answer to an adoption of former terms is %d, and the terms are %q; want -1 and %q", n, l.field(1, "f0"), terms)
	}
	checkLadders(t, l.x, l.s.entries)
}

// One of two shards is replaced by an older copy. The other shard has removed the items that the copy
// lacks. So Confirm empties the copy.
func TestForgottenItems(t *testing.T) {
	for _, older := range []int{0, 1} {
		l := openLateSeason(t)
		l.deliver(l.outbox())
		before := shardKeys(t, l.x, l.control[older])
		l.change()
		late := l.outbox()
		n := l.deliver(late)
		must(t, l.x.run(t.Context(), []*call{newCall(updateScript, l.control, 0, "", 0, "", 1, late.generation, 1, late.terms, n)}))
		forgotten := []string{"i:0", "o:1"}[older] // the items that the other shard keeps: see lua/base.lua
		must(t, l.x.client().Del(t.Context(), rawLive(t, l.x, 1-older).at+forgotten).Err())
		moveBack(t, l.x, l.control[older], before)
		d := advance(t, l.x, at(5))
		must(t, l.x.Confirm(t.Context(), testBoard, *d, at(5), leaderboard.LogSession{Partitions: 1}))
		checkUnavailable(t, l.x)
		for shard, key := range l.control {
			busy, err := l.x.client().HExists(t.Context(), key, "busy").Result()
			if must(t, err); busy != (shard != older) {
				t.Errorf("after an older copy replaced shard %d, shard %d is in use: %v, want %v", older, shard, busy, shard != older)
			}
		}
		scan := &partScans{store: l.s}
		scan.restore(t, l.x)
		checkLadders(t, l.x, l.s.entries)
	}
}

// A home has a list of items that the sender must state again. Only an item with "!" and the list's
// name removes the list.
func TestTheListOfItemsToStateAgain(t *testing.T) {
	l := openLateSeason(t)
	l.deliver(l.outbox())
	older := shardKeys(t, l.x, l.control[0])
	l.change()
	l.deliver(l.outbox())
	moveBack(t, l.x, l.control[0], older)
	report := newCall(reportScript, l.control, 0) // shard 0 begins a new term
	must(t, l.x.run(t.Context(), []*call{report}))
	terms := l.field(0, "e1")
	adopt := newCall(adoptScript, l.control, 1, l.generation(), 0, "", terms, l.field(0, "s1"))
	must(t, l.x.run(t.Context(), []*call{adopt}))
	received, name, items := adopt.int(), adopt.str(), adopt.strings()
	if received < 0 || name == "" || len(items) == 0 {
		t.Fatalf("after the adoption, %d items count as received, and the list %q has %d items; want a list with items", received, name, len(items))
	}
	d := delivery{channel{l.generation(), len(l.control), 0, 1}, terms, received, []string{"!another list"}}
	if n := l.deliver(d); n != received+1 || l.field(1, "t0") != name {
		t.Errorf("after the answer to another list, the home has received %d items and has the list %q, want %d and %q", n, l.field(1, "t0"), received+1, name)
	}
	d.offset, d.items = d.offset+1, []string{"!" + name}
	if n := l.deliver(d); n != received+2 || l.field(1, "t0") != "" {
		t.Errorf("after the answer to its list, the home has received %d items and has the list %q, want %d and no list", n, l.field(1, "t0"), received+2)
	}
}
