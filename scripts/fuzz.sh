#!/usr/bin/env bash
# Runs each fuzz test of all modules for the given time: ./scripts/fuzz.sh 60s
set -euo pipefail
cd "$(dirname "$0")/.."
duration="${1:-60s}"
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
  dir=$(dirname "$file")
  grep -o '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r name; do
    printf '== %s %s\n' "$dir" "$name"
    go -C "$dir" test . -run '^$' -fuzz "^$name\$" -fuzztime "$duration" </dev/null
  done
done
echo "all fuzz tests passed"
