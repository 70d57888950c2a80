// The client is a module of its own, so that programs that use it need none of the server's modules.
module github.com/open-leaderboard/leaderboard/client

go 1.25.0
