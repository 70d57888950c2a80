package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard/test/cluster"
	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// roundsVariable is the environment variable with the number of times that TestDataCenterLost
// loses a region, 1 by default.
const roundsVariable = "LEADERBOARD_TEST_ROUNDS"

// One region is killed under load. The ladders of the other region equal the recount. After the
// killed region has restarted, all ladders equal the recount. Sweeps remove the rows that the killed
// region wrote last and that nobody else replaced. Each round has new boards on the same servers.
func TestDataCenterLost(t *testing.T) {
	needs.Slow(t, "regions")
	rounds := 1
	if text := os.Getenv(roundsVariable); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", roundsVariable, err)
		}
	}
	regions := newRegions(t, "--sweep-interval=5s")
	for round := range rounds {
		if !t.Run(strconv.Itoa(round), func(t *testing.T) { loseDataCenter(t, regions) }) {
			return
		}
	}
}

func loseDataCenter(t *testing.T, regions [2]*region) {
	s := seed.New(t)
	random := rand.New(rand.NewPCG(s, 4))
	i := random.IntN(2)
	lost, survivor := regions[i], regions[1-i]
	// Both regions get results of the ledger "both". While one region is down, the survivor also
	// gets the results of the ledger "alone".
	both, alone := newLedger(t, survivor.node, "both", s), newLedger(t, survivor.node, "alone", s+1)
	lost.waitForBoards(t, both)
	lost.waitForBoards(t, alone)
	h := recordHistories(t, s, survivor.node, survivor.node.Client)
	here, there := startLoad(t, survivor.Deployment, both, survivor.node.Client), startLoad(t, lost.Deployment, both, lost.node.Client)
	here.waitForMore(t, 100)
	there.waitForMore(t, 100)

	servers := []*cluster.Server{lost.node.Server, lost.redis, lost.kafka, lost.cassandra}
	random.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	for _, server := range servers {
		must(t, server.Kill())
	}
	begun, before := time.Now(), here.figures()
	delay := here.waitForRecovery(t, begun)
	load := startLoad(t, survivor.Deployment, alone, survivor.node.Client)
	load.waitForMore(t, 300)
	load.stop()
	check(t, alone, survivor.node)
	during := here.figures()
	t.Logf("region %s was down for %v. Clients of region %s made %d calls; %d failed. %d results were acknowledged, %d of them before they were applied. %d consecutive calls succeeded, the first started after %v",
		lost.name, time.Since(begun).Round(time.Second), survivor.name, during.calls-before.calls, during.errors-before.errors,
		during.acknowledged-before.acknowledged, during.accepted-before.accepted, steadyCalls, delay.Round(time.Millisecond))

	for _, server := range []*cluster.Server{lost.cassandra, lost.kafka, lost.redis, lost.node.Server} {
		must(t, server.Start(t.Context()))
	}
	delay = there.waitForRecovery(t, time.Now())
	t.Logf("region %s is back: %d consecutive calls succeeded, the first started after %v", lost.name, steadyCalls, delay.Round(time.Millisecond))
	there.waitForMore(t, 100)
	there.end()
	here.stop()
	there.stop()
	h.check(t)
	survivor.waitForReplication(t)
	for _, r := range regions {
		r.waitForOrphans(t, both, alone)
	}
	check(t, both, survivor.node, lost.node)
	check(t, alone, survivor.node, lost.node)
}

// waitForOrphans waits until the sweeps have removed the orphan rows of the ledgers' boards.
func (r *region) waitForOrphans(t *testing.T, ledgers ...*ledger) {
	t.Helper()
	for _, l := range ledgers {
		for _, b := range l.boards {
			deployment.Eventually(t, func(context.Context) error {
				if out, _ := runVerify(t, r.node, b); strings.Contains(out, "ROW_GHOST") {
					t.Logf("region %s has orphan rows:\n%s", r.name, out)
					return errors.New(out)
				}
				return nil
			})
		}
	}
	removed, err := r.node.Metric(t.Context(), "leaderboard_sweep_orphan_rows_removed_total")
	must(t, err)
	t.Logf("region %s: the process has removed %v orphan rows since its start", r.name, removed)
}
