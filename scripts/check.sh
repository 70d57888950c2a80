#!/usr/bin/env bash
# Runs everything that CI runs at every change: formatting, modules, linters, generated code,
# and all tests except the parts of "make slow". It needs Go. It installs the packages and
# starts the servers that the tests need. It runs all steps, even after one has failed.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/install-test-deps.sh
# Two sets of official results must not be committed. To run the checks of these sets too,
# name the folder with the sets in LEADERBOARD_DATASETS.
export REQUIRE_DATASETS="${REQUIRE_DATASETS:-0}"
# With this flag, a clone can use what another clone has compiled.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath"
exec go run ./test/run check
