#!/usr/bin/env bash
# Generates api/leaderboardpb and the descriptions of the REST API, api/openapi*.json, from the
# protos and api/examples.json, with the generators that tools/go.mod pins.
#
#   scripts/generate.sh          writes them into api/
#   scripts/generate.sh --check  fails if the generated files differ from those in api/
set -euo pipefail
cd "$(dirname "$0")/../tools"
out=../api
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
go tool buf generate ../api --template ../api/buf.gen.yaml --path ../api/proto/leaderboard -o "$out"
go run ./openapi "$out/openapi-v2.swagger.json" "$out/openapi-v2.json"
if [ "$out" != ../api ]; then
  diff -r "$out/leaderboardpb" ../api/leaderboardpb && diff "$out/openapi.json" ../api/openapi.json &&
    diff "$out/openapi-v2.json" ../api/openapi-v2.json || {
    echo "the generated files in api/ do not follow from the protos and api/examples.json: run make generate" >&2
    exit 1
  }
fi
