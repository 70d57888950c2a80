package auth

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

type testAddr string

func (testAddr) Network() string  { return "tcp" }
func (a testAddr) String() string { return string(a) }

func TestPeerKeys(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1234":            "192.0.2.7",
		"[::ffff:192.0.2.7]:1":      "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2::9%eth0]:80": "2001:db8:1:2::/64",
		"bufconn":                   "bufconn",
	} {
		if got := PeerKey(testAddr(addr)); got != want {
			t.Errorf("PeerKey(%s) = %s, want %s", addr, got, want)
		}
	}
}

func TestBuckets(t *testing.T) {
	if newBuckets(Rate{}) != nil || newBuckets(Rate{PerSecond: -1}) != nil {
		t.Error("newBuckets returns buckets for a rate without a limit, want nil")
	}
	now := time.Now()
	b := newBuckets(Rate{PerSecond: 2.5}) // each bucket has 3 tokens
	for i := range 3 {
		if wait := b.take("k", now); wait != 0 {
			t.Errorf("token %d: wait %v, want 0", i, wait)
		}
	}
	if wait := b.take("k", now); wait != 400*time.Millisecond {
		t.Errorf("an empty bucket: wait %v, want 400ms", wait)
	}
	// The refused call took no token.
	if wait := b.take("k", now.Add(400*time.Millisecond)); wait != 0 {
		t.Errorf("400 ms after the bucket was empty: wait %v, want 0", wait)
	}
	for i := range maxBuckets + 10 {
		b.take("k"+strings.Repeat("x", i%3)+strconv.Itoa(i), now)
	}
	if n := b.byKey.Len(); n != maxBuckets {
		t.Errorf("the number of buckets is %d, want %d", n, maxBuckets)
	}
}
