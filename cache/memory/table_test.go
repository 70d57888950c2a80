package memory

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
)

// key is a rank key of 8 bytes.
func key(score uint64) leaderboard.RankKey {
	return leaderboard.RankKey(binary.BigEndian.AppendUint64(nil, score))
}

func entry(user string, score uint64, achieved int64, version uint64) leaderboard.Entry {
	return leaderboard.Entry{
		User: leaderboard.UserID(user), Key: key(score),
		AchievedAt: time.UnixMicro(achieved).UTC(), Version: version,
	}
}

func TestTableKeepsInvariants(t *testing.T) {
	for _, c := range []struct {
		name          string
		users, scores int
		times         int64
	}{
		{"few ties", 2000, 1 << 40, 1 << 40}, {"heavy ties", 2000, 5, 3},
		{"one score", 2000, 1, 1}, {"few users", 100, 10, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			tb := newTable(layout{keyBytes: 8, attributes: []string{"a"}})
			for i := range 8000 {
				e := entry(fmt.Sprintf("u%d", rng.IntN(c.users)), uint64(rng.IntN(c.scores)), rng.Int64N(c.times), uint64(i+1))
				switch rng.IntN(4 + i/2000) { // at last mostly removals
				case 0:
				case 1, 2:
					e.Divisions = []leaderboard.Division{{Attribute: "a", Value: fmt.Sprint(rng.IntN(3))}}
				default:
					if i > 2000 {
						e.Key = ""
					}
				}
				if err := tb.apply(&e); err != nil {
					t.Fatal(err)
				}
				if i%200 == 0 {
					if err := tb.check(); err != nil {
						t.Fatalf("after %d: %v", i, err)
					}
				}
			}
			if err := tb.check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
