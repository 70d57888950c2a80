package redis

import (
	"fmt"
	"slices"
)

// treeWriter writes a new tree (see lua/tree.lua) from strings in order. It keeps in memory only the
// strings that are in no job yet (see job in bulk.go), and the counts of groups.
type treeWriter struct {
	b    *bulk
	part *portion
	at   string // the beginning of the names of the tree's keys

	// The open leaf is the last leaf, to which the method add adds strings.
	leaf    string   // its name
	n, f    int      // its numbers of strings and followers
	longest int      // the length of its longest string
	strings []string // its strings that are in no command yet
	last    string   // last string of the tree

	leaves int         // of the tree
	closed []command   // commands that are in no job yet
	names  []string    // leaves that the next job adds to the directory (key d) of the last group
	group  groupCounts // last group
	before groupCounts // previous group
	sums   []int       // strings of each closed group
	fsums  []int       // followers of each closed group
}

// groupCounts has the counts of a group's closed leaves.
type groupCounts struct {
	name           string
	leaves         int
	strings        int
	followers      int
	counts, follow []byte // the values of the keys c and f
}

// leafSize returns the number of strings that treeWriter puts into a leaf whose longest string has the
// given length. A fifth of the leaf remains free for new strings.
func leafSize(longest int) int { return max(min(treeSizes.bits, leafBytes/(longest+4)), 8) * 4 / 5 }

// add adds a string, which must be greater than the previous one.
func (t *treeWriter) add(s string) error {
	if t.leaves == 0 {
		t.open("")
	} else if t.n >= leafSize(max(t.longest, len(s))) {
		t.close()
		if t.group.leaves == treeSizes.group*3/4 {
			if err := t.closeGroup(); err != nil {
				return err
			}
			t.group.name = separator(t.last, s)
		}
		t.open(separator(t.last, s))
	}
	if kb := t.b.g.keyBytes; t.last != "" && t.last[:kb] == s[:kb] {
		t.f++
	}
	t.n, t.longest, t.last = t.n+1, max(t.longest, len(s)), s
	t.strings = append(t.strings, s)
	return t.b.keep(int64(len(s)) + 40)
}

// separator returns the shortest prefix of b that is greater than a. It names a leaf that begins
// with b, after a leaf that ends with a.
func separator(a, b string) string {
	for i := range len(b) {
		if i == len(a) || a[i] != b[i] {
			return b[:i+1]
		}
	}
	return b
}

func (t *treeWriter) open(name string) {
	t.leaf, t.n, t.f, t.longest, t.strings = name, 0, 0, 0, nil
	t.leaves++
	t.names = append(t.names, name)
}

func (t *treeWriter) close() {
	t.take()
	g, from := &t.group, t.group.leaves*treeSizes.bits/8
	g.counts = append(g.counts, make([]byte, treeSizes.bits/8)...)
	g.follow = append(g.follow, make([]byte, treeSizes.bits/8)...)
	setOnes(g.counts[from:], t.n)
	setOnes(g.follow[from:], t.f)
	g.leaves, g.strings, g.followers = g.leaves+1, g.strings+t.n, g.followers+t.f
}

func setOnes(b []byte, n int) {
	for i := range n {
		b[i/8] |= 0x80 >> (i % 8)
	}
}

// take makes a command of the open leaf's strings that are in no command yet. The strings are in
// descending order. Redis searches a leaf from its beginning, so it finds each string's place at once.
func (t *treeWriter) take() {
	if len(t.strings) == 0 {
		return
	}
	args := make([]any, 2, 2+2*len(t.strings))
	args[0], args[1] = "ZADD", t.at+"l"+t.leaf
	for _, s := range slices.Backward(t.strings) {
		args = append(args, "0", s)
	}
	t.closed = append(t.closed, command{len(t.strings), args})
	t.strings = nil
}

// flush makes a job of all strings that are in no job yet, and of the commands in more. The job adds
// each leaf to the group's directory before it writes the leaf's strings, so free.lua finds the leaf. Jobs
// of the tree may be executed in any order. A tree of one leaf has no directory.
func (t *treeWriter) flush(more ...command) error {
	t.take()
	if len(t.closed)+len(more) == 0 {
		return nil
	}
	var all []command
	if t.leaves > 1 {
		if t.group.name != "" {
			r := t.at + "r"
			all = append(all, command{2, []any{"ZADD", r, "0", unpacked, "0", "", "0", t.group.name}}, command{1, []any{"ZREM", r, unpacked}})
		}
		d := []any{"ZADD", t.at + "d" + t.group.name, "0", unpacked}
		for _, name := range t.names {
			d = append(d, "0", name)
		}
		all = append(all, command{len(t.names), d}, command{1, []any{"ZREM", d[1], unpacked}})
		t.names = []string{t.leaf} // the next job may write more strings of the open leaf
	}
	all = append(append(all, t.closed...), more...)
	t.closed = nil
	return t.b.emit(job{t.part, all})
}

func (t *treeWriter) closeGroup() error {
	g := t.group
	if err := t.flush(t.setCounts(&g)...); err != nil {
		return err
	}
	t.sums, t.fsums = append(t.sums, g.strings), append(t.fsums, g.followers)
	t.before, t.group, t.names = g, groupCounts{}, nil
	return nil
}

func (t *treeWriter) setCounts(g *groupCounts) []command {
	all := []command{{1, []any{"SET", t.at + "c" + g.name, g.counts}}}
	if g.followers > 0 {
		all = append(all, command{1, []any{"SET", t.at + "f" + g.name, g.follow}})
	}
	return all
}

// finish ends the tree. It returns the commands that must be executed after all jobs.
func (t *treeWriter) finish() (last []command, err error) {
	if t.leaves <= 1 {
		return nil, t.flush()
	}
	t.close()
	if t.group.leaves == 1 && len(t.sums) > 0 {
		// In a tree of several groups, no group may have only one leaf.
		if err := t.flush(); err != nil {
			return nil, err
		}
		last = t.join()
	} else if err := t.closeGroup(); err != nil {
		return nil, err
	}
	if len(t.sums) > 1 {
		last = append(last, t.writeSums()...)
	}
	return last, nil
}

// join moves the only leaf of the last group to the previous group.
func (t *treeWriter) join() []command {
	g, one, n := t.before, t.group, len(t.sums)
	all := []command{
		{1, []any{"ZADD", t.at + "d" + g.name, "0", one.name}},
		{1, []any{"UNLINK", t.at + "d" + one.name}}, {1, []any{"ZREM", t.at + "r", one.name}},
	}
	if n == 1 {
		all = append(all, command{1, []any{"UNLINK", t.at + "r"}})
	}
	g.counts, g.follow = append(g.counts, one.counts...), append(g.follow, one.follow...)
	g.followers += one.followers
	t.sums[n-1], t.fsums[n-1] = t.sums[n-1]+one.strings, g.followers
	return append(all, t.setCounts(&g)...)
}

func (t *treeWriter) writeSums() []command {
	var fields []any
	add := func(kind string, counts []int) (total int) {
		sums := make([]int, len(counts)+1)
		for i := 1; i <= len(counts); i++ {
			total += counts[i-1]
			sums[i] += counts[i-1]
			if j := i + i&-i; j < len(sums) {
				sums[j] += sums[i]
			}
			fields = append(fields, fmt.Sprint(kind, i), sums[i])
		}
		return total
	}
	strings, followers := add("", t.sums), add("f", t.fsums)
	s := t.at + "s"
	all := []command{{3, []any{"HSET", s, "x", unpacked, "t", strings, "ft", followers}}, {1, []any{"HDEL", s, "x"}}}
	return append(all, setFields(s, fields)...)
}
