package cachetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// crowd is many users who move all the time, but of whom all always stand.
type crowd struct {
	f     *fixture
	users []leaderboard.UserID
}

const crowdSize = 120

func newCrowd(f *fixture) *crowd {
	c := &crowd{f: f}
	for i := range crowdSize {
		c.users = append(c.users, leaderboard.UserID(fmt.Sprint("user ", i)))
	}
	return c
}

// entry returns version v of user i: its score is v, but for the bits that make ties.
func (c *crowd) entry(i int, v uint64) leaderboard.Entry {
	return c.f.entry(c.users[i], v, leaderboard.Score(v/4), int(v), fmt.Sprint("gender:", v%2))
}

// versionOf returns the version that a standing shows.
func (c *crowd) versionOf(s *leaderboard.Standing) uint64 {
	return uint64(s.AchievedAt.Sub(start) / time.Second)
}

// consistent returns an error unless the standings follow one another in a ladder.
func consistent(all []leaderboard.Standing) error {
	for i := range all {
		s := &all[i]
		switch r := s.Ranks; {
		case r.Competition < 1 || r.Dense < 1 || r.Dense > r.Competition || r.Competition > r.Ordinal:
			return fmt.Errorf("%q has ranks %+v", s.User, r)
		case i == 0:
			if r.Ordinal == 1 && r != (leaderboard.Ranks{Competition: 1, Dense: 1, Ordinal: 1}) {
				return fmt.Errorf("the first has ranks %+v", r)
			}
		default:
			p := &all[i-1]
			want := leaderboard.Ranks{Competition: r.Ordinal, Dense: p.Ranks.Dense + 1, Ordinal: p.Ranks.Ordinal + 1}
			if p.Key == s.Key {
				want.Competition, want.Dense = p.Ranks.Competition, p.Ranks.Dense
			}
			if p.SortKey() >= s.SortKey() {
				return fmt.Errorf("%q at %d is not behind %q", s.User, r.Ordinal, p.User)
			}
			if r != want {
				return fmt.Errorf("%q has ranks %+v behind %+v, want %+v", s.User, r, p.Ranks, want)
			}
		}
	}
	return nil
}

// read asks one random question and returns an error if the answer contradicts
// itself. seen holds the versions that this reader has seen, which never go back.
func (c *crowd) read(rng *rand.Rand, seen map[leaderboard.UserID]uint64) error {
	f, ctx, l := c.f, c.f.t.Context(), c.f.ladder("")
	user := c.users[rng.IntN(len(c.users))]
	var got []leaderboard.Standing
	var v leaderboard.View
	var err error
	switch rng.IntN(5) {
	case 0:
		got, v, err = f.x.Page(ctx, l, 1, 2*crowdSize)
		if err == nil && len(got) != crowdSize {
			err = fmt.Errorf("whole page of %d standings, want %d", len(got), crowdSize)
		}
	case 1:
		position := int64(1 + rng.IntN(crowdSize))
		got, v, err = f.x.Page(ctx, l, position, 10)
		if err == nil && (len(got) != int(min(10, crowdSize+1-position)) || got[0].Ranks.Ordinal != position) {
			err = fmt.Errorf("page from %d: %d standings from %d", position, len(got), got[0].Ranks.Ordinal)
		}
	case 2:
		got, v, err = f.x.Around(ctx, l, user, 4, 4)
		found := 0
		for _, s := range got {
			if s.User == user {
				found++
			}
		}
		if err == nil && found != 1 {
			err = fmt.Errorf("around %q: found %d times", user, found)
		}
	case 3:
		var counts []leaderboard.Counts
		counts, v, err = f.x.Count(ctx, l, []leaderboard.RankKey{"\x00", f.b.ScorePrefix(leaderboard.Score(rng.IntN(100)), f.now), "\xff\xff"})
		if err == nil && (counts[0] != (leaderboard.Counts{}) || counts[1].Distinct > counts[1].Standings || counts[1].Standings > crowdSize || counts[2].Standings != crowdSize) {
			err = fmt.Errorf("counts %+v", counts)
		}
	case 4:
		return c.readPair(rng, seen)
	}
	if err != nil {
		return err
	}
	if v.Size != crowdSize {
		return fmt.Errorf("size %d, want %d", v.Size, crowdSize)
	}
	if err := consistent(got); err != nil {
		return err
	}
	return c.notBack(got, seen)
}

// readPair asks for two users at once, of one pair.
func (c *crowd) readPair(rng *rand.Rand, seen map[leaderboard.UserID]uint64) error {
	i := rng.IntN(len(c.users)/2) * 2
	got, _, err := c.f.x.Standings(c.f.t.Context(), c.f.ladder(""), c.users[i:i+2])
	if err != nil {
		return err
	}
	for k := range got {
		if got[k].Ranks.Ordinal == 0 {
			return fmt.Errorf("%q does not stand", got[k].User)
		}
	}
	x, y := &got[0], &got[1]
	if before := x.SortKey() < y.SortKey(); before != (x.Ranks.Ordinal < y.Ranks.Ordinal) {
		return fmt.Errorf("%q and %q stand in the wrong order", x.User, y.User)
	}
	if same := x.Key == y.Key; same != (x.Ranks.Competition == y.Ranks.Competition) || same != (x.Ranks.Dense == y.Ranks.Dense) {
		return fmt.Errorf("%q and %q: ranks %+v and %+v", x.User, y.User, x.Ranks, y.Ranks)
	}
	return c.notBack(got, seen)
}

func (c *crowd) notBack(got []leaderboard.Standing, seen map[leaderboard.UserID]uint64) error {
	version := map[leaderboard.UserID]uint64{}
	for i := range got {
		s := &got[i]
		v := c.versionOf(s)
		if v < seen[s.User] {
			return fmt.Errorf("%q went back from version %d to %d", s.User, seen[s.User], v)
		}
		seen[s.User], version[s.User] = v, v
	}
	if c.f.lim.MixedMoments != "" {
		return nil
	}
	// Each pair is moved by one writer, the first user before the second: at any
	// one moment both are at one version, or the first is one ahead.
	for i := 0; i < len(c.users); i += 2 {
		first, ok := version[c.users[i]]
		second, both := version[c.users[i+1]]
		if ok && both && first != second && first != second+1 {
			return fmt.Errorf("%q at version %d beside %q at %d: no moment had both", c.users[i], first, c.users[i+1], second)
		}
	}
	return nil
}

// beside runs writers and readers side by side until all writers are done.
func (c *crowd) beside(seed uint64, readers int, writers ...func(*rand.Rand) error) {
	c.f.t.Helper()
	done := make(chan struct{})
	var reading, writing sync.WaitGroup
	for i := range readers {
		reading.Go(func() {
			rng, seen := rand.New(rand.NewPCG(seed, uint64(i))), map[leaderboard.UserID]uint64{}
			for reads := 0; ; reads++ {
				if err := c.read(rng, seen); err != nil {
					c.f.t.Errorf("reader %d, read %d: %v", i, reads, err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i, w := range writers {
		writing.Go(func() {
			if err := w(rand.New(rand.NewPCG(seed, uint64(100+i)))); err != nil {
				c.f.t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
}

// mover returns a writer that moves the pairs from one to another, version by version.
func (c *crowd) mover(from, to, moves int, version map[int]uint64) func(*rand.Rand) error {
	return func(rng *rand.Rand) error {
		for range moves / 2 {
			i := from + rng.IntN((to-from)/2)*2
			version[i]++
			for _, user := range []int{i, i + 1} {
				if err := c.f.x.Update(c.f.t.Context(), c.f.s, c.f.now, []leaderboard.Entry{c.entry(user, version[i])}); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// load loads the crowd at version 1.
func (c *crowd) load() {
	var entries []leaderboard.Entry
	for i := range c.users {
		entries = append(entries, c.entry(i, 1))
	}
	c.f.must(c.f.x.Rebuild(c.f.t.Context(), c.f.b, c.f.s, c.f.now, sequence(entries...)))
}

// finish checks the crowd where the movers left it.
func (c *crowd) finish(versions ...map[int]uint64) {
	c.f.m.asOf = c.f.now
	for i := range c.users {
		v := uint64(1)
		for _, m := range versions {
			if moved, ok := m[i&^1]; ok {
				v = moved
			}
		}
		c.f.m.update(c.f.now, c.entry(i, v))
	}
	c.f.agrees()
}

func everyAnswerIsOfOneMoment(t *testing.T, f *fixture) {
	c := newCrowd(f)
	c.load()
	low, high := c.versions(0, crowdSize/2), c.versions(crowdSize/2, crowdSize)
	c.beside(random(t).Uint64(), 3,
		c.mover(0, crowdSize/2, f.lim.Moves/2, low),
		c.mover(crowdSize/2, crowdSize, f.lim.Moves/2, high))
	c.finish(low, high)
}

// versions returns the versions of loaded pairs.
func (c *crowd) versions(from, to int) map[int]uint64 {
	m := map[int]uint64{}
	for i := from; i < to; i += 2 {
		m[i] = 1
	}
	return m
}

func rebuildBesideUpdatesAndReads(t *testing.T, f *fixture) {
	c := newCrowd(f)
	c.load()
	versions := c.versions(0, crowdSize)
	// The store of this test: what a Rebuild reads. It is written before the
	// index is updated, as the contract has it.
	var mu sync.Mutex
	store := map[int]uint64{}
	for i := range c.users {
		store[i] = 1
	}
	write := func(rng *rand.Rand) error {
		for range f.lim.Moves / 2 {
			i := rng.IntN(crowdSize/2) * 2
			versions[i]++
			for _, user := range []int{i, i + 1} {
				mu.Lock()
				store[user] = versions[i]
				mu.Unlock()
				if err := f.x.Update(t.Context(), f.s, f.now, []leaderboard.Entry{c.entry(user, versions[i])}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	rebuild := func(rng *rand.Rand) error {
		for range 10 {
			err := f.x.Rebuild(t.Context(), f.b, f.s, f.now, func(yield func(leaderboard.Entry, error) bool) {
				for _, i := range rng.Perm(crowdSize) {
					mu.Lock()
					v := store[i]
					mu.Unlock()
					if !yield(c.entry(i, v), nil) {
						return
					}
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	c.beside(random(t).Uint64(), 2, write, rebuild)
	c.finish(versions)
}

func methodsAreSafeForConcurrentUse(t *testing.T, f *fixture) {
	c := newCrowd(f)
	rng := random(t)
	var all sync.WaitGroup
	for i := range 4 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		all.Go(func() {
			for n := range 100 {
				var err error
				user := rng.IntN(crowdSize)
				switch rng.IntN(8) {
				case 0:
					err = f.x.Rebuild(t.Context(), f.b, f.s, f.now, func(yield func(leaderboard.Entry, error) bool) {
						for i := range c.users {
							if !yield(c.entry(i, 1), nil) {
								return
							}
						}
					})
				case 1:
					err = f.x.Drop(t.Context(), f.s)
				case 2:
					_, err = f.x.Loaded(t.Context(), f.s)
				case 3:
					_, _, err = f.x.Page(t.Context(), f.ladder("gender:0"), 1, 10)
				case 4:
					_, _, err = f.x.Around(t.Context(), f.ladder(""), c.users[user], 1, 1)
				default:
					err = f.x.Update(t.Context(), f.s, f.now, []leaderboard.Entry{c.entry(user, uint64(n))})
				}
				if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) {
					t.Errorf("user %d: %v", user, err)
				}
			}
		})
	}
	all.Wait()
	f.five()
	f.agrees()
}
