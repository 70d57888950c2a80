// Package leaderboard contains the rules of the leaderboard service: boards and
// seasons, the merge of match results, and the computation of entries and rank keys. It
// also contains the [Store] and [Index] contracts. It imports the standard library
// only, and it does no input or output.
//
// A game server submits a [MatchResult] for a user. [Board.Merge] decides which results stand. The
// results that stand are the user's canonical results. [Board.Add] and [Board.Count] summarize the
// canonical results in a [Tally], and [Board.Entry] computes the user's [Entry] from the tally. The
// entries of a board's season, ordered by sort key, are the standings of its overall [Ladder]. Each
// division of the board has its own ladder.
package leaderboard
