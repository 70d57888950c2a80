package importer

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/open-leaderboard/leaderboard"
)

// side is one of the two boards that are compared.
type side byte

const (
	here  side = 'h' // the server
	there side = 't' // the other system
)

// sides sorts the users of two boards in a temporary store on disk, so that a comparison takes the
// same memory for any number of users. It has these keys:
//
//	u USER 0 h               a user's row here
//	u USER 0 t NUMBER        a user's row there
//	u USER 0 p               the user's place there
//	o SCORE ORDER USER       a user there, in standing order
//	g SCORE SIDE             the number of users with a score
type sides struct {
	db     *pebble.DB
	folder string
	order  leaderboard.Order
	rows   uint64 // there
}

// row is a user on one side.
type row struct {
	Score int64   `json:"s"`
	Ties  []int64 `json:"t,omitempty"`
	Place place   `json:"p"` // here
}

// place is a user's position. Among is the position among the users with the same score. Both are
// from 1, and 0 is unknown.
type place struct {
	Rank, Among int64
}

// noLogger drops what libraries log: a failed operation returns its error.
type noLogger struct{}

func (noLogger) Infof(string, ...any)                   {}
func (noLogger) Errorf(string, ...any)                  {}
func (noLogger) Fatalf(string, ...any)                  {}
func (noLogger) Printf(context.Context, string, ...any) {}

func newSides(order leaderboard.Order) (*sides, error) {
	folder, err := os.MkdirTemp("", "leaderboard-compare-")
	if err != nil {
		return nil, err
	}
	db, err := pebble.Open(folder, &pebble.Options{Logger: noLogger{}, DisableWAL: true, MemTableSize: 16 << 20, FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &sides{db: db, folder: folder, order: order}, nil
}

func (s *sides) close() error { return errors.Join(s.db.Close(), os.RemoveAll(s.folder)) }

func userKey(user string, last ...byte) []byte {
	return append(append(append([]byte{'u'}, user...), 0), last...)
}

// scoreKey sorts better scores first.
func (s *sides) scoreKey(prefix byte, score int64) []byte {
	n := uint64(score) ^ 1<<63
	if s.order == leaderboard.HigherFirst {
		n = ^n
	}
	return binary.BigEndian.AppendUint64([]byte{prefix}, n)
}

func (s *sides) set(key []byte, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.db.Set(key, value, pebble.NoSync)
}

func (s *sides) addHere(user string, r row) error { return s.set(userKey(user, byte(here)), r) }

// addThere adds a row. Rows with equal scores stand in the order of the bytes in order.
func (s *sides) addThere(user string, r row, order []byte) error {
	s.rows++
	key := append(append(s.scoreKey('o', r.Score), order...), 0)
	if err := s.db.Set(append(key, user...), []byte(user), pebble.NoSync); err != nil {
		return err
	}
	return s.set(binary.BigEndian.AppendUint64(userKey(user, byte(there)), s.rows), r)
}

func (s *sides) setSize(score int64, of side, n int64) error {
	return s.set(append(s.scoreKey('g', score), byte(of)), n)
}

// sameSize reports whether as many users have the score on both sides.
func (s *sides) sameSize(score int64) (bool, error) {
	var sizes [2]string
	for i, of := range []side{here, there} {
		value, closer, err := s.db.Get(append(s.scoreKey('g', score), byte(of)))
		if err != nil {
			return false, err
		}
		sizes[i] = string(value)
		_ = closer.Close() // cannot fail: see [pebble.DB.Get]
	}
	return sizes[0] == sizes[1], nil
}

// placeThere gives the users there their places.
func (s *sides) placeThere() error {
	var rank, among int64
	var score string
	var last int64
	err := s.each('o', func(key, user []byte) error {
		if string(key[:9]) != score {
			if err := s.endGroup(last, among); err != nil {
				return err
			}
			score, among = string(key[:9]), 0
			n := binary.BigEndian.Uint64(key[1:9])
			if s.order == leaderboard.HigherFirst {
				n = ^n
			}
			last = int64(n ^ 1<<63)
		}
		rank, among = rank+1, among+1
		return s.set(userKey(string(user), 'p'), place{rank, among})
	})
	if err != nil {
		return err
	}
	return s.endGroup(last, among)
}

func (s *sides) endGroup(score, among int64) error {
	if among == 0 {
		return nil
	}
	return s.setSize(score, there, among)
}

// each calls f for the keys with a prefix, in order. f must not keep its arguments.
func (s *sides) each(prefix byte, f func(key, value []byte) error) (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := f(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}

// pair is a user's rows on both sides.
type pair struct {
	user  string
	here  *row
	there []row // several if the input has the user several times
	place place // there
}

// pairs calls f for each user.
func (s *sides) pairs(f func(pair) error) error {
	var p pair
	flush := func() error {
		if p.user == "" {
			return nil
		}
		return f(p)
	}
	err := s.each('u', func(key, value []byte) error {
		end := bytes.IndexByte(key, 0) // valid ids have no zero byte
		if user := string(key[1:end]); user != p.user {
			if err := flush(); err != nil {
				return err
			}
			p = pair{user: user}
		}
		if key[end+1] == 'p' {
			return json.Unmarshal(value, &p.place)
		}
		var r row
		if err := json.Unmarshal(value, &r); err != nil {
			return err
		}
		if key[end+1] == byte(there) {
			p.there = append(p.there, r)
		} else {
			p.here = &r
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}
