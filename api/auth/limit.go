package auth

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Rate is the rate of a token bucket. The zero Rate means no limit.
type Rate struct {
	PerSecond float64 // tokens per second; 0 means no limit
	Burst     int     // tokens in a full bucket; 0 means PerSecond, rounded up
}

// Limits are the rates that callers must not exceed.
type Limits struct {
	PerKey  Rate // calls with one API key, or of one JWT subject
	PerUser Rate // results for one user, from all callers
	// PerPeer limits calls without valid credentials from one IPv4 address or IPv6 /64.
	PerPeer Rate
}

// buckets has a token bucket for each key, and evicts the least recently used one above
// maxBuckets. A key without a bucket gets a full one. A nil *buckets limits nothing.
type buckets struct {
	limit rate.Limit
	burst int
	byKey *lru.Cache[string, *rate.Limiter]
}

const maxBuckets = 1 << 16

func newBuckets(r Rate) *buckets {
	if r.PerSecond <= 0 {
		return nil
	}
	burst := r.Burst
	if burst <= 0 {
		burst = max(1, int(math.Ceil(r.PerSecond)))
	}
	byKey, err := lru.New[string, *rate.Limiter](maxBuckets)
	if err != nil {
		panic(err) // the size is positive
	}
	return &buckets{rate.Limit(r.PerSecond), burst, byKey}
}

// reserve takes n tokens, but at most b.burst. If the bucket has too few, reserve takes none
// and returns the time until the bucket has enough. CancelAt of the reservation puts the
// tokens back.
func (b *buckets) reserve(key string, n int, now time.Time) (*rate.Reservation, time.Duration) {
	l, ok := b.byKey.Get(key)
	if !ok {
		l = rate.NewLimiter(b.limit, b.burst)
		if existing, ok, _ := b.byKey.PeekOrAdd(key, l); ok {
			l = existing
		}
	}
	r := l.ReserveN(now, min(n, b.burst))
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return r, wait
}

// take takes one token and returns 0. If the bucket is empty, it returns the time until the
// bucket has a token.
func (b *buckets) take(key string, now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	_, wait := b.reserve(key, 1, now)
	return wait
}

// wait returns the time until a key's bucket has a token. It takes no token.
func (b *buckets) wait(key string, now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	l, ok := b.byKey.Get(key)
	if !ok {
		return 0
	}
	missing := 1 - l.TokensAt(now)
	return time.Duration(max(0, missing) / float64(b.limit) * float64(time.Second))
}

// takeAll takes tokens[key] tokens from the bucket of each key. If one bucket has too few,
// takeAll takes none, and returns the longest wait and its key. A full bucket is enough for
// any number of tokens: the bucket's number of tokens may become negative.
func (b *buckets) takeAll(tokens map[string]int, now time.Time) (slowest string, longest time.Duration) {
	if b == nil {
		return "", 0
	}
	taken := make([]*rate.Reservation, 0, len(tokens))
	for key, n := range tokens {
		r, wait := b.reserve(key, n, now)
		if wait == 0 {
			taken = append(taken, r)
		}
		if wait > longest {
			slowest, longest = key, wait
		}
	}
	if longest > 0 {
		for _, r := range taken {
			r.CancelAt(now)
		}
		return slowest, longest
	}
	for key, n := range tokens {
		for n -= b.burst; n > 0; n -= b.burst {
			l, ok := b.byKey.Get(key)
			if !ok {
				break // the bucket was evicted after reserve
			}
			l.ReserveN(now, min(n, b.burst))
		}
	}
	return "", 0
}

// RateError means that a caller exceeded a rate.
type RateError struct {
	What string // such as "calls with this key"
	Rate Rate
	Wait time.Duration // until the call can succeed
}

func (e *RateError) Error() string {
	return fmt.Sprintf("too many %s: %g a second are allowed; try again in %v", e.What, e.Rate.PerSecond, e.Wait.Round(time.Millisecond))
}

// PeerKey returns the key of an address for limits: the IPv4 address, or the /64 of an IPv6
// address. One caller usually has a whole /64.
func PeerKey(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := ap.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.WithZone("").Prefix(64) // cannot fail for an IPv6 address
	return prefix.String()
}
