// Package leaderboard contains the rules of the leaderboard service: boards and
// seasons, the merge of match results, and the computation of entries and rank keys. It
// also contains the [Store] and [Index] contracts. It imports the standard library
// only, and it does no input or output.
//
// A game server submits a [MatchResult] for a user. [Board.Merge] decides which results
// stand. The results that stand are the user's canonical results. [Board.Add] and
// [Board.Count] summarize them in a [Tally], and [Board.Entry] computes the user's
// [Entry] from it. The entries of a board's season, ordered by sort key, are the
// standings of its overall [Ladder]. Each division of the board has a ladder of its
// own.
package leaderboard
