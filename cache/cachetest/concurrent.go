package cachetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// crowd is a set of users that writers move while readers read. For each even i, users i and i+1 are
// a pair: one writer moves both to each version, user i first.
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

// entry returns version v of user i's entry. The score is v/4, so that users tie.
func (c *crowd) entry(i int, v uint64) leaderboard.Entry {
	return c.f.entry(c.users[i], v, leaderboard.Score(v/4), int(v), fmt.Sprint("gender:", v%2))
}

func (c *crowd) versionOf(s *leaderboard.Standing) uint64 {
	return uint64(s.AchievedAt.Sub(start) / time.Second)
}

// checkConsistent returns an error if the standings cannot be consecutive in one ladder.
func checkConsistent(all []leaderboard.Standing) error {
	for i := range all {
		s := &all[i]
		switch r := s.Ranks; {
		case r.Competition < 1 || r.Dense < 1 || r.Dense > r.Competition || r.Competition > r.Ordinal:
			return fmt.Errorf("%q has ranks %+v, which contradict each other", s.User, r)
		case i == 0:
			if r.Ordinal == 1 && r != (leaderboard.Ranks{Competition: 1, Dense: 1, Ordinal: 1}) {
				return fmt.Errorf("the standing with the ordinal rank 1 has ranks %+v, want 1 for each", r)
			}
		default:
			p := &all[i-1]
			want := leaderboard.Ranks{Competition: r.Ordinal, Dense: p.Ranks.Dense + 1, Ordinal: p.Ranks.Ordinal + 1}
			if p.Key == s.Key {
				want.Competition, want.Dense = p.Ranks.Competition, p.Ranks.Dense
			}
			if p.SortKey() >= s.SortKey() {
				return fmt.Errorf("%q, at position %d, follows %q, which has no smaller sort key", s.User, r.Ordinal, p.User)
			}
			if r != want {
				return fmt.Errorf("%q has ranks %+v after a standing with ranks %+v, want %+v", s.User, r, p.Ranks, want)
			}
		}
	}
	return nil
}

// read makes a random read. seen has the latest version of each user that the reader has seen.
func (c *crowd) read(rng *rand.Rand, seen map[leaderboard.UserID]uint64) error {
	f, ctx, l := c.f, c.f.ctx, c.f.ladder("")
	user := c.users[rng.IntN(len(c.users))]
	var got []leaderboard.Standing
	var v leaderboard.View
	var err error
	switch rng.IntN(5) {
	case 0:
		got, v, err = f.Page(ctx, l, 1, 2*crowdSize)
		if err == nil && len(got) != crowdSize {
			err = fmt.Errorf("the page of the ladder has %d standings, want %d", len(got), crowdSize)
		}
	case 1:
		position := int64(1 + rng.IntN(crowdSize))
		got, v, err = f.Page(ctx, l, position, 10)
		if want := int(min(10, crowdSize+1-position)); err == nil && len(got) != want {
			err = fmt.Errorf("the page from position %d has %d standings, want %d", position, len(got), want)
		}
		if err == nil && got[0].Ranks.Ordinal != position {
			err = fmt.Errorf("the page from position %d begins with the ordinal rank %d", position, got[0].Ranks.Ordinal)
		}
	case 2:
		got, v, err = f.around(l, user, 4, 4)
		occurrences := 0
		for _, s := range got {
			if s.User == user {
				occurrences++
			}
		}
		if err == nil && occurrences != 1 {
			err = fmt.Errorf("the answer of Around %q has the user %d times, want once", user, occurrences)
		}
	case 3:
		var counts []leaderboard.Counts
		counts, v, err = f.Count(ctx, l, []leaderboard.RankKey{"\x00", f.board.ScorePrefix(leaderboard.Score(rng.IntN(100)), f.now), "\xff\xff"})
		if err == nil && (counts[0] != (leaderboard.Counts{}) || !f.lacksDense() && counts[1].Distinct > counts[1].Standings || counts[1].Standings > crowdSize || counts[2].Standings != crowdSize) {
			err = fmt.Errorf("counts of standings before three keys: %+v; want 0 before the best key, at most %d before a middle key, and %d before the worst key", counts, crowdSize, crowdSize)
		}
	case 4:
		return c.readPair(rng, seen)
	}
	if err != nil {
		return err
	}
	if v.Size != crowdSize {
		return fmt.Errorf("the View has the size %d, want %d", v.Size, crowdSize)
	}
	if f.lacksDense() {
		assignDense(got)
	}
	if err := checkConsistent(got); err != nil {
		return err
	}
	return c.checkVersions(got, seen)
}

func (c *crowd) readPair(rng *rand.Rand, seen map[leaderboard.UserID]uint64) error {
	i := rng.IntN(len(c.users)/2) * 2
	got, _, err := c.f.Standings(c.f.ctx, c.f.ladder(""), c.users[i:i+2])
	if err != nil {
		return err
	}
	if len(got) != 2 {
		return fmt.Errorf("the answer of Standings has %d users, want 2", len(got))
	}
	for k := range got {
		if got[k].Ranks.Ordinal == 0 {
			return fmt.Errorf("%q has no standing, want one", got[k].User)
		}
	}
	x, y := &got[0], &got[1]
	if before := x.SortKey() < y.SortKey(); before != (x.Ranks.Ordinal < y.Ranks.Ordinal) {
		return fmt.Errorf("the ordinal ranks of %q and %q contradict their sort keys", x.User, y.User)
	}
	if same := x.Key == y.Key; same != (x.Ranks.Competition == y.Ranks.Competition) || !c.f.lacksDense() && same != (x.Ranks.Dense == y.Ranks.Dense) {
		return fmt.Errorf("%q and %q have ranks %+v and %+v, and their rank keys are equal: %v; want equal competition and dense ranks if and only if the rank keys are equal", x.User, y.User, x.Ranks, y.Ranks, same)
	}
	return c.checkVersions(got, seen)
}

// checkVersions returns an error if a user has an older version than in seen, or if the two users
// of a pair never had these versions at the same moment.
func (c *crowd) checkVersions(got []leaderboard.Standing, seen map[leaderboard.UserID]uint64) error {
	version := map[leaderboard.UserID]uint64{}
	for i := range got {
		s := &got[i]
		v := c.versionOf(s)
		if v < seen[s.User] {
			return fmt.Errorf("%q went back from version %d to %d", s.User, seen[s.User], v)
		}
		seen[s.User], version[s.User] = v, v
	}
	if c.f.limits.MixedMoments != "" {
		return nil
	}
	// The first user of a pair moves first, so the first user's version may be higher by 1.
	for i := 0; i < len(c.users); i += 2 {
		first, ok := version[c.users[i]]
		second, both := version[c.users[i+1]]
		if ok && both && first != second && first != second+1 {
			return fmt.Errorf("%q at version %d and %q at version %d: the users never had these versions at the same moment", c.users[i], first, c.users[i+1], second)
		}
	}
	return nil
}

func (c *crowd) runConcurrently(seed uint64, readers int, writers ...func(*rand.Rand) error) {
	c.f.Helper()
	done := make(chan struct{})
	var reading, writing sync.WaitGroup
	for i := range readers {
		reading.Go(func() {
			rng, seen := rand.New(rand.NewPCG(seed, uint64(i))), map[leaderboard.UserID]uint64{}
			for reads := 0; ; reads++ {
				if err := c.read(rng, seen); err != nil {
					c.f.Errorf("reader %d, read %d: %v", i, reads, err)
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
				c.f.Errorf("writer %d: %v", i, err)
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
}

// mover returns a writer that moves random pairs of the users first to end-1. version has each
// pair's version, by the pair's first user.
func (c *crowd) mover(first, end, moves int, version map[int]uint64) func(*rand.Rand) error {
	return func(rng *rand.Rand) error {
		for range moves / 2 {
			i := first + rng.IntN((end-first)/2)*2
			version[i]++
			for _, user := range []int{i, i + 1} {
				if err := c.f.Update(c.f.ctx, c.f.key, c.f.now, []leaderboard.Entry{c.entry(user, version[i])}); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func (c *crowd) firstVersions(first, end int) map[int]uint64 {
	m := map[int]uint64{}
	for i := first; i < end; i += 2 {
		m[i] = 1
	}
	return m
}

func (c *crowd) load() {
	var entries []leaderboard.Entry
	for i := range c.users {
		entries = append(entries, c.entry(i, 1))
	}
	c.f.ok("Rebuild", c.f.Rebuild(c.f.ctx, c.f.board, c.f.key, c.f.now, sequence(entries...)))
}

func (c *crowd) checkLast(versions ...map[int]uint64) {
	c.f.model.asOf = c.f.now
	for i := range c.users {
		v := uint64(1)
		for _, m := range versions {
			if last, ok := m[i&^1]; ok { // the pair's first user
				v = last
			}
		}
		c.f.model.update(c.f.now, c.entry(i, v))
	}
	c.f.compareAll()
}

var concurrencyTests = []test{
	{"every answer shows the ladder at one moment", func(f *fixture) {
		c := newCrowd(f)
		c.load()
		low, high := c.firstVersions(0, crowdSize/2), c.firstVersions(crowdSize/2, crowdSize)
		c.runConcurrently(random(f.T).Uint64(), 3,
			c.mover(0, crowdSize/2, f.sizes.Moves/2, low),
			c.mover(crowdSize/2, crowdSize, f.sizes.Moves/2, high))
		c.checkLast(low, high)
	}},
	{"a Rebuild includes every Update made while it runs", func(f *fixture) {
		c := newCrowd(f)
		c.load()
		versions := c.firstVersions(0, crowdSize)
		// Rebuild reads the map store. As the contract demands, write changes store first.
		var mu sync.Mutex
		store := map[int]uint64{}
		for i := range c.users {
			store[i] = 1
		}
		write := func(rng *rand.Rand) error {
			for range f.sizes.Moves / 2 {
				i := rng.IntN(crowdSize/2) * 2
				versions[i]++
				for _, user := range []int{i, i + 1} {
					mu.Lock()
					store[user] = versions[i]
					mu.Unlock()
					if err := f.Update(f.ctx, f.key, f.now, []leaderboard.Entry{c.entry(user, versions[i])}); err != nil {
						return err
					}
				}
			}
			return nil
		}
		rebuild := func(rng *rand.Rand) error {
			for range 10 {
				err := f.Rebuild(f.ctx, f.board, f.key, f.now, func(yield func(leaderboard.Entry, error) bool) {
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
		c.runConcurrently(random(f.T).Uint64(), 2, write, rebuild)
		c.checkLast(versions)
	}},
	{"methods are safe for concurrent use", func(f *fixture) {
		c := newCrowd(f)
		rng := random(f.T)
		var all sync.WaitGroup
		for i := range 4 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
			all.Go(func() {
				for n := range 100 {
					var err error
					user := rng.IntN(crowdSize)
					switch rng.IntN(8) {
					case 0:
						err = f.Rebuild(f.ctx, f.board, f.key, f.now, func(yield func(leaderboard.Entry, error) bool) {
							for i := range c.users {
								if !yield(c.entry(i, 1), nil) {
									return
								}
							}
						})
					case 1:
						err = f.Drop(f.ctx, f.key)
					case 2:
						_, err = f.Loaded(f.ctx, f.key)
					case 3:
						_, _, err = f.Page(f.ctx, f.ladder("gender:0"), 1, 10)
					case 4:
						_, _, err = f.Around(f.ctx, f.ladder(""), c.users[user], 1, 1)
					default:
						err = f.Update(f.ctx, f.key, f.now, []leaderboard.Entry{c.entry(user, uint64(n))})
					}
					if err != nil && !errors.Is(err, leaderboard.ErrRankUnavailable) {
						f.Errorf("a call for user %d: error %v, want no error or ErrRankUnavailable", user, err)
					}
				}
			})
		}
		all.Wait()
		f.loadFive()
		f.compareAll()
	}},
}
