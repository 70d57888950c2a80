package leaderboard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

const (
	// MaxRevision bounds a match result's revision. Unix milliseconds fit until
	// the year 2109.
	MaxRevision = 1 << 42
	// MaxMetadataBytes bounds a result's metadata as compact JSON.
	MaxMetadataBytes = 4096
	// MaxAttributes bounds the attributes of one result.
	MaxAttributes = 16
	// MaxAhead is how far achieved_at may lie in the future.
	MaxAhead = 24 * time.Hour
)

// minAchievedAt and maxAchievedAt are the bounds of years that every wire
// format of the service can carry.
var (
	minAchievedAt = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxAchievedAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// ResultKey identifies a match result.
type ResultKey struct {
	Scope
	User  UserID
	Match MatchID
}

// MatchResult is what a game server reports about one user in one match. Among
// results of one [ResultKey] the highest revision stands.
type MatchResult struct {
	ResultKey
	// Revision is 0 to MaxRevision; a correction or retraction has a higher one.
	Revision int64
	// Retracted results count for nothing and carry no content.
	Retracted bool
	// Score is the score, or on boards that add up the points, in the board's unit.
	Score Score
	// TieBreakers are in the board's order; absent ones are 0. On boards that
	// add up they are added up too.
	TieBreakers []int64
	// AchievedAt is the event time, in whole microseconds: it decides the season
	// and, inside a tie, who stands first.
	AchievedAt time.Time
	// Assigned says that the service, not the caller, chose AchievedAt. Such a
	// time is no part of the content: the same content sent again is a
	// duplicate, and the earliest assigned time stands.
	Assigned bool
	// Attributes place the user in divisions.
	Attributes map[string]string
	// Metadata is a JSON object in canonical form ([CanonicalMetadata]), or empty.
	Metadata string
	// ReceivedAt is when the service first took the result, in whole
	// microseconds. It decides whether the result came too late, so that a replay decides alike.
	ReceivedAt time.Time
}

// Truncate cuts t to the resolution of every stored instant, one microsecond.
func Truncate(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// Check returns every fault of r as a result for b, joined, each a
// [FieldError]. The season is not looked at.
func (b *Board) Check(r *MatchResult, now time.Time) error {
	errs := []error{r.User.Validate(), r.Match.Validate()}
	if r.Revision < 0 || r.Revision > MaxRevision {
		errs = append(errs, fieldErrorf("revision", "%d is not 0 to %d", r.Revision, int64(MaxRevision)))
	}
	if r.Retracted {
		return errors.Join(errs...)
	}
	name := "score"
	if b.AddsUp() {
		name = "points"
	}
	if lo, hi := b.Bounds(); r.Score < lo || r.Score > hi {
		errs = append(errs, fieldErrorf(name, "%d is not %d to %d", r.Score, lo, hi))
	}
	if len(r.TieBreakers) > len(b.TieBreakers) {
		errs = append(errs, fieldErrorf("tie_breakers", "%d given, the board has %d", len(r.TieBreakers), len(b.TieBreakers)))
	}
	for i, v := range r.TieBreakers {
		if v < -int64(MaxScore) || v > int64(MaxScore) {
			errs = append(errs, fieldErrorf(fmt.Sprintf("tie_breakers[%d]", i), "%d is outside ±2^53", v))
		}
	}
	switch at := r.AchievedAt; {
	case at.Before(minAchievedAt) || at.After(maxAchievedAt):
		errs = append(errs, fieldErrorf("achieved_at", "is outside the years 1 to 9999"))
	case at.After(now.Add(MaxAhead)):
		errs = append(errs, fieldErrorf("achieved_at", "%s is more than %v ahead of the server's clock, %s",
			at.Format(time.RFC3339), MaxAhead, now.UTC().Format(time.RFC3339)))
	}
	if len(r.Attributes) > MaxAttributes {
		errs = append(errs, fieldErrorf("attributes", "%d given, at most %d are allowed", len(r.Attributes), MaxAttributes))
	}
	for _, k := range slices.Sorted(maps.Keys(r.Attributes)) {
		errs = append(errs, checkName("attributes", k), checkID("attributes."+k, r.Attributes[k]))
	}
	if m, err := CanonicalMetadata([]byte(r.Metadata)); err != nil {
		errs = append(errs, err)
	} else if m != r.Metadata {
		errs = append(errs, fieldErrorf("metadata", "is not in canonical form"))
	}
	return errors.Join(errs...)
}

// CanonicalMetadata returns a JSON object in the one form in which equal
// objects are equal bytes: compact, keys sorted, numbers as written in data; what
// came over the wire has doubles there. Nothing, null and {} are all the empty
// string. It returns a [FieldError] if data is no JSON object or, compact, longer
// than [MaxMetadataBytes].
func CanonicalMetadata(data []byte) (string, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return "", nil
	}
	if !utf8.Valid(data) {
		return "", fieldErrorf("metadata", "is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return "", fieldErrorf("metadata", "is not a JSON object: %v", err)
	}
	if dec.More() {
		return "", fieldErrorf("metadata", "has more after the JSON object")
	}
	if len(object) == 0 {
		return "", nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return "", fieldErrorf("metadata", "is not a JSON object: %v", err)
	}
	canonical := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(canonical) > MaxMetadataBytes {
		return "", fieldErrorf("metadata", "is %d bytes long as compact JSON, at most %d are allowed", len(canonical), MaxMetadataBytes)
	}
	return string(canonical), nil
}

// A result's payload is its content as bytes, so that of two payloads of one
// key and revision the greater one stands, on every store alike:
//
//	1  format, payloadFormat
//	1  flags: retracted 0x80, assigned 0x01
//	8  score, biased
//	.. tie-breakers: a count, then 8 bytes each, biased
//	8  achieved_at, biased; 0 if assigned
//	.. attributes: a count, then each name and value with its length, sorted
//	.. metadata with its length
//	8  achieved_at if assigned, complemented (the earliest is the greatest)
//	8  received_at, complemented
//
// Counts and lengths are uvarints. The last 16 bytes are no content.
const (
	payloadFormat  = 1
	flagRetracted  = 0x80
	flagAssigned   = 0x01
	payloadTrailer = 16
)

// AppendPayload appends the payload of r: all of it but key and revision.
func (r *MatchResult) AppendPayload(dst []byte) []byte {
	var flags byte
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
	dst = append(dst, payloadFormat, flags)
	dst = binary.BigEndian.AppendUint64(dst, biased(int64(r.Score)))
	dst = binary.AppendUvarint(dst, uint64(len(r.TieBreakers)))
	for _, v := range r.TieBreakers {
		dst = binary.BigEndian.AppendUint64(dst, biased(v))
	}
	dst = binary.BigEndian.AppendUint64(dst, achieved)
	dst = binary.AppendUvarint(dst, uint64(len(r.Attributes)))
	for _, k := range slices.Sorted(maps.Keys(r.Attributes)) {
		dst = appendString(appendString(dst, k), r.Attributes[k])
	}
	dst = appendString(dst, r.Metadata)
	dst = binary.BigEndian.AppendUint64(dst, assigned)
	return binary.BigEndian.AppendUint64(dst, ^biased(r.ReceivedAt.UnixMicro()))
}

// DecodePayload returns the result of the given key and revision that payload
// is of. It returns [ErrFormat] for bytes that [MatchResult.AppendPayload] does
// not make.
func DecodePayload(key ResultKey, revision int64, payload []byte) (MatchResult, error) {
	d := decoder{b: payload}
	r := MatchResult{ResultKey: key, Revision: revision}
	format, flags := d.byte(), d.byte()
	if format != payloadFormat {
		d.fail()
	}
	r.Retracted, r.Assigned = flags&flagRetracted != 0, flags&flagAssigned != 0
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

// compareContent orders two results of one key and revision: the greater one
// stands, whichever came first. same says that their contents are equal, and
// that they differ in assigned or received time at most.
func compareContent(x, y *MatchResult) (cmp int, same bool) {
	px, py := x.AppendPayload(nil), y.AppendPayload(nil)
	same = bytes.Equal(px[:len(px)-payloadTrailer], py[:len(py)-payloadTrailer])
	return bytes.Compare(px, py), same
}

// Normalize returns r without what does not count: trailing zero tie-breakers, which an
// absent one equals, and the content of a retraction.
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
