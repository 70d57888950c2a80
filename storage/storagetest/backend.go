package storagetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/internal/engine"
	"github.com/open-leaderboard/leaderboard/storage"
	"github.com/open-leaderboard/leaderboard/test/seed"
)

// RunBackend tests each sentence about registers and rows with a new backend. Each call of
// newBackend must return an empty backend, which RunBackend closes.
func RunBackend(t *testing.T, newBackend func(testing.TB) storage.Backend) {
	for _, test := range []struct {
		sentence string
		run      func(*testing.T, storage.Backend)
	}{
		{"Swap replaces a register whose value is old", swapReplaces},
		{"Registers returns a list ordered by key, or the registers with a tag", registersByTag},
		{"of concurrent calls of Swap for one old value, one returns true", swapOnce},
		{"a register no longer exists after its TTL", registerExpires},
		{"Rows yields the rows with greater keys, ordered by key", rowsAfter},
		{"RowValues returns the values of rows, in the order of keys", rowValues},
		{"RowRanges returns the first rows with a prefix, after a key", rowRanges},
		{"the order and the repetition of WriteRows do not matter", rowsInAnyOrder},
		{"ListRows yields the rows of lists whose keys begin with a prefix", rowsOfLists},
		{"after RemoveRows, earlier versions have no effect", removedLists},
		{"a removal with Forget removes the row", forgottenRemovals},
		{"a deletion ends the incarnation of a season, and tells of it", incarnationsEnd},
		{"ErasedAt returns the time of the last erasure", erasedAt},
		{"ChangeAccount reads the account after its writes, and returns errors of Read", changedAccount},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			b := newBackend(t)
			engine.New(b)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			test.run(t, b)
		})
	}
}

// A register of the tests: key, tag and value, separated by colons.
func parseRegister(text string) storage.Register {
	parts := strings.Split(text, ":")
	r := storage.Register{Key: parts[0]}
	if parts[1] != "" {
		r.Tag = []byte(parts[1])
	}
	if parts[2] != "" {
		r.Value = []byte(parts[2])
	}
	return r
}

func swap(t *testing.T, b storage.Backend, list, old, text string, want bool) {
	t.Helper()
	var oldValue []byte
	if old != "" {
		oldValue = []byte(old)
	}
	if ok, err := b.Swap(t.Context(), list, oldValue, parseRegister(text)); ok != want || err != nil {
		t.Fatalf("Swap of %q for %q in list %q returned %v, error %v; want %v", text, old, list, ok, err, want)
	}
}

func checkRegisters(t *testing.T, b storage.Backend, list, tag string, want ...string) {
	t.Helper()
	var tagBytes []byte
	if tag != "" {
		tagBytes = []byte(tag)
	}
	registers, err := b.Registers(t.Context(), list, tagBytes)
	if err != nil {
		t.Fatalf("Registers: %v", err)
	}
	var got []string
	for _, r := range registers {
		got = append(got, r.Key+":"+string(r.Value))
	}
	if err := diff(fmt.Sprintf("registers of list %q with tag %q", list, tag), want, got); err != nil {
		t.Error(err)
	}
}

func swapReplaces(t *testing.T, b storage.Backend) {
	swap(t, b, "l", "", "k::1", true)
	swap(t, b, "l", "", "k::2", false)
	swap(t, b, "l", "2", "k::3", false)
	swap(t, b, "other", "1", "k::2", false)
	swap(t, b, "l", "1", "k::\x00\xff", true)
	if got, err := b.Register(t.Context(), "l", "k"); string(got) != "\x00\xff" || err != nil {
		t.Errorf("Register returned %q, error %v; want the last value", got, err)
	}
	swap(t, b, "l", "1", "k::", false)
	swap(t, b, "l", "\x00\xff", "k::", true)
	if got, err := b.Register(t.Context(), "l", "k"); got != nil || err != nil {
		t.Errorf("Register of a removed register returned %q, error %v; want nil", got, err)
	}
	swap(t, b, "l", "\x00\xff", "k::1", false)
	swap(t, b, "l", "", "k::1", true)
}

func registersByTag(t *testing.T, b storage.Backend) {
	checkRegisters(t, b, "l", "")
	for _, text := range []string{"b:x:1", "a:y:2", "é:x:3", "ab::4"} {
		swap(t, b, "l", "", text, true)
	}
	swap(t, b, "l2", "", "c:x:5", true)
	checkRegisters(t, b, "l", "", "a:2", "ab:4", "b:1", "é:3")
	checkRegisters(t, b, "l", "x", "b:1", "é:3")
	swap(t, b, "l", "1", "b:y:6", true)
	swap(t, b, "l", "2", "a:y:", true)
	swap(t, b, "l", "3", "é::7", true)
	checkRegisters(t, b, "l", "x")
	checkRegisters(t, b, "l", "y", "b:6")
	checkRegisters(t, b, "l", "", "ab:4", "b:6", "é:7")
	checkRegisters(t, b, "l2", "x", "c:5")
}

// Each of several writers increments a counter.
func swapOnce(t *testing.T, b storage.Backend) {
	const writers, increments = 4, 5
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < increments; {
				old, err := b.Register(t.Context(), "l", "counter")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(old)) // 0 if the register does not exist
				ok, err := b.Swap(t.Context(), "l", old, storage.Register{Key: "counter", Value: []byte(strconv.Itoa(n + 1))})
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	if got, err := b.Register(t.Context(), "l", "counter"); string(got) != strconv.Itoa(writers*increments) || err != nil {
		t.Errorf("the counter is %q, error %v; want %d", got, err, writers*increments)
	}
}

func registerExpires(t *testing.T, b storage.Backend) {
	brief, long := storage.Register{Key: "brief", Value: []byte{1}, TTL: time.Second}, storage.Register{Key: "long", Value: []byte{2}, TTL: time.Hour}
	created := storage.Register{Key: brief.Key, Value: []byte{3}, TTL: time.Hour}
	for _, swap := range []struct {
		old []byte
		r   storage.Register
	}{{nil, created}, {created.Value, brief}, {nil, long}} {
		if ok, err := b.Swap(t.Context(), "l", swap.old, swap.r); !ok || err != nil {
			t.Fatalf("Swap returned %v, error %v; want true", ok, err)
		}
	}
	for {
		got, err := b.Register(t.Context(), "l", brief.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if ok, err := b.Swap(t.Context(), "l", brief.Value, brief); ok || err != nil {
		t.Errorf("Swap of an expired register returned %v, error %v; want false", ok, err)
	}
	if ok, err := b.Swap(t.Context(), "l", nil, brief); !ok || err != nil {
		t.Errorf("Swap of an expired register for nil returned %v, error %v; want true", ok, err)
	}
	if got, err := b.Register(t.Context(), "l", long.Key); string(got) != string(long.Value) || err != nil {
		t.Errorf("Register returned %v, error %v; want %v", got, err, long.Value)
	}
}

func checkRows(t *testing.T, b storage.Backend, list string, after []byte, want []storage.Row) {
	t.Helper()
	got, err := collect(b.Rows(t.Context(), list, after))
	if err == nil {
		err = diff(fmt.Sprintf("rows of list %q after %q", list, after), want, got)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func rowsAfter(t *testing.T, b storage.Backend) {
	checkRows(t, b, "l", nil, nil)
	var rows []storage.Row
	var writes []storage.RowWrite
	for _, key := range []string{"\x00", "\x00\x00", "a", "ab", "b", "\xff", "\xff\xff"} {
		row := storage.Row{Key: []byte(key), Value: []byte("v" + key)}
		rows = append(rows, row)
		other := storage.Row{Key: []byte(key + "o"), Value: []byte{0}}
		writes = append(writes, storage.RowWrite{List: "l", Row: row, Version: 1}, storage.RowWrite{List: "lo", Row: other, Version: 1})
	}
	if err := b.WriteRows(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	checkRows(t, b, "l", nil, rows)
	for i := range rows {
		checkRows(t, b, "l", rows[i].Key, slices.Clone(rows[i+1:]))
	}
	checkRows(t, b, "l", []byte("aa"), rows[3:])
	for range b.Rows(t.Context(), "l", nil) {
		break
	}
}

func rowValues(t *testing.T, b storage.Backend) {
	var keys []storage.RowKey
	var writes []storage.RowWrite
	var want [][]byte
	for i := range 40 { // more lists than a backend reads at the same time
		for _, name := range []string{"\x00", "b", "\xff", "removed", "absent"} {
			key := storage.RowKey{List: fmt.Sprint("list ", i), Key: []byte(name)}
			value := []byte(fmt.Sprint(i, name))
			w := storage.RowWrite{List: key.List, Row: storage.Row{Key: key.Key, Value: value}, Version: 1}
			switch name {
			case "absent":
				value = nil
			case "removed":
				writes = append(writes, w)
				w.Value, w.Version, value = nil, 2, nil
				fallthrough
			default:
				writes = append(writes, w)
			}
			keys, want = append(keys, key), append(want, value)
		}
	}
	keys, want = append(keys, keys[0]), append(want, want[0]) // a repeated key
	for i := range writes {
		if err := b.WriteRows(t.Context(), writes[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{0, 1, len(keys)} {
		got, err := b.RowValues(t.Context(), keys[:n]...)
		if err == nil {
			err = diff("values", want[:n], got)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// rowRanges compares each range with a filter of all rows.
func rowRanges(t *testing.T, b storage.Backend) {
	texts := []string{"a", "a\x00", "ab", "ab\x00", "ab\xff", "ab\xff\xff", "ac", "b", "\x01", "removed", "\xfe\xff"}
	slices.Sort(texts)
	for _, text := range texts {
		w := storage.RowWrite{List: "l", Row: storage.Row{Key: []byte(text), Value: []byte("v" + text)}, Version: 1}
		other := w
		other.List = "m"
		writes := []storage.RowWrite{w, other}
		if text == "removed" {
			w.Value, w.Version = nil, 2
			writes = append(writes, w)
		}
		for _, w := range writes {
			if err := b.WriteRows(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	var ranges []storage.RowRange
	var want [][]storage.Row
	for _, prefix := range []string{"a", "ab", "ab\xff", "r", "\xfe\xff", "z"} {
		for _, after := range append([]string{"", "aa", "z\xff"}, texts...) {
			for _, limit := range []int{1, 2, 100} {
				r := storage.RowRange{List: "l", Prefix: []byte(prefix), Limit: limit}
				if after != "" {
					r.After = []byte(after)
				}
				var rows []storage.Row
				for _, text := range texts {
					if strings.HasPrefix(text, prefix) && text > after && text != "removed" && len(rows) < limit {
						rows = append(rows, storage.Row{Key: []byte(text), Value: []byte("v" + text)})
					}
				}
				ranges, want = append(ranges, r), append(want, rows)
			}
		}
	}
	got, err := b.RowRanges(t.Context(), ranges...)
	if err == nil {
		err = diff("ranges", want, got)
	}
	if err != nil {
		t.Error(err)
	}
}

func rowsInAnyOrder(t *testing.T, b storage.Backend) {
	rng := rand.New(rand.NewPCG(seed.New(t), 0))
	write := func(key, value string, version int64) storage.RowWrite {
		w := storage.RowWrite{Row: storage.Row{Key: []byte(key)}, Version: version}
		if value != "" {
			w.Value = []byte(value)
		}
		return w
	}
	writes := []storage.RowWrite{
		write("greater version", "9", 1), write("greater version", "1", 3), write("greater version", "", 2),
		write("greater value", "1", 1), write("greater value", "12", 1), write("greater value", "11", 1),
		write("removed", "1", 1), write("removed", "2", 2), write("removed", "", 3),
		write("removed at the version of a value", "1", 2), write("removed at the version of a value", "", 2),
		write("written after a removal", "", 1), write("written after a removal", "1", 2),
	}
	want := []storage.Row{
		{Key: []byte("greater value"), Value: []byte("12")}, {Key: []byte("greater version"), Value: []byte("1")},
		{Key: []byte("written after a removal"), Value: []byte("1")},
	}
	for round := range 5 {
		list := fmt.Sprint("l", round)
		all := append(slices.Clone(writes), writes...)
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, w := range all {
			w.List = list
			if err := b.WriteRows(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		checkRows(t, b, list, nil, want)
	}
}

// rowOf returns a write of a row whose value is the version.
func rowOf(list, key string, version int64) storage.RowWrite {
	return storage.RowWrite{List: list, Row: storage.Row{Key: []byte(key), Value: []byte(strconv.FormatInt(version, 10))}, Version: version}
}

func checkListRows(t *testing.T, b storage.Backend, prefix string, lists []string, want ...string) {
	t.Helper()
	var got []string
	for row, err := range b.ListRows(t.Context(), lists, []byte(prefix)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %q %s", row.List, row.Key, row.Value))
	}
	slices.Sort(got) // the lists have any order
	if err := diff(fmt.Sprintf("rows of the lists %q with prefix %q", lists, prefix), want, got); err != nil {
		t.Error(err)
	}
}

func rowsOfLists(t *testing.T, b storage.Backend) {
	var writes []storage.RowWrite
	for _, list := range []string{"l1", "l2", "l3", storage.Transient + "l"} {
		for i, key := range []string{"a", "ab", "ab\xff", "ac", "b\xff", "c"} {
			writes = append(writes, rowOf(list, key, int64(i+1)))
		}
	}
	if err := b.WriteAll(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	checkListRows(t, b, "ab", []string{"l1", "l3", "unknown"}, `l1 "ab" 2`, `l1 "ab\xff" 3`, `l3 "ab" 2`, `l3 "ab\xff" 3`)
	checkListRows(t, b, "b\xff", []string{"l2"}, `l2 "b\xff" 5`)
	checkListRows(t, b, "", []string{storage.Transient + "l"}, `transient/l "a" 1`, `transient/l "ab" 2`, `transient/l "ab\xff" 3`, `transient/l "ac" 4`, `transient/l "b\xff" 5`, `transient/l "c" 6`)
	checkListRows(t, b, "", nil)
	for range b.ListRows(t.Context(), []string{"l1", "l2"}, nil) {
		break
	}
}

func removedLists(t *testing.T, b storage.Backend) {
	write := func(writes ...storage.RowWrite) {
		t.Helper()
		if err := b.WriteAll(t.Context(), writes...); err != nil {
			t.Fatal(err)
		}
	}
	write(rowOf("l1", "old", 1), rowOf("l1", "same", 5), rowOf("l1", "new", 6), rowOf("l2", "old", 1), rowOf("other", "old", 1))
	for _, version := range []int64{5, 3} { // a lower version afterwards changes nothing
		if err := b.RemoveRows(t.Context(), version, "l1", "l2"); err != nil {
			t.Fatal(err)
		}
		checkListRows(t, b, "", []string{"l1", "l2", "other"}, `l1 "new" 6`, `other "old" 1`)
	}
	write(rowOf("l1", "late", 5), rowOf("l1", "later", 7))
	checkListRows(t, b, "", []string{"l1", "l2"}, `l1 "later" 7`, `l1 "new" 6`)
	if err := b.RemoveRows(t.Context(), storage.Last, "l1", "unknown"); err != nil {
		t.Fatal(err)
	}
	checkListRows(t, b, "", []string{"l1"})
}

func forgottenRemovals(t *testing.T, b storage.Backend) {
	for _, list := range []string{"l", storage.Transient + "l"} {
		removal := rowOf(list, "a", 2)
		removal.Value, removal.Forget = nil, true
		for _, w := range []storage.RowWrite{rowOf(list, "a", 1), rowOf(list, "b", 1), removal} {
			if err := b.WriteRows(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		checkListRows(t, b, "", []string{list}, list+` "b" 1`)
	}
}

// engineLog records the incarnations that a backend has ended.
type engineLog struct {
	storage.Engine
	removed []string
}

func (l *engineLog) RemoveUsers(context.Context, *storage.Incarnation, []leaderboard.UserID) error {
	return nil
}

func (l *engineLog) Remove(_ context.Context, i *storage.Incarnation) error {
	l.removed = append(l.removed, i.ID)
	return nil
}

func incarnationsEnd(t *testing.T, b storage.Backend) {
	log := &engineLog{}
	b.Use(log)
	board := leaderboard.Board{ID: "b", Policy: leaderboard.Best, CreatedAt: epoch}
	if err := b.CreateBoard(t.Context(), board); err != nil {
		t.Fatal(err)
	}
	key := leaderboard.SeasonKey{Board: "b", Season: leaderboard.SeasonAll}
	var ended []string
	for range 3 {
		opened, err := b.OpenIncarnation(t.Context(), &board, key.Season)
		if err != nil || !opened.Of(&board) {
			t.Fatalf("OpenIncarnation returned %+v, error %v; want an open incarnation of the board", opened, err)
		}
		if got, err := b.Incarnation(t.Context(), key, false); got.ID != opened.ID || !got.Open || err != nil {
			t.Errorf("Incarnation returned %+v, error %v; want the opened incarnation %+v", got, err, opened)
		}
		if all, err := b.Incarnations(t.Context(), "b"); len(all) != 1 || all[0].ID != opened.ID || err != nil {
			t.Errorf("Incarnations returned %+v, error %v; want the opened incarnation %+v", all, err, opened)
		}
		if slices.Contains(ended, opened.ID) {
			t.Errorf("the incarnation %q is open again", opened.ID)
		}
		if err := b.DeleteSeason(t.Context(), key, epoch); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, opened.ID)
		if err := diff("removed incarnations", ended, log.removed); err != nil {
			t.Error(err)
		}
	}
	last, err := b.OpenIncarnation(t.Context(), &board, key.Season)
	if err == nil {
		err = b.DeleteBoard(t.Context(), "b", epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := diff("removed incarnations", append(ended, last.ID), log.removed); err != nil {
		t.Error(err)
	}
	if got, err := b.Incarnation(t.Context(), key, false); got.Open || err != nil {
		t.Errorf("after DeleteBoard, Incarnation returned %+v, error %v; want none that is open", got, err)
	}
	if _, err := b.OpenIncarnation(t.Context(), &board, key.Season); !errors.Is(err, leaderboard.ErrBoardNotFound) {
		t.Errorf("after DeleteBoard, OpenIncarnation returned the error %v, want %v", err, leaderboard.ErrBoardNotFound)
	}
}

func erasedAt(t *testing.T, b storage.Backend) {
	s := engine.New(b)
	var last time.Time
	for _, at := range []time.Time{{}, epoch.Add(time.Hour), epoch.Add(2 * time.Hour), epoch} {
		if !at.IsZero() {
			if _, err := s.Erase(t.Context(), "u", at); err != nil {
				t.Fatal(err)
			}
		}
		if at.After(last) {
			last = at
		}
		if got, err := s.ErasedAt(t.Context(), "u"); !got.Equal(last) || err != nil {
			t.Errorf("ErasedAt returned %v, error %v; want %v", got, err, last)
		}
	}
}

func changedAccount(t *testing.T, b storage.Backend) {
	first, second := rowOf("l", "a", 1), rowOf("l", "b", 1)
	other := rowOf("other", "a", 1)
	errRead := errors.New("the account is damaged")
	for _, step := range []struct {
		writes []storage.RowWrite
		err    error
		want   []storage.Row
	}{
		{[]storage.RowWrite{other, first}, nil, []storage.Row{first.Row}},
		{nil, nil, []storage.Row{first.Row}},
		{[]storage.RowWrite{second}, errRead, []storage.Row{first.Row, second.Row}},
	} {
		var got []storage.Row
		changes, err := b.ChangeAccount(t.Context(), &storage.AccountChange{
			User: "u", List: "l", Writes: step.writes,
			Read: func(rows iter.Seq2[storage.Row, error]) (storage.Account, error) {
				var err error
				got, err = collect(rows)
				return storage.Account{}, errors.Join(err, step.err)
			},
			Seasons: func(_ context.Context, ofUser []leaderboard.SeasonKey) ([]leaderboard.SeasonKey, error) {
				return ofUser, nil
			},
			On: func(*leaderboard.Board) (storage.Account, bool) { return storage.Account{}, true },
		})
		if len(changes) > 0 || !errors.Is(err, step.err) {
			t.Errorf("ChangeAccount of a user without results returned %+v, error %v; want no change, and the error %v", changes, err, step.err)
		}
		if err := diff("rows that Read gets", step.want, got); err != nil {
			t.Error(err)
		}
	}
	checkRows(t, b, "other", nil, []storage.Row{other.Row})
}
