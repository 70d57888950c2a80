package leaderboard

import (
	"cmp"
	"errors"
	"net/url"
	"strings"
	"time"
)

// Bounds of a [Profile], in bytes.
const (
	MaxDisplayNameBytes       = 256
	MaxAvatarURLBytes         = 1024
	MaxProfileAttributesBytes = 2048
)

// Profile is what people see of a user, or of another thing that is ranked, such as a product. It
// is the same on all boards and in all seasons.
type Profile struct {
	User UserID
	// DisplayName has up to [MaxDisplayNameBytes] of printable UTF-8, in the form of ids.
	DisplayName string
	AvatarURL   string // https, up to [MaxAvatarURLBytes]
	// Country is an ISO 3166-1 alpha-3 code, such as GBR. Other codes of three capital letters
	// are allowed too.
	Country string
	// Attributes is a JSON object in the form of [CanonicalObject], up to
	// [MaxProfileAttributesBytes], or empty.
	Attributes string
	// UpdatedAt is the time of the change. A user's profile from before an erasure of the user
	// does not exist.
	UpdatedAt time.Time
	// Revision is at least 1. Of two profiles of a user, the one with the higher revision counts.
	Revision int64
	// Deleted means that the user has no profile. Only User, UpdatedAt and Revision are set.
	Deleted bool
}

// Exists reports whether the user has a profile.
func (p *Profile) Exists() bool { return p.Revision > 0 && !p.Deleted }

// Check returns all faults of p at the time now, joined by [errors.Join], each a [FieldError].
// Revision 0 is allowed: see [ProfileStore].
func (p *Profile) Check(now time.Time) error {
	errs := []error{checkNewID("user_id", string(p.User))}
	if len(p.DisplayName) > MaxDisplayNameBytes {
		errs = append(errs, fieldErrorf("display_name", "is %d bytes long, at most %d are allowed", len(p.DisplayName), MaxDisplayNameBytes))
	} else {
		errs = append(errs, cmp.Or(checkPrintable("display_name", p.DisplayName), checkVisible("display_name", p.DisplayName)))
	}
	errs = append(errs, checkAvatarURL(p.AvatarURL))
	if c := p.Country; c != "" && (len(c) != 3 || strings.Trim(c, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		errs = append(errs, fieldErrorf("country", "%.16q is not three capital letters, such as GBR (ISO 3166-1 alpha-3)", c))
	}
	if text, err := CanonicalObject("attributes", []byte(p.Attributes), MaxProfileAttributesBytes); err != nil {
		errs = append(errs, err)
	} else if text != p.Attributes {
		errs = append(errs, fieldErrorf("attributes", "is not in canonical form"))
	}
	if latest := now.Add(MaxAhead).UnixMicro(); p.Revision < 0 || p.Revision > latest {
		errs = append(errs, fieldErrorf("revision", "%d is not in the range 1 to %d, the microseconds since 1970 plus a day", p.Revision, latest))
	}
	return errors.Join(errs...)
}

func checkAvatarURL(text string) error {
	if text == "" {
		return nil
	}
	const field = "avatar_url"
	if len(text) > MaxAvatarURLBytes {
		return fieldErrorf(field, "is %d bytes long, at most %d are allowed", len(text), MaxAvatarURLBytes)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }); i >= 0 {
		return fieldErrorf(field, "has a character at byte %d that must be percent-encoded in a URL", i)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fieldErrorf(field, "is not a URL")
	case u.Scheme != "https":
		return fieldErrorf(field, "must begin with https://")
	case u.Hostname() == "":
		return fieldErrorf(field, "has no host")
	case u.User != nil:
		return fieldErrorf(field, "must not contain a user or a password")
	}
	return nil
}

// NextRevision returns the revision of a change at updatedAt after a stored revision: the
// microseconds since 1970, or one more than the stored revision if this is greater.
func (p *Profile) NextRevision(updatedAt time.Time) int64 {
	return max(updatedAt.UnixMicro(), p.Revision+1)
}
