#!/bin/sh
# Installs what the integration tests need on Debian or Ubuntu and is not there yet:
# Java 17 and Maven (Cassandra, Kafka), redis-server, kcat (an independent Kafka client), curl.
#
#   scripts/install-test-deps.sh             what the tests need
#   scripts/install-test-deps.sh --chromium  and a browser for the test of the web page
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

chromium=no
for arg in "$@"; do
	case $arg in
	--chromium) chromium=yes ;;
	*) fail "unknown argument $arg; usage: $0 [--chromium]" ;;
	esac
done

missing=
has_java17 || missing="$missing openjdk-17-jre-headless"
has mvn || missing="$missing maven"
{ has redis-server && has redis-cli; } || missing="$missing redis-server"
has kcat || missing="$missing kcat"
has curl || missing="$missing curl"
if [ $chromium = yes ] && ! has chromium; then
	missing="$missing chromium"
fi
if [ -z "$missing" ]; then
	say "nothing to install"
	exit 0
fi

has apt-get || fail "no apt-get here; install these by other means:$missing"
run=
if [ "$(id -u)" -ne 0 ]; then
	{ has sudo && sudo -n true 2>/dev/null; } || fail "not root; run: sudo apt-get install --no-install-recommends$missing"
	run=sudo
fi
say "installing$missing"
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -qq
# A Debian package starts its server at once; the tests start their own. The
# policy is taken back afterwards.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' | $run tee $policy >/dev/null
	$run chmod +x $policy
	trap '$run rm -f $policy' EXIT
fi
# shellcheck disable=SC2086 # a list of names
$run apt-get install -y -qq --no-install-recommends $missing >&2
say "done"
