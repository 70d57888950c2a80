// Long: each test runs processes of the service, and Kafka hands over their partitions.

// Package pipeline tests the distributed engine from end to end. It submits results over REST or
// writes them to Kafka with kcat, and reads their ranks over REST.
package pipeline

import (
	"os"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
	"github.com/open-leaderboard/leaderboard/test/needs"
)

var _ = needs.PackageWithoutRace("the tests check child processes")

func TestMain(m *testing.M) { os.Exit(deployment.Main(m)) }
