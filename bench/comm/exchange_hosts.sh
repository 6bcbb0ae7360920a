#!/usr/bin/env bash
# Exchanges of a group of hosts, each on a link of its own.
#
#   bench/comm/exchange_hosts.sh HOSTS RATE [--kib 256 and what else exchange_bench takes]
#
# RANKS=2 puts two ranks on each host. MOELOOM_BUILD is the build to measure; root, because it makes the hosts.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../../tests/cluster/hosts.sh"

hosts=${1:?usage: exchange_hosts.sh HOSTS RATE [OPTION...]} rate=${2:?} ranks=${RANKS:-1}
shift 2
make_hosts "$hosts"
shape_links "$rate"
echo "$hosts hosts, $rate each way, $ranks rank(s) each; load $(cut -d' ' -f1 /proc/loadavg): $*"
export MOELOOM_HOSTS=$hosts
on 0 timeout -k 5 900 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile "$ranks")" -n $((hosts * ranks)) \
  "$MOELOOM_BUILD/bench/exchange_bench" "$@"
