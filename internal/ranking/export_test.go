package ranking

import "testing"

// SetMaxUsersInPass sets how many users a pass for missing rows holds in memory,
// until the test ends.
func SetMaxUsersInPass(t *testing.T, n int64) {
	was := maxUsersInPass
	maxUsersInPass = n
	t.Cleanup(func() { maxUsersInPass = was })
}

// CachedSeasons returns how many season records are cached.
func (c *BoardCache) CachedSeasons() (n int) {
	c.seasons.Range(func(any, any) bool { n++; return true })
	return n
}
