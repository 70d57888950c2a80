#!/usr/bin/env bash
# Runs all that CI runs: formatting, vet, the linter, generated code, and every
# test under the race detector. Needs Go; what else the tests need is installed
# or started here, and said. Any step that fails ends it.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }

step "what the tests need"
./scripts/install-test-deps.sh

step "formatting"
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
  printf 'not formatted, run gofmt -w on:\n%s\n' "$unformatted" >&2
  exit 1
fi

step "vet"
go vet ./...
for module in test/compose test/generated; do go -C $module vet ./...; done

step "linter"
staticcheck=$(go -C tools tool -n staticcheck) # builds it, once
"$staticcheck" ./...
for module in test/compose test/generated; do (cd $module && "$staticcheck" ./...); done

step "generated code"
go -C test/generated test -count=1 ./... # what is outside the module would not make it run again

step "docker-compose.yml, the Dockerfile and its binary"
go -C test/compose test -count=1 -shuffle=on ./...

step "tests"
# Real Cassandra, Kafka and Redis are started once for all packages; with
# REQUIRE_INTEGRATION a missing server is a failure, never a skip.
export REQUIRE_INTEGRATION="${REQUIRE_INTEGRATION:-1}"
# Two sets of official results may not be committed: name their folder in
# LEADERBOARD_DATASETS to run those checks too.
export REQUIRE_DATASETS="${REQUIRE_DATASETS:-0}"
# What takes as long as all of this together is run apart: make slow.
go run ./test/cluster/cmd run -- go test -race -shuffle=on -timeout 30m \
  -skip '^TestOfficialResultsThroughKafka$/^Boston|^Test(Cassandra|CassandraTwoDataCenters|Kafka)$' \
  $(go list ./... | grep -v /test/faults)

step "all checks passed"
