#!/usr/bin/env bash
# Generates api/leaderboardpb and the descriptions of the REST API, api/openapi*.json, from the
# protos and api/examples.json, and the pages in api/web/dist from web/, with the generators that
# tools/go.mod pins.
#
#   scripts/generate.sh          writes them into api/, and types of the API into web/src
#   scripts/generate.sh --check  fails if the generated files differ from those in api/ and web/src
set -euo pipefail
cd "$(dirname "$0")/../tools"
out=../api
web=../web
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
  web=$out/sources
  cp -r ../web "$web"
fi
go tool buf generate ../api --template ../api/buf.gen.yaml --path ../api/proto/leaderboard -o "$out"
go run ./openapi "$out/openapi-v2.swagger.json" "$out/openapi-v2.json"
go run ./web "$out/openapi.json" "$web" "$out/web/dist"
if [ "$out" != ../api ]; then
  diff -r "$out/leaderboardpb" ../api/leaderboardpb && diff "$out/openapi.json" ../api/openapi.json &&
    diff "$out/openapi-v2.json" ../api/openapi-v2.json && diff "$web/src/api.gen.ts" ../web/src/api.gen.ts &&
    diff -rq "$out/web/dist" ../api/web/dist || {
    echo "the generated files in api/ and web/src do not follow from the protos, api/examples.json and web/: run make generate" >&2
    exit 1
  }
fi
