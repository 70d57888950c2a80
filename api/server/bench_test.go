package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func BenchmarkREST(b *testing.B) {
	h := newHarness(b, Options{})
	for i := range 10 {
		var body strings.Builder
		body.WriteString(`{"results":[`)
		for j := range 1000 {
			if j > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"user_id":"user-%d","match_id":"m","points":%d}`, i*1000+j, i*j)
		}
		body.WriteString(`]}`)
		h.must("submit", "POST", "/v1/scores:batch", body.String())
	}
	n := 0
	for name, request := range map[string]func() *http.Request{
		"top10":     func() *http.Request { return httptest.NewRequest(http.MethodGet, "/v1/scores", nil) },
		"top1000":   func() *http.Request { return httptest.NewRequest(http.MethodGet, "/v1/scores?limit=1000", nil) },
		"neighbors": func() *http.Request { return httptest.NewRequest(http.MethodGet, "/v1/scores/user-5000", nil) },
		"submit": func() *http.Request {
			n++
			return httptest.NewRequest(http.MethodPost, "/v1/scores", strings.NewReader(fmt.Sprintf(`{"user_id":"user-%d","match_id":"b%d","points":1}`, n%10000, n)))
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := request()
				req.Header.Set("Authorization", "Bearer "+h.keys["admin"])
				w := httptest.NewRecorder()
				if h.Handler().ServeHTTP(w, req); w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}
