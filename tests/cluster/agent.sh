#!/usr/bin/env bash
# tests/cluster/agent.sh ADDRESS COMMAND...: what ssh would do, on a host that tests/cluster/hosts.sh made.
set -euo pipefail
host=$((${1##*.} - 1))
# A host without a link is entered here all the same, so it is knocked at first: nobody listens, and it says so.
knock=$(timeout 3 bash -c "exec 3<> /dev/tcp/$1/1" 2>&1 || true)
[[ $knock == *refused* ]] || { echo "agent: no answer from $1" >&2; exit 255; }
shift
# As ssh: the words are one line for the other shell.
code=0
nsenter --net="/run/netns/$MOELOOM_TEST_HOSTS-h$host" unshare --uts --mount -- \
  bash -c "hostname h$host && mount --bind '$MOELOOM_TEST_NAMES' /etc/hosts || exit; $*" || code=$?
# Over a dead link ssh hears no end.
while [[ $(ip -n "$MOELOOM_TEST_HOSTS-net" link show "h$host" 2> /dev/null) == *"state DOWN"* ]]; do sleep 0.2; done
exit $code
