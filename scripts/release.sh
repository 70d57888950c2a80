#!/usr/bin/env bash
# Builds the files of a release into the folder dist: for each platform an archive with
# the static binary, their checksums, and the notes, which are the version's section of
# CHANGELOG.md. The workflow release.yml adds SBOMs.
#
#   scripts/release.sh v1.2.3                all platforms
#   scripts/release.sh v1.2.3 linux/amd64    one platform
#
# The variable DIST names a folder to use in place of dist. The archives of one commit and one
# Go version are always the same.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release: $*" >&2; exit 1; }

version=${1:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] || fail "the version is ${version:-missing}; usage: $0 v1.2.3 [os/arch …]"
shift
platforms=("$@")
[ $# -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64)
dist=${DIST:-dist}
[ ! -e "$dist" ] || fail "$dist exists; remove it"
[ -z "$(git status --porcelain)" ] || fail "the checkout has changes; commit them"
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)

awk -v version="${version#v}" '
  /^## / { inside = ($2 == version) }
  inside { print }
' CHANGELOG.md > "$dist/notes.md"
grep -q '^### Upgrading' "$dist/notes.md" || fail "CHANGELOG.md has no section \"## ${version#v}\" with \"### Upgrading\": rename the section Unreleased"

time=$(git log -1 --format=%ct)
for platform in "${platforms[@]}"; do
  export GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0
  name=leaderboard_${version}_${GOOS}_${GOARCH}
  binary=leaderboard
  [ "$GOOS" != windows ] || binary=leaderboard.exe
  mkdir "$dist/$name"
  go build -buildvcs=true -trimpath -ldflags "-X github.com/open-leaderboard/leaderboard/internal/cli.release=$version" -o "$dist/$name/$binary" ./cmd/leaderboard
  cp LICENSE README.md CHANGELOG.md "$dist/$name"
  tar -C "$dist" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - "$name" | gzip -n > "$dist/$name.tar.gz"
  rm -r "${dist:?}/$name"
done
(cd "$dist" && sha256sum -- *.tar.gz > SHA256SUMS)
