package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/internal/ranking"
	"github.com/open-leaderboard/leaderboard/test/embedded"
)

// coldProfiles reads each profile from the backend.
type coldProfiles struct{ *engine.Store }

func (s coldProfiles) CachedProfiles(ctx context.Context, users []leaderboard.UserID) ([]leaderboard.Profile, error) {
	return engine.New(s.Backend).CachedProfiles(ctx, users)
}

// BenchmarkPageWithProfiles compares REST answers with the top 100 of 10,000 users on the embedded engine:
// without profiles, with cached profiles, and with profiles that are not cached.
func BenchmarkPageWithProfiles(b *testing.B) {
	store, index := embedded.Open(b)
	cached := newBench(b, store, ranking.New(store, index, ranking.Options{}))
	cold := coldProfiles{store}
	uncached := newBench(b, cold, ranking.New(cold, index, ranking.Options{}))
	for i := range 10 {
		var results, profiles []map[string]any
		for j := range 1000 {
			user := fmt.Sprint("user-", i*1000+j)
			results = append(results, map[string]any{"user_id": user, "match_id": "m", "points": i*1000 + j})
			profiles = append(profiles, map[string]any{"user_id": user, "display_name": fmt.Sprint("Zoë 🏳️‍🌈 ", j), "avatar_url": "https://cdn.example.org/avatars/" + user + ".png", "country": "GBR"})
		}
		cached.must("submit", "POST", "/v1/scores:batch", map[string]any{"results": results})
		cached.must("submit", "POST", "/v1/profiles:batch", map[string]any{"profiles": profiles})
	}
	for _, bench := range []struct {
		name, query string
		h           *harness
	}{{"without", "", cached}, {"cached", "&include_profile=true", cached}, {"uncached", "&include_profile=true", uncached}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(http.MethodGet, "/v1/scores?limit=100"+bench.query, nil)
				req.Header.Set("Authorization", "Bearer "+bench.h.keys["read"])
				w := httptest.NewRecorder()
				if bench.h.Handler().ServeHTTP(w, req); w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}

func newBench(b *testing.B, store leaderboard.Store, svc *ranking.Service) *harness {
	b.Helper()
	if err := svc.EnsureDefaultBoard(b.Context()); err != nil {
		b.Fatal(err)
	}
	return serve(b, svc, store, Options{})
}
