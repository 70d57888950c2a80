// Package pipeline tests the distributed engine from end to end: results that
// come in over REST, or straight into Kafka from clients that are not ours, until
// their ranks are seen.
package pipeline

import (
	"os"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

func TestMain(m *testing.M) { os.Exit(deployment.Main(m)) }
