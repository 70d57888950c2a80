package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

// object is a JSON object, such as the body of POST /v1/boards.
type object map[string]any

// policies are the bodies of POST /v1/boards for a ledger's boards.
var policies = []object{
	{"policy": "BEST", "order": "LOWER_FIRST", "season": object{"schedule": "NONE"}, "attributes": []string{"team"}},
	{"policy": "SUM", "order": "HIGHER_FIRST", "season": object{"schedule": "NONE"}, "divisions": []string{"team"}},
	{"policy": "LATEST", "order": "HIGHER_FIRST", "season": object{"schedule": "NONE"}, "divisions": []string{"team"}},
}

type board struct {
	id, policy string
	lowerFirst bool
	teams      bool // each team has a ladder too
}

// match identifies a result. All revisions of a result have the same match.
type match struct {
	board    *board
	user, id string
}

// result is one revision of a result, or a retraction.
type result struct {
	match
	revision   int64
	retracted  bool
	score      int64 // on a board with the policy SUM: points
	achievedAt time.Time
	team       string
}

// ledger generates random results, corrections and retractions, and records them. The method next
// returns some revisions before earlier revisions, and some revisions twice. A ledger is safe for
// concurrent use.
type ledger struct {
	boards []*board

	mu      sync.Mutex
	random  *rand.Rand
	all     []*result
	last    map[match]*result // the highest revision of each match
	pending []*result         // generated, but not returned yet
	repeats int               // calls of next that returned an earlier result again
}

const (
	usersPerBoard  = 40
	matchesPerUser = 6
	pendingResults = 20
)

func newLedger(t *testing.T, n *deployment.Node, name string, seed uint64) *ledger {
	t.Helper()
	l := &ledger{random: rand.New(rand.NewPCG(seed, 0)), last: map[match]*result{}}
	for _, r := range policies {
		policy := r["policy"].(string)
		_, teams := r["divisions"]
		l.boards = append(l.boards, &board{
			id: n.Board(t, name+"-"+strings.ToLower(policy), r), policy: policy, lowerFirst: r["order"] == "LOWER_FIRST", teams: teams,
		})
	}
	return l
}

var epoch = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func (l *ledger) next() *result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) > 0 && l.random.IntN(6) == 0 {
		l.repeats++
		return l.all[l.random.IntN(len(l.all))]
	}
	l.pending = append(l.pending, l.make())
	if len(l.pending) <= pendingResults {
		l.pending = append(l.pending, l.make())
	}
	return l.release()
}

func (l *ledger) unsent() *result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return nil
	}
	return l.release()
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d revisions of %d matches, %d sent twice", len(l.all), len(l.last), l.repeats)
}

func (l *ledger) release() *result {
	i, end := l.random.IntN(len(l.pending)), len(l.pending)-1
	r := l.pending[i]
	l.pending[i], l.pending = l.pending[end], l.pending[:end]
	return r
}

func (l *ledger) make() *result {
	r := &result{
		match: match{
			l.boards[l.random.IntN(len(l.boards))],
			fmt.Sprintf("user-%02d", l.random.IntN(usersPerBoard)), fmt.Sprintf("match-%d", l.random.IntN(matchesPerUser)),
		},
		score:      1 + l.random.Int64N(300), // a small range makes ties likely
		achievedAt: epoch.Add(time.Duration(l.random.IntN(100_000)) * time.Second),
		team:       []string{"red", "blue", "green"}[l.random.IntN(3)],
	}
	if previous := l.last[r.match]; previous != nil {
		r.revision = previous.revision + 1
		r.retracted = l.random.IntN(3) == 0
	}
	l.last[r.match] = r
	l.all = append(l.all, r)
	return r
}

type standing struct {
	User       string    `json:"user_id"`
	Score      int64     `json:"score"`
	Rank       *int64    `json:"rank"`
	AchievedAt time.Time `json:"achieved_at"`
}

func (s standing) String() string {
	rank := "-"
	if s.Rank != nil {
		rank = fmt.Sprint(*s.Rank)
	}
	return fmt.Sprintf("%s %s %d %s", rank, s.User, s.Score, s.AchievedAt.UTC().Format(time.RFC3339))
}

// recount returns a board's ladder, overall or of a team. It shares no code with the service.
func (l *ledger) recount(b *board, team string) []standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	byUser := map[string][]*result{}
	for m, r := range l.last {
		if m.board == b && !r.retracted {
			byUser[m.user] = append(byUser[m.user], r)
		}
	}
	better := func(x, y int64) int {
		if b.lowerFirst {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(y, x)
	}
	list := []standing{}
	for _, user := range slices.Sorted(maps.Keys(byUser)) {
		results := byUser[user]
		latest := slices.MaxFunc(results, func(x, y *result) int {
			return cmp.Or(x.achievedAt.Compare(y.achievedAt), cmp.Compare(x.id, y.id))
		})
		if team != "" && latest.team != team {
			continue
		}
		s := standing{User: user, Score: latest.score, AchievedAt: latest.achievedAt}
		switch b.policy {
		case "BEST":
			best := slices.MinFunc(results, func(x, y *result) int {
				return cmp.Or(better(x.score, y.score), x.achievedAt.Compare(y.achievedAt))
			})
			s.Score, s.AchievedAt = best.score, best.achievedAt
		case "SUM":
			s.Score = 0
			for _, r := range results {
				s.Score += r.score
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y standing) int {
		return cmp.Or(better(x.Score, y.Score), x.AchievedAt.Compare(y.AchievedAt), cmp.Compare(x.User, y.User))
	})
	for i := range list {
		rank := int64(i + 1)
		if i > 0 && list[i].Score == list[i-1].Score {
			rank = *list[i-1].Rank
		}
		list[i].Rank = &rank
	}
	return list
}

func (b *board) ladders() []string {
	if b.teams {
		return []string{"", "red", "blue", "green"}
	}
	return []string{""}
}

// json returns r in the format of REST calls and Kafka messages.
func (r *result) json() map[string]any {
	v := map[string]any{"user_id": r.user, "match_id": r.id, "revision": r.revision}
	if r.retracted {
		return v
	}
	v["achieved_at"], v["attributes"] = r.achievedAt.Format(time.RFC3339), map[string]string{"team": r.team}
	if r.board.policy == "SUM" {
		v["points"] = r.score
	} else {
		v["score"] = r.score
	}
	return v
}
