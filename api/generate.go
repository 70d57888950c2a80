package api

// The tools module pins the generators. Generated files are committed, and
// never edited.
//
//go:generate sh -c "cd ../tools && go tool buf lint ../api"
//go:generate sh -c "cd ../tools && go tool buf generate ../api --template ../api/buf.gen.yaml --path ../api/proto/leaderboard -o ../api"
//go:generate sh -c "cd ../tools && go run ./openapi ../api/openapi.swagger.json ../api/openapi.json"
