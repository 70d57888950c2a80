package leaderboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Limits of match results.
const (
	// MaxRevision is the largest revision of a match result with content. Unix milliseconds
	// are valid revisions until the year 2109. A retraction may have MaxRevision+1, so every
	// result can be retracted.
	MaxRevision = 1 << 42
	// MaxMetadataBytes is the largest length of metadata as compact JSON.
	MaxMetadataBytes = 4096
	MaxAttributes    = 16
	// MaxAhead is the longest time by which achieved_at may be in the future.
	MaxAhead = 24 * time.Hour
)

var (
	minAchievedAt = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxAchievedAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// ResultKey identifies a match result, in all its revisions.
type ResultKey struct {
	SeasonKey
	User  UserID
	Match MatchID
}

// MatchResult is a game server's report about one user in one match. Of the results with
// the same [ResultKey], the one with the highest revision stands.
type MatchResult struct {
	ResultKey
	// Revision is 0 to MaxRevision, or MaxRevision+1 in a retraction. A correction or
	// retraction has a higher revision than the result that it replaces.
	Revision int64
	// Retracted marks a retraction, which has no content.
	Retracted bool
	// Score is a score, or points if Board.AddsUp is true.
	Score Score
	// Reset means that the user's score becomes Score, on sum boards: no point of earlier results counts, in the order of
	// AchievedAt and Match. Tie-breakers begin again too.
	Reset bool `json:",omitzero"`
	// Finish is Ranked, or an element of [Board].Statuses.
	Finish Finish `json:",omitzero"`
	// TieBreakers are in the order of the board or, if it is linked, of its source. Missing
	// values are 0. If Board.AddsUp is true, tie-breakers are combined: see [TieBreaker].
	TieBreakers []int64
	// AchievedAt is the event time, in whole microseconds. It determines the season, and
	// the order of users with equal rank keys.
	AchievedAt time.Time
	// Assigned means that the service set AchievedAt, because the caller gave no time.
	// Corrections of the result keep Assigned. Assigned times are not part of the content:
	// results that differ only in assigned times are duplicates. The store keeps the
	// earliest assigned time.
	Assigned   bool
	Attributes map[string]string
	// Metadata is a JSON object in the form of [CanonicalMetadata], or empty.
	Metadata string
	// ReceivedAt is when the service first received the result, in whole microseconds. A
	// replay has the same ReceivedAt, and therefore the same outcome.
	ReceivedAt time.Time
	// Voids counts how often the match was voided or restored: see [MatchState]. It is not
	// part of the content. Callers of Apply set it only in results of linked boards.
	Voids int64 `json:",omitzero"`
	// VoidOnly marks a MatchResult without content. Apply only sets the Voids of the stored
	// result, if any.
	VoidOnly bool `json:",omitzero"`
	// Amends marks an administrator's correction, which a closed season accepts too. Stores
	// do not keep Amends.
	Amends bool `json:",omitzero"`
}

// Truncate returns t in UTC, rounded down to a microsecond.
func Truncate(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// CheckKey returns all faults of r's user, match and revision, joined by [errors.Join],
// each a [FieldError].
func (r *MatchResult) CheckKey() error {
	errs := []error{r.User.Validate(), r.Match.Validate()}
	limit := int64(MaxRevision)
	if r.Retracted {
		limit++
	}
	if r.Revision < 0 || r.Revision > limit {
		errs = append(errs, fieldErrorf("revision", "%d is not in the range 0 to %d", r.Revision, limit))
	}
	return errors.Join(errs...)
}

// CanonicalMetadata is [CanonicalObject] for the metadata of a result, which has up to
// [MaxMetadataBytes].
func CanonicalMetadata(data []byte) (string, error) {
	return CanonicalObject("metadata", data, MaxMetadataBytes)
}

// CanonicalObject returns the JSON object in data in canonical form: compact, with sorted
// keys, and with numbers spelled as in data. Empty data, null and {} become the empty
// string. It returns a [FieldError] about field if data is not a JSON object, or if its
// compact form is longer than maxBytes.
func CanonicalObject(field string, data []byte, maxBytes int) (string, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return "", nil
	}
	if !utf8.Valid(data) {
		return "", fieldErrorf(field, "is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return "", fieldErrorf(field, "is not a JSON object: %v", err)
	}
	if dec.More() {
		return "", fieldErrorf(field, "has text after the JSON object")
	}
	if len(object) == 0 {
		return "", nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return "", fieldErrorf(field, "is not a JSON object: %v", err)
	}
	canonical := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(canonical) > maxBytes {
		return "", fieldErrorf(field, "is %d bytes long as compact JSON, at most %d are allowed", len(canonical), maxBytes)
	}
	return string(canonical), nil
}

// A payload is a result as bytes. Of different contents with the same key and revision,
// every store keeps the greater payload. The fields in order, with their lengths in bytes:
//
//	1  format, payloadFormat
//	1  flags: retracted 0x80, assigned 0x01, reset 0x02, and the finish, times 4
//	8  score, biased
//	.. tie-breakers: a count, then 8 bytes each, biased
//	8  achieved_at, biased; 0 if assigned
//	.. attributes, sorted by name: a count, then for each name and value its length and its bytes
//	.. metadata: its length and its bytes
//	8  achieved_at, biased and complemented; 0 if not assigned
//	8  received_at, biased and complemented
//
// Biased means that the sign bit is inverted, so that signed numbers compare correctly as
// bytes. Complemented means that all bits are inverted, so the earliest time is the
// greatest. Counts and lengths are uvarints. The last 16 bytes, the trailer, are not part
// of the content.
const (
	payloadFormat  = 1
	flagRetracted  = 0x80
	flagAssigned   = 0x01
	flagReset      = 0x02
	finishShift    = 2
	finishBits     = 0x07
	payloadTrailer = 16
	payloadRoom    = 64 // for most payloads, without metadata
)

// AppendPayload appends the payload of r to dst. The payload has every field of r except
// ResultKey, Revision, Voids, VoidOnly and Amends.
func (r *MatchResult) AppendPayload(dst []byte) []byte {
	flags := byte(r.Finish) << finishShift
	if r.Reset {
		flags |= flagReset
	}
	if r.Retracted {
		flags |= flagRetracted
	}
	var achieved, assigned uint64
	if r.Assigned {
		flags |= flagAssigned
		assigned = ^biased(r.AchievedAt.UnixMicro())
	} else {
		achieved = biased(r.AchievedAt.UnixMicro())
	}
	dst = slices.Grow(dst, payloadRoom+len(r.Metadata))
	dst = append(dst, payloadFormat, flags)
	dst = binary.BigEndian.AppendUint64(dst, biased(int64(r.Score)))
	dst = binary.AppendUvarint(dst, uint64(len(r.TieBreakers)))
	for _, v := range r.TieBreakers {
		dst = binary.BigEndian.AppendUint64(dst, biased(v))
	}
	dst = binary.BigEndian.AppendUint64(dst, achieved)
	dst = binary.AppendUvarint(dst, uint64(len(r.Attributes)))
	for _, k := range namesOf(r.Attributes) {
		dst = appendString(appendString(dst, k), r.Attributes[k])
	}
	dst = appendString(dst, r.Metadata)
	dst = binary.BigEndian.AppendUint64(dst, assigned)
	return binary.BigEndian.AppendUint64(dst, ^biased(r.ReceivedAt.UnixMicro()))
}

// DecodePayload returns the result with the given key, revision and payload. It returns
// [ErrFormat] for bytes that AppendPayload cannot produce.
func DecodePayload(key ResultKey, revision int64, payload []byte) (MatchResult, error) {
	d := decoder{b: payload}
	r := MatchResult{ResultKey: key, Revision: revision}
	format, flags := d.byte(), d.byte()
	if format != payloadFormat {
		d.fail()
	}
	r.Retracted, r.Assigned = flags&flagRetracted != 0, flags&flagAssigned != 0
	r.Reset, r.Finish = flags&flagReset != 0, Finish(flags>>finishShift&finishBits)
	if r.Finish >= TooFew {
		d.fail()
	}
	r.Score = Score(unbiased(d.uint64()))
	if n := d.count(MaxTieBreakers); n > 0 {
		r.TieBreakers = make([]int64, n)
		for i := range r.TieBreakers {
			r.TieBreakers[i] = unbiased(d.uint64())
		}
	}
	achieved := d.uint64()
	if n := d.count(MaxAttributes); n > 0 {
		r.Attributes = make(map[string]string, n)
		for range n {
			k := d.string()
			r.Attributes[k] = d.string()
		}
	}
	r.Metadata = d.string()
	if assigned := d.uint64(); r.Assigned {
		achieved = ^assigned
	}
	r.AchievedAt = time.UnixMicro(unbiased(achieved)).UTC()
	r.ReceivedAt = time.UnixMicro(unbiased(^d.uint64())).UTC()
	if d.bad || len(d.b) != 0 || !bytes.Equal(r.AppendPayload(nil), payload) {
		return MatchResult{}, fmt.Errorf("leaderboard: payload of %q: %w", key.Match, ErrFormat)
	}
	return r, nil
}

// cmp compares the payloads. same means that the contents are equal.
func compareContent(x, y *MatchResult) (cmp int, same bool) {
	px, py := x.AppendPayload(nil), y.AppendPayload(nil)
	same = bytes.Equal(px[:len(px)-payloadTrailer], py[:len(py)-payloadTrailer])
	return bytes.Compare(px, py), same
}

// ContentID is the first 16 bytes of the SHA-256 of the payload
// ([MatchResult.AppendPayload]) without its last 16 bytes. Results with equal keys,
// revisions and content ids are one result that was sent twice.
type ContentID [16]byte

// ContentID returns the id of r's normalized content.
func (r *MatchResult) ContentID() ContentID {
	n := r.Normalize()
	payload := n.AppendPayload(nil)
	sum := sha256.Sum256(payload[:len(payload)-payloadTrailer])
	return ContentID(sum[:len(ContentID{})])
}

// Normalize returns r in the form in which stores keep it: without trailing zeros of the
// tie-breakers, with times in whole microseconds, and a retraction without content.
func (r MatchResult) Normalize() MatchResult {
	if r.Retracted {
		return MatchResult{ResultKey: r.ResultKey, Revision: r.Revision, Retracted: true,
			AchievedAt: time.UnixMicro(0).UTC(), ReceivedAt: Truncate(r.ReceivedAt)}
	}
	r.AchievedAt, r.ReceivedAt = Truncate(r.AchievedAt), Truncate(r.ReceivedAt)
	for len(r.TieBreakers) > 0 && r.TieBreakers[len(r.TieBreakers)-1] == 0 {
		r.TieBreakers = r.TieBreakers[:len(r.TieBreakers)-1]
	}
	if len(r.TieBreakers) == 0 {
		r.TieBreakers = nil
	}
	if len(r.Attributes) == 0 {
		r.Attributes = nil
	}
	return r
}
