package ranking

import "testing"

// MissingAtOnce has a pass for missing rows remember fewer users, until the test ends.
func MissingAtOnce(t *testing.T, n int64) {
	was := missingAtOnce
	missingAtOnce = n
	t.Cleanup(func() { missingAtOnce = was })
}

// Remembered returns how many seasons' records s remembers.
func (s *Service) Remembered() (n int) {
	s.seasons.Range(func(any, any) bool { n++; return true })
	return n
}
