#!/usr/bin/env bash
# Runs everything that CI runs: formatting, modules, linters, generated code, and
# every test under the race detector. It needs Go. It installs the packages and starts
# the servers that the tests need. The first step that fails ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }

step "packages for the tests"
./scripts/install-test-deps.sh

step "formatting"
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
  printf 'not formatted, run gofmt -w on:\n%s\n' "$unformatted" >&2
  exit 1
fi

step "modules"
modules=$(git ls-files | sed -n 's,go\.mod$,.,p')
for module in $modules; do go -C "$module" mod tidy -diff; done

step "linters"
golangci=$(go -C tools/golangci tool -n golangci-lint) # the first run builds it
for module in . test/compose test/manifests test/page tools; do
  (cd $module && "$golangci" run ./...)
done

step "protos and generated code"
buf=$(go -C tools tool -n buf)
"$buf" lint api
"$buf" breaking api/proto --against api/proto-baseline.binpb
./scripts/generate.sh --check

step "docker-compose.yml, the Dockerfile and its binary"
go -C test/compose test -count=1 -shuffle=on -skip '^TestReleaseOfAllPlatforms$|^TestGoInstall$' ./... # make slow runs these

step "deploy/"
REQUIRE_INTEGRATION=1 go -C test/manifests test -count=1 -shuffle=on ./...

step "tests"
# Real Cassandra, Kafka and Redis start once for all packages. With
# REQUIRE_INTEGRATION, a missing server fails a test instead of skipping it.
export REQUIRE_INTEGRATION="${REQUIRE_INTEGRATION:-1}"
# Two sets of official results must not be committed. To run the checks of these sets too,
# name the folder with the sets in LEADERBOARD_DATASETS.
export REQUIRE_DATASETS="${REQUIRE_DATASETS:-0}"
# The command "make slow" runs the tests that are skipped everywhere below. These tests take
# as long as all other tests together.
#
# Some tests run without the race detector. The detector would slow these tests down two to
# six times, and would find little:
# - The root package, repotest, the named tests of cache/memory and api/restjson, and those of trees,
#   slots, bulk loads and deep pages in cache/redis start no goroutines.
# - test/official and test/pipeline test child processes, whose binary has no detector.
# - The models of storage/cql run statements in chosen orders, and its tests of amendments
#   and of costs run one statement after another.
# - TestDemo plays 1,200 matches. Under the detector, Pebble checks its invariants too.
# - The suites of the store and the index also run under the detector: in memory, and with smaller
#   purges. On Redis, their concurrent cases do, and many tests of this package.
norace='^TestModel|^TestIndexOnACluster$|^TestIndexOnAServer$/^OneShard$|^TestContractOnDisk$|^TestRandomHistories$|^TestPurgesOfManyResultsAreRepeated$'
norace+='|^TestPagesAfterRandomChanges$|^TestRandomAmendments$|^TestReadsOfAllLayoutsAreEqual$|^TestCostOfAForgottenUserIsFlat$|^TestCostOfAnAmendment$'
norace+='|^TestChurnDoesNotGrowMemory$|^TestRemovalsAreBounded$|^TestLeavesStayFullWithAnyOrderOfInsertion$|^TestEachChangeKeepsTheInvariants$|^TestDemo$'
norace+='|^TestTreesSplitAndJoin$|^TestShardsAreSpreadOverSlots$|^TestIndexOnAServer$/^Shards$/^(Reads|Rebuild|Update|RandomHistories)$'
norace+='|^TestABulkLoadEqualsUpdates$|^TestDeepPagesAreExactAndTakeFewTrips$'
norace+='|^TestDecodeAgreesWithProtojson$|^TestJSONIsReadByProtojson$|^FuzzDecode$'
slow='^Test(Cassandra|CassandraTwoDataCenters|Kafka|ServersEndWithAKilledTestProcess|TwoClustersAreSeparate)$|^TestDisk|^TestTheDriverNeverLeaves|^TestSecuredBackEnds$|^TestSecuredCluster$|^TestRollingWindows$/^distributed$'
slow+='|^TestOfficialResultsThroughKafka$/^Boston|^TestOfficialResultsThroughKafka$/^F1$|^TestBoston$/^runners$/^every_user$'
slow+='|^TestLinkedFootball$/^thirty|^TestLinkedFootballThroughKafka$|^TestLinkedBoardsWhileConsumersAreKilled$/^2500|^TestExportsGiveAnEqualDistributedServer$'
slow+='|^TestIndexOnACluster$/^Shards$/^(Rebuild|Update)$'
# Go tests packages in this order. The first four take longest, so they begin early.
longest="./storage/cql ./cache/redis ./consumer ./schema"
packages="$longest $(go list ./... | sed 1d | grep -v -e /test/faults -e /test/official -e /test/pipeline -e /internal/repotest -e /storage/cql$ -e /cache/redis$ -e /consumer$ -e /schema$)"
export norace slow packages
# The tests of the pipeline mostly wait for child processes. So they, and the other tests without the
# race detector, run at the same time as the tests with it.
# The linters have vetted all packages.
go run ./test/cluster/cmd run -quick -- bash -euo pipefail -c '
  outputs=$(mktemp -d)
  trap "rm -rf $outputs" EXIT
  go test -shuffle=on -timeout 30m -vet=off -skip "$slow" ./test/pipeline >"$outputs/pipeline" 2>&1 &
  jobs=$!
  (
    go test -shuffle=on -timeout 30m -vet=off -skip "$slow" . ./internal/repotest ./test/official
    go test -shuffle=on -timeout 30m -vet=off -run "$norace" -skip "$slow" ./storage/... ./cache/... ./internal/ranking ./cmd/leaderboard ./api/restjson
    LEADERBOARD_BENCH_USERS=200000 go test -timeout 30m -vet=off -run "^$" -bench "^BenchmarkCosts$" -benchtime 1x ./cache/redis
    go -C test/page test -count=1 -shuffle=on ./... # no test cache, because Go would not notice that the service has changed
  ) >"$outputs/others" 2>&1 &
  jobs+=" $!"
  failed=0
  go test -race -shuffle=on -timeout 30m -vet=off -skip "$norace|$slow" $packages || failed=1
  for job in $jobs; do wait $job || failed=1; done
  cat "$outputs"/*
  exit $failed'

step "all checks passed"
