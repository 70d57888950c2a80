package official

import (
	"math"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

const batch = 1000

func TestSpecification(t *testing.T) { Specification(t, deployment(t, batch)) }

func TestBoston(t *testing.T) {
	needs.Also(t, "official")
	Boston(t, deployment(t, batch))
}

func TestBostonDivisionAdded(t *testing.T) {
	needs.Slow(t, "official")
	BostonDivisionAdded(t, deployment(t, batch))
}

func TestBostonInOrderOfArrival(t *testing.T) {
	needs.Also(t, "official")
	most := int64(5000)
	if needs.Running("official") {
		most = math.MaxInt64
	}
	BostonInOrderOfArrival(t, deployment(t, batch), most)
}

func TestF1(t *testing.T) {
	needs.Slow(t, "official")
	F1(t, deployment(t, 1))
}

func TestF1ShuffledAndDuplicated(t *testing.T) {
	d := deployment(t, 10)
	s := seed.New(t)
	d.Feeder = Shuffled(Duplicated(d.Feeder, 0.2, s), 40, s)
	F1(t, d)
}

// TestFootball runs while TestLinkedFootball waits for fills.
func TestFootball(t *testing.T) {
	needs.Slow(t, "official")
	t.Parallel()
	Football(t, deployment(t, batch))
}

func TestLinkedFootball(t *testing.T) {
	needs.Slow(t, "official")
	t.Parallel()
	t.Run("one year", func(t *testing.T) { LinkedFootball(t, deployment(t, batch), Years(2019, 2019), 50) })
	t.Run("thirty years", func(t *testing.T) {
		LinkedFootball(t, deployment(t, batch), Years(1990, 2019), 500)
		LinkedFootballShuffled(t, deployment(t, 100), Years(1990, 2019))
	})
}

func TestDecay(t *testing.T) {
	needs.Also(t, "official")
	moments, recent := DecayMoments[:2], 10_000
	if needs.Running("official") {
		moments, recent = DecayMoments, math.MaxInt
	}
	Decay(t, deployment(t, batch), moments, recent)
}

func TestGolf(t *testing.T) { Golf(t, deployment(t, batch)) }

func TestIMO(t *testing.T) { IMO(t, deployment(t, batch)) }
