#!/bin/sh
# Installs missing Debian or Ubuntu packages that the integration tests need: Java 17
# and Maven (Cassandra, Kafka), redis-server, kcat (an independent Kafka client), curl, jq,
# chromium (the web page), zsh and fish (completion), systemd (its checks of units), and
# gcc (the race detector, and a library that shifts the clocks of servers). With the
# argument --all, also godot3-server and mono-mcs, which only the part clients needs, and
# postgresql, which only the part archives needs.
set -eu

say() { echo "install-test-deps: $*" >&2; }
fail() { say "$*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

has_java17() {
	for java in "${JAVA_HOME:-/nonexistent}/bin/java" java /usr/lib/jvm/*17*/bin/java; do
		if has "$java" && "$java" -version 2>&1 | grep -q 'version "17\.'; then
			return 0
		fi
	done
	return 1
}

case "$*" in
"" | --all) ;;
*) fail "unknown arguments $*; usage: $0 [--all]" ;;
esac

missing=
has_java17 || missing="$missing openjdk-17-jre-headless"
has mvn || missing="$missing maven"
{ has redis-server && has redis-cli; } || missing="$missing redis-server"
has kcat || missing="$missing kcat"
has curl || missing="$missing curl"
has jq || missing="$missing jq"
has systemd-analyze || missing="$missing systemd"
has cc || missing="$missing gcc libc6-dev"
has chromium || missing="$missing chromium"
has zsh || missing="$missing zsh"
has fish || missing="$missing fish"
if [ "$*" = --all ]; then
	has godot3-server || missing="$missing godot3-server"
	{ has mcs && has mono; } || missing="$missing mono-mcs libmono-system-runtime-serialization4.0-cil"
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
fi
if [ -z "$missing" ]; then
	say "nothing to install"
	exit 0
fi

has apt-get || fail "apt-get not found; install these in another way:$missing"
run=
if [ "$(id -u)" -ne 0 ]; then
	{ has sudo && sudo -n true 2>/dev/null; } || fail "not root; run: sudo apt-get install --no-install-recommends$missing"
	run=sudo
fi
say "installing$missing"
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -qq
# A Debian package starts its server on installation. This policy prevents the start,
# because the tests start their own servers. The script removes the policy when it ends.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' | $run tee $policy >/dev/null
	$run chmod +x $policy
	trap '$run rm -f $policy' EXIT
fi
# shellcheck disable=SC2086 # a list of names
$run apt-get install -y -qq --no-install-recommends $missing >&2
say "done"
