// Package leaderboard holds the rules of the leaderboard service: boards and
// their seasons, match results and how they merge, how a user's entry follows
// from that user's results, and the bytes by which standings compare. It holds
// the Store and Index contracts too. It imports the standard library only and
// does no input or output.
//
// The vocabulary, in short: a game server submits a [MatchResult] for a user;
// the results that stand are a user's canonical results; a [Board]'s policy
// makes of them the user's [Entry]; entries in order are the standings of a
// [Ladder], that is of a board, one of its seasons and one of its divisions.
package leaderboard
