#!/usr/bin/env bash
# Runs golangci-lint in each module with code. The first run builds it.
set -euo pipefail
cd "$(dirname "$0")/.."
golangci=$(go -C tools/golangci tool -n golangci-lint)
for module in . client test/compose test/manifests test/openapi test/page tools; do
  (cd $module && "$golangci" run ./...)
done
