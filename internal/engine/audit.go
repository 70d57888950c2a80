package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/open-leaderboard/leaderboard"
	"github.com/open-leaderboard/leaderboard/storage"
)

// # The audit log
//
// Each UTC day has a list of the records of its acts, and list actDays has the days. Each user has
// a list of the records that concern the user. A value is a [leaderboard.Act] as JSON. Newer days
// and records have smaller keys.
//
// AppendAct adds the record to the user's list, then to the day's list, and reads the time of the
// user's erasure. Erase writes this time, and reads the user's list. So Erase finds the record in
// the list, or AppendAct finds the erasure. In both cases, a greater version removes the details.
const (
	actDays = "act days"

	appended = int64(1) // versions of rows
	redacted = int64(2)
)

// The last byte of a record's key.
const (
	outcomeRecord = 0
	intentRecord  = 1
)

func dayOf(t time.Time) int32 { return int32(t.Unix() / (24 * 60 * 60)) }

func dayKey(day int32) []byte { return binary.BigEndian.AppendUint32(nil, ^(uint32(day) ^ 1<<31)) }

func actsOn(day []byte) string { return "acts/" + hex.EncodeToString(day) }

func actsOf(user leaderboard.UserID) string {
	hash := sha256.Sum256([]byte(user))
	return "acts of user/" + hex.EncodeToString(hash[:])
}

func recordKey(k leaderboard.ActKey, record byte) []byte {
	key := binary.BigEndian.AppendUint64(nil, ^(uint64(k.At.UnixMicro()) ^ 1<<63))
	return append(append(key, k.ID...), 0, record)
}

// afterAct returns a key after both records of an act, or nil if k is empty.
func afterAct(k leaderboard.ActKey) []byte {
	if k.ID == "" {
		return nil
	}
	return recordKey(k, intentRecord)
}

func writeAct(list string, a *leaderboard.Act, version int64) (storage.RowWrite, error) {
	value, err := json.Marshal(a)
	if err != nil {
		return storage.RowWrite{}, fmt.Errorf("engine: act: %w", err)
	}
	return storage.RowWrite{List: list, Row: storage.Row{Key: keyOf(a), Value: value}, Version: version}, nil
}

func keyOf(a *leaderboard.Act) []byte {
	if a.IsOutcome() {
		return recordKey(a.Key(), outcomeRecord)
	}
	return recordKey(a.Key(), intentRecord)
}

// AppendAct appends a record of an act to the audit log.
func (s *Store) AppendAct(ctx context.Context, a leaderboard.Act) error {
	a.At = leaderboard.Truncate(a.At)
	if a.IsOutcome() {
		a.CompletedAt = leaderboard.Truncate(a.CompletedAt)
	}
	day := dayKey(dayOf(a.At))
	record, err := writeAct(actsOn(day), &a, appended)
	if err != nil {
		return err
	}
	writes := []storage.RowWrite{{List: actDays, Row: storage.Row{Key: day, Value: day}, Version: appended}, record}
	if a.User == "" {
		return s.WriteRows(ctx, writes...)
	}
	ofUser := record
	ofUser.List = actsOf(a.User)
	if err := s.WriteRows(ctx, append([]storage.RowWrite{ofUser}, writes...)...); err != nil {
		return err
	}
	erasedAt, err := s.ErasedAt(ctx, a.User)
	if err != nil || erasedAt.IsZero() || a.At.After(erasedAt) {
		return err
	}
	return s.redact(ctx, a.User, a)
}

func (s *Store) eraseActs(ctx context.Context, user leaderboard.UserID) error {
	var acts []leaderboard.Act
	for a, err := range s.UserActs(ctx, user, leaderboard.ActKey{}) {
		if err != nil {
			return err
		}
		acts = append(acts, a)
	}
	return s.redact(ctx, user, acts...)
}

// redact removes the details of a user's acts. An interrupted redact leaves records in the user's
// list, and a repeated Erase finds them there.
func (s *Store) redact(ctx context.Context, user leaderboard.UserID, acts ...leaderboard.Act) error {
	var records, ofUser []storage.RowWrite
	for _, a := range acts {
		a = a.Redacted()
		record, err := writeAct(actsOn(dayKey(dayOf(a.At))), &a, redacted)
		if err != nil {
			return err
		}
		records = append(records, record)
		ofUser = append(ofUser, storage.RowWrite{List: actsOf(user), Row: storage.Row{Key: record.Key}, Version: redacted})
	}
	if len(acts) == 0 {
		return nil
	}
	return s.WriteRows(ctx, append(records, ofUser...)...)
}

// Acts yields the records of all acts after the given act, the newest first.
func (s *Store) Acts(ctx context.Context, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return func(yield func(leaderboard.Act, error) bool) {
		var newer []byte // the key of the day after that of the given act
		if after.ID != "" {
			newer = dayKey(dayOf(after.At) + 1)
		}
		for day, err := range s.Rows(ctx, actDays, newer) {
			if err != nil {
				yield(leaderboard.Act{}, fmt.Errorf("audit log: %w", err))
				return
			}
			for a, err := range s.acts(ctx, actsOn(day.Key), afterAct(after)) {
				if !yield(a, err) || err != nil {
					return
				}
			}
		}
	}
}

// UserActs yields the records that concern a user, after the given act, the newest first.
func (s *Store) UserActs(ctx context.Context, user leaderboard.UserID, after leaderboard.ActKey) iter.Seq2[leaderboard.Act, error] {
	return s.acts(ctx, actsOf(user), afterAct(after))
}

func (s *Store) acts(ctx context.Context, list string, after []byte) iter.Seq2[leaderboard.Act, error] {
	return func(yield func(leaderboard.Act, error) bool) {
		for row, err := range s.Rows(ctx, list, after) {
			var a leaderboard.Act
			if err == nil {
				err = decode("act", row.Value, &a)
			}
			if err != nil {
				yield(leaderboard.Act{}, fmt.Errorf("audit log: %w", err))
				return
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}
