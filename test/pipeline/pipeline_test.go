// Package pipeline tests the distributed engine from end to end. It submits results over REST or
// writes them to Kafka with kcat, and reads their ranks over REST.
package pipeline

import (
	"os"
	"testing"

	"github.com/open-leaderboard/leaderboard/test/deployment"
)

func TestMain(m *testing.M) { os.Exit(deployment.Main(m)) }
