package api

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Rate is a token bucket: so many a second for long, and Burst at once. The zero
// Rate is no limit.
type Rate struct {
	PerSecond float64 // 0 is no limit
	Burst     int     // 0 is one second's worth, 1 at least
}

// Limits are the rates that callers are held to.
type Limits struct {
	PerKey  Rate // calls with one API key, or of one JWT subject
	PerUser Rate // results submitted for one user, by anyone
	// PerPeer is for calls without valid credentials from one address, or one
	// IPv6 /64: the connection's own, behind a proxy the proxy's.
	PerPeer Rate
}

// buckets are token buckets by name. The least recently used are forgotten, and
// so full again, when there are too many.
type buckets struct {
	limit rate.Limit
	burst int
	byKey *lru.Cache[string, *rate.Limiter]
}

const maxBuckets = 1 << 16

// newBuckets returns nil, which never limits, for no limit.
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

// reserve takes n tokens, or all there can be if that is less, which the
// reservation's CancelAt of the same time gives back. If there are too few it
// takes none, and returns after how long there will be. b is not nil.
func (b *buckets) reserve(key string, n int, now time.Time) (*rate.Reservation, time.Duration) {
	l, ok := b.byKey.Get(key)
	if !ok {
		l = rate.NewLimiter(b.limit, b.burst)
		if earlier, found, _ := b.byKey.PeekOrAdd(key, l); found {
			l = earlier
		}
	}
	r := l.ReserveN(now, min(n, b.burst))
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return r, wait
}

// take is reserve of one token, to keep.
func (b *buckets) take(key string, now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	_, wait := b.reserve(key, 1, now)
	return wait
}

// takeAll takes as many tokens of each key as it is given, or none at all: then
// it returns the key that has to wait the longest, and how long.
func (b *buckets) takeAll(tokens map[string]int, now time.Time) (last string, longest time.Duration) {
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
			last, longest = key, wait
		}
	}
	if longest > 0 {
		for _, r := range taken {
			r.CancelAt(now)
		}
	}
	return last, longest
}

// limited is the error of a caller who has to wait.
func limited(what string, r Rate, wait time.Duration) error {
	return newStatus(codes.ResourceExhausted,
		fmt.Sprintf("too many %s: %g a second are allowed; try again in %v", what, r.PerSecond, wait.Round(time.Millisecond)),
		errorInfo("RATE_LIMITED"), &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
}

// peerKey is the name of an address for its bucket: the IP address, or of IPv6
// the /64, which one caller commonly has all of.
func peerKey(addr net.Addr) string {
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
	prefix, _ := ip.WithZone("").Prefix(64) // of an IPv6 address, never an error
	return prefix.String()
}
