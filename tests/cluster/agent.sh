#!/usr/bin/env bash
# tests/cluster/agent.sh ADDRESS COMMAND...: what ssh would do, on a host that tests/cluster/hosts.sh made.
set -euo pipefail
host=$((${1##*.} - 1))
shift
# As ssh: the words are one line for the other shell.
exec nsenter --net="/run/netns/$MOELOOM_TEST_HOSTS-h$host" unshare --uts --mount -- \
  bash -c "hostname h$host && mount --bind '$MOELOOM_TEST_NAMES' /etc/hosts && exec $*"
