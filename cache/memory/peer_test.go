//go:build unix

package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// peer is the plainest index that knows exact ranks, for benchmarks to compare
// with in the same run: a counted B+tree of whole keys, with 64 to a node, and
// the key of each user in an array, so users are the numbers 0 to n-1. It knows
// no ids, versions, divisions or kinds of rank. A node goes when it is empty.
type peer struct {
	keys []peerKey // of each user; score is peerNone if the user does not stand
	root peerNode
}

type peerKey struct {
	score int64
	seq   uint64
	user  uint32
}

const peerNone = int64(-1 << 63)

func (k *peerKey) less(o *peerKey) bool {
	if k.score != o.score {
		return k.score < o.score
	}
	if k.seq != o.seq {
		return k.seq < o.seq
	}
	return k.user < o.user
}

// peerNode is a leaf, whose keys are those of users, or an inner node, whose
// keys are its children's first.
type peerNode struct {
	leaf  *peerLeaf
	inner *peerInner
}

type peerLeaf struct {
	n    int
	keys [fan]peerKey
}

type peerInner struct {
	n      int
	keys   [fan]peerKey
	counts [fan]int64
	nodes  [fan]peerNode
}

func newPeer(users int) *peer {
	p := &peer{keys: make([]peerKey, users), root: peerNode{leaf: &peerLeaf{}}}
	for i := range p.keys {
		p.keys[i].score = peerNone
	}
	return p
}

// search returns how many of the first n keys are less than k.
func peerSearch(keys *[fan]peerKey, n int, k *peerKey) int {
	lo, hi := 0, n
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); keys[mid].less(k) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// child returns which child of in k is in.
func (in *peerInner) child(k *peerKey) int {
	i := peerSearch(&in.keys, in.n, k)
	if i < in.n && in.keys[i] == *k {
		return i
	}
	return max(i-1, 0)
}

func (p *peer) update(user uint32, score int64, seq uint64) {
	if p.keys[user].score != peerNone {
		p.root.remove(&p.keys[user])
	}
	k := peerKey{score, seq, user}
	p.keys[user] = k
	if right := p.root.insert(&k); right != (peerNode{}) {
		in := &peerInner{n: 2}
		for i, node := range []peerNode{p.root, right} {
			in.keys[i], in.counts[i], in.nodes[i] = node.first(), node.count(), node
		}
		p.root = peerNode{inner: in}
	}
}

func (p *peer) rank(user uint32) int64 {
	k, node, before := &p.keys[user], p.root, int64(0)
	for node.inner != nil {
		in := node.inner
		i := in.child(k)
		for _, c := range in.counts[:i] {
			before += c
		}
		node = in.nodes[i]
	}
	return before + int64(peerSearch(&node.leaf.keys, node.leaf.n, k)) + 1
}

func (node peerNode) first() peerKey {
	if node.inner != nil {
		return node.inner.keys[0]
	}
	return node.leaf.keys[0]
}

func (node peerNode) count() int64 {
	if node.inner == nil {
		return int64(node.leaf.n)
	}
	sum := int64(0)
	for _, c := range node.inner.counts[:node.inner.n] {
		sum += c
	}
	return sum
}

// insert returns the node that a full one split off, if it did.
func (node peerNode) insert(k *peerKey) (right peerNode) {
	if lf := node.leaf; lf != nil {
		i := peerSearch(&lf.keys, lf.n, k)
		if lf.n == fan {
			next := &peerLeaf{n: fan / 2}
			copy(next.keys[:], lf.keys[fan/2:])
			lf.n, right.leaf = fan/2, next
			if i > fan/2 {
				lf, i = next, i-fan/2
			}
		}
		copy(lf.keys[i+1:lf.n+1], lf.keys[i:lf.n])
		lf.keys[i] = *k
		lf.n++
		return right
	}
	in := node.inner
	i := in.child(k)
	child := in.nodes[i].insert(k)
	if child == (peerNode{}) {
		in.counts[i]++
		if k.less(&in.keys[i]) {
			in.keys[i] = *k
		}
		return right
	}
	in.keys[i], in.counts[i] = in.nodes[i].first(), in.nodes[i].count()
	if i++; in.n == fan {
		next := &peerInner{n: fan / 2}
		copy(next.keys[:], in.keys[fan/2:])
		copy(next.counts[:], in.counts[fan/2:])
		copy(next.nodes[:], in.nodes[fan/2:])
		in.n, right.inner = fan/2, next
		if i > fan/2 {
			in, i = next, i-fan/2
		}
	}
	copy(in.keys[i+1:in.n+1], in.keys[i:in.n])
	copy(in.counts[i+1:in.n+1], in.counts[i:in.n])
	copy(in.nodes[i+1:in.n+1], in.nodes[i:in.n])
	in.keys[i], in.counts[i], in.nodes[i] = child.first(), child.count(), child
	in.n++
	return right
}

// remove says whether the node is empty then. An inner node's key may be less
// than all that is left in the child.
func (node peerNode) remove(k *peerKey) bool {
	if lf := node.leaf; lf != nil {
		i := peerSearch(&lf.keys, lf.n, k)
		copy(lf.keys[i:], lf.keys[i+1:lf.n])
		lf.n--
		return lf.n == 0
	}
	in := node.inner
	i := in.child(k)
	in.counts[i]--
	if in.nodes[i].remove(k) && in.n > 1 {
		copy(in.keys[i:], in.keys[i+1:in.n])
		copy(in.counts[i:], in.counts[i+1:in.n])
		copy(in.nodes[i:], in.nodes[i+1:in.n])
		in.n--
		in.nodes[in.n] = peerNode{}
	}
	return false
}

func TestPeer(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	p := newPeer(5000)
	for seq := range uint64(60_000) {
		p.update(uint32(rng.IntN(len(p.keys))), rng.Int64N(1000), seq)
	}
	sorted := slices.Clone(p.keys)
	slices.SortFunc(sorted, func(a, b peerKey) int {
		if a.less(&b) {
			return -1
		}
		return 1
	})
	rank := int64(0)
	for _, k := range sorted {
		if k.score == peerNone {
			continue
		}
		if rank++; p.rank(k.user) != rank {
			t.Fatalf("user %d: rank %d, not %d", k.user, p.rank(k.user), rank)
		}
	}
}

func BenchmarkPeer(b *testing.B) {
	for _, n := range benchSizes() {
		b.Run(fmt.Sprintf("%dM", n/1e6), func(b *testing.B) {
			before := heap()
			rng := rand.New(rand.NewPCG(1, 2))
			p, seq := newPeer(n), uint64(0)
			for user := range uint32(n) {
				p.update(user, rng.Int64N(1<<53), seq)
				seq++
			}
			b.Run("memory", func(b *testing.B) {
				for b.Loop() {
				}
				b.ReportMetric(float64(heap()-before)/float64(n), "B/entry")
				b.ReportMetric(0, "ns/op")
			})
			users := make([]uint32, 1<<20)
			for i := range users {
				users[i] = uint32(rng.IntN(n))
			}
			b.Run("rank", func(b *testing.B) {
				measure(b, n, func(i int, _ leaderboard.UserID) { p.rank(users[i&(1<<20-1)]) })
			})
			b.Run("update", func(b *testing.B) {
				measure(b, n, func(i int, _ leaderboard.UserID) {
					p.update(users[i&(1<<20-1)], rng.Int64N(1<<53), seq)
					seq++
				})
			})
		})
	}
}
