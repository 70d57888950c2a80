// The test of the web page in a browser. It is a module of its own, so that the driver
// of the browser stays out of the service's go.mod.
module github.com/open-leaderboard/leaderboard/test/page

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/open-leaderboard/leaderboard v0.0.0
)

replace github.com/open-leaderboard/leaderboard => ../..
