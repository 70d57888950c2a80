#!/usr/bin/env bash
# Generates api/leaderboardpb and the descriptions of the REST API, api/openapi*.json, from the
# protos and api/examples.json, the types of the API for web/ and the clients, and the pages in
# api/web/dist from web/, with the generators that tools/go.mod pins.
#
#   scripts/generate.sh          writes them into api/, web/src, client and sdk
#   scripts/generate.sh --check  fails if the generated files differ from those in these folders
set -euo pipefail
cd "$(dirname "$0")/../tools"
out=../api
root=..
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
  root=$out/root
  mkdir "$root"
  cp -r ../web ../client ../sdk "$root"
fi
go tool buf generate ../api --template ../api/buf.gen.yaml --path ../api/proto/leaderboard -o "$out"
go run ./openapi "$out/openapi-v2.swagger.json" "$out/openapi-v2.json"
go run ./types "$out/openapi.json" "$root"
go run ./web "$root/web" "$out/web/dist"
if [ "$out" != ../api ]; then
  diff -r "$out/leaderboardpb" ../api/leaderboardpb && diff "$out/openapi.json" ../api/openapi.json &&
    diff "$out/openapi-v2.json" ../api/openapi-v2.json && diff -rq "$out/web/dist" ../api/web/dist &&
    for folder in web client sdk; do diff -r "$root/$folder" "../$folder" || exit 1; done || {
    echo "the generated files in api/, web/src, client and sdk do not follow from the protos, api/examples.json and web/: run make generate" >&2
    exit 1
  }
fi
