package consumer

import (
	"testing"

	"github.com/open-leaderboard/leaderboard/internal/kafka"
)

func TestOnlyMirrorsOfOtherRegionsResultsAreRead(t *testing.T) {
	for _, tt := range []struct {
		region, prefix, topic string
		want                  bool
	}{
		{"", "", "eu.match-results", true},
		{"us", "", "eu.match-results", true},
		{"us", "", "us.match-results", false},
		{"us", "", "eu.us.match-results", false},
		{"us", "", "match-results", false},
		{"us", "", ".match-results", false},
		{"us", "", "eu.match-results.dlq", false},
		{"us", "", "eu.leaderboard-updates", false},
		{"us", "", "eu.arena-match-results", false},
		{"us", "arena-", "eu.arena-match-results", true},
		{"us", "arena-", "us.arena-match-results", false},
		{"us", "arena-", "eu.match-results", false},
	} {
		o := Options{Region: tt.region, Topics: kafka.Topics{Prefix: tt.prefix}}
		if got := o.isMirror(tt.topic); got != tt.want {
			t.Errorf("region %q, prefix %q: isMirror(%q) = %v, want %v", tt.region, tt.prefix, tt.topic, got, tt.want)
		}
	}
}
