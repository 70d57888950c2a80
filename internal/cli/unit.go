package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// Unit is the unit of a board's scores and the number of their decimals.
type Unit struct {
	Name     string
	Decimals int
}

// clock reports whether scores are times, which Format writes in seconds. places is the number of
// decimals that Format writes.
func (u Unit) clock() (places int, ok bool) {
	if u.Name == "ms" {
		return u.Decimals + 3, true
	}
	return u.Decimals, u.Name == "s"
}

// Header returns the title of a column of scores.
func (u Unit) Header() string {
	if _, ok := u.clock(); ok {
		return "time"
	}
	if u.Name == "" {
		return "score"
	}
	return u.Name
}

// Format returns a score with the unit's decimals: 1234 with 2 decimals is 12.34. Times from
// a minute on are clock times: 7717 s is 2:08:37, 83456 ms is 1:23.456.
func (u Unit) Format(score int64) string {
	sign, magnitude := "", uint64(score)
	if score < 0 {
		sign, magnitude = "-", -magnitude
	}
	places, isTime := u.clock()
	digits := strconv.FormatUint(magnitude, 10)
	fraction := ""
	if places > 0 {
		if missing := places + 1 - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		cut := len(digits) - places
		digits, fraction = digits[:cut], "."+digits[cut:]
	}
	if seconds, err := strconv.ParseInt(digits, 10, 64); err == nil && isTime && seconds >= 60 {
		digits = fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
		if seconds >= 3600 {
			digits = fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
		}
	}
	return sign + digits + fraction
}

// FormatWithUnit returns the score followed by its unit, or a clock time without a unit.
func (u Unit) FormatWithUnit(score int64) string {
	switch s := u.Format(score); {
	case u.Name == "", strings.Contains(s, ":"):
		return s
	case u.Name == "ms":
		return s + " s"
	default:
		return s + " " + u.Name
	}
}

// Parse is the inverse of [Unit.Format], with one exception: if the unit is ms, a text
// without a colon is in milliseconds. More decimals than the unit has are an error.
func (u Unit) Parse(s string) (int64, error) {
	places := u.Decimals
	digits, fraction, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	if strings.Contains(digits, ":") {
		seconds, err := clockSeconds(digits)
		if err != nil {
			return 0, err
		}
		digits = strconv.FormatInt(seconds, 10)
		places, _ = u.clock()
	}
	fraction = strings.TrimRight(fraction, "0")
	if !isDigits(digits) || fraction != "" && !isDigits(fraction) || strings.HasSuffix(s, ".") {
		return 0, fmt.Errorf("%.40q is not a number", s)
	}
	if len(fraction) > places {
		if places == 0 {
			return 0, fmt.Errorf("%.40q is not a whole number", s)
		}
		return 0, fmt.Errorf("%.40q has more than %d decimals", s, places)
	}
	number := digits + fraction + strings.Repeat("0", places-len(fraction))
	if strings.HasPrefix(s, "-") {
		number = "-" + number
	}
	score, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is too large", s)
	}
	return score, nil
}

func clockSeconds(s string) (int64, error) {
	parts := strings.Split(s, ":")
	var seconds int64
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 50) // 3600*n fits in 64 bits
		if err != nil || !isDigits(part) || len(parts) > 3 || i > 0 && (len(part) != 2 || n > 59) {
			return 0, fmt.Errorf("%.40q is not a time of the form h:mm:ss or m:ss", s)
		}
		seconds = seconds*60 + n
	}
	return seconds, nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
