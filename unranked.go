package leaderboard

import "slices"

// MaxMinResults is the largest [Board].MinResults.
const MaxMinResults = 1_000_000

// HasUnranked reports whether entries on b may have no rank. The rank keys of b then begin with a class: 0 for ranked
// entries, 1 for [TooFew], and 2 plus the index in Statuses for other finishes.
func (b *Board) HasUnranked() bool { return b.MinResults > 0 || len(b.Statuses) > 0 }

func (b *Board) classBytes() int {
	if b.HasUnranked() {
		return 1
	}
	return 0
}

// accepts reports whether a result of b may have the finish f.
func (b *Board) accepts(f Finish) bool { return f == Ranked || slices.Contains(b.Statuses, f) }

// class returns the class of a tally: see [Board.HasUnranked].
func (b *Board) class(t *Tally) byte {
	switch {
	case t.finish != Ranked:
		return byte(2 + slices.Index(b.Statuses, t.finish))
	case t.results < b.MinResults:
		return 1
	}
	return 0
}

// FinishOf returns the finish in k, a rank key of b.
func (b *Board) FinishOf(k RankKey) Finish {
	if !b.HasUnranked() || k == "" {
		return Ranked
	}
	switch class := int(k[0]); {
	case class == 1:
		return TooFew
	case class > 1 && class-2 < len(b.Statuses):
		return b.Statuses[class-2]
	}
	return Ranked
}

// UnrankedFrom returns a bound of the rank keys: those below it have a rank, the others have none. It is empty if all
// have a rank.
func (b *Board) UnrankedFrom() RankKey {
	if !b.HasUnranked() {
		return ""
	}
	return "\x01"
}

// unlessStatus returns k without its class, or nothing if a status gives the class.
func (b *Board) unlessStatus(k RankKey) RankKey {
	if f := b.FinishOf(k); k == "" || f != Ranked && f != TooFew {
		return ""
	}
	return k[b.classBytes():]
}

// ranked returns a bound of scores as a bound of the rank keys of ranked entries.
func (b *Board) ranked(k RankKey) RankKey {
	if b.HasUnranked() {
		return "\x00" + k
	}
	return k
}
