// Package leaderboard contains the rules of the leaderboard service, and the [Store] and
// [Index] contracts. It does no input or output.
//
// A game server submits a [MatchResult] for a user. [Board.Merge] decides which results
// stand. [Board.Add] and [Board.Count] summarize these results in a [Tally], and
// [Board.Entry] computes the user's [Entry] from the tally. The entries of a season,
// ordered by sort key, are the standings of its overall [Ladder]. Each division has its
// own ladder.
package leaderboard
