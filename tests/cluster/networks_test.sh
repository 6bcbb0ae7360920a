#!/usr/bin/env bash
# MOELOOM_NET: two networks at once, by their addresses and by interfaces, and one of IPv6, have the losses of one host.
# What a host does not have, or Open MPI would wait over for ever, ends with the host's name and the interface's.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

run() {
  on 0 timeout -k 5 300 "$root/launch/cluster.sh" "$(hostfile 1)" train "${small_run[@]}" --global-batch 12 --steps 4 \
    --ep 3 --dispatcher alltoall --run "$scratch/run" --overwrite > "$scratch/log" 2>&1
}
# trains NETWORKS INTERFACE...: over these, each of which carries something.
trains() {
  local networks=$1 interface before=()
  shift
  for interface in "$@"; do before+=("$(sent 1 "$interface")"); done
  MOELOOM_NET=$networks run || fail "$networks: $(cat "$scratch/log")"
  grep -q 'on 3 node(s)' "$scratch/log" || fail "$networks: the ranks are not on three hosts: $(cat "$scratch/log")"
  diff <(losses "$scratch/one") <(losses "$scratch/run") || fail "$networks: other losses than one host's"
  for interface in "$@"; do
    (($(sent 1 "$interface") > before[0] + 100000)) || fail "$networks: nothing has gone over $interface"
    before=("${before[@]:1}")
  done
  echo "$networks: the losses of one host${1:+, over $1}"
}
# refused NETWORKS SENTENCE...: before any wait for a network ends, with code 1 and these words.
refused() {
  local networks=$1 begin=$SECONDS code=0 sentence
  shift
  MOELOOM_NET=$networks run || code=$?
  [[ $code == 1 ]] && ((SECONDS - begin < 120)) ||
    fail "$networks: code $code after $((SECONDS - begin)) s: $(cat "$scratch/log")"
  for sentence in "$@"; do
    grep -qF "$sentence" "$scratch/log" || fail "$networks: no word of \"$sentence\": $(cat "$scratch/log")"
  done
  echo "$networks: refused, $*"
}

make_hosts 3
command -v awk > /dev/null || skip "awk is not installed"
second_network
mpirun_here -n 3 "$MOELOOM_BUILD/moeloom" train \
  "${small_run[@]}" --global-batch 12 --steps 4 --ep 3 --run "$scratch/one" > "$scratch/log" 2>&1 ||
  fail "one host: $(cat "$scratch/log")"

trains 10.77.0.0/24 eth0
trains 10.78.0.0/24 eth1
trains 10.77.0.0/24,10.78.0.0/24
trains eth0,eth1

refused eth0,,eth1 'MOELOOM_NET=eth0,,eth1: "" is neither a network nor an interface'
refused 10.77.0.0/99 '"10.77.0.0/99" is neither a network nor an interface'
refused eth0,eth7 ' has no interface eth7 that is up; what is up there: eth0 10.77.0.'
refused eth7 'host h0 has no interface eth7 that is up'
refused 10.99.0.0/24 'MOELOOM_NET=10.99.0.0/24: host h' ' has no address in the network 10.99.0.0/24 that is up'

six=$(on 0 cat /proc/sys/net/ipv6/conf/all/disable_ipv6 2> /dev/null || echo 1)
if [[ $six == 0 ]]; then
  for host in 0 1 2; do ip -n "$(namespace_of "$host")" address add "fd00:78::$((host + 1))/64" dev eth1 nodad; done
  trains eth0,eth1
  for host in 0 1 2; do ip -n "$(namespace_of "$host")" address add "fd00:79::$((host + 1))/64" dev eth0 nodad; done
  trains eth0,eth1
  for host in 0 1 2; do ip -n "$(namespace_of "$host")" address del "fd00:79::$((host + 1))/64" dev eth0; done
  refused fd00:77::/64 'MOELOOM_NET=fd00:77::/64: expected one network of IPv6'
  trains fd00:78::/64 eth1
  for host in 0 1 2; do ip -n "$(namespace_of "$host")" address del "10.78.0.$((host + 1))/24" dev eth1; done
  trains fd00:78::/64 eth1
  trains eth1 eth1
  refused eth0,eth1 'MOELOOM_NET=eth0,eth1: on host h' ' eth1 has no IPv4 address'
else
  echo "no IPv6 here: not tried"
fi

host2=$(namespace_of 2)
ip -n "$host2" link set eth1 down
refused eth1 'host h2 has no interface eth1 that is up'
ip -n "$host2" link set eth0 down
ip -n "$host2" link set eth0 name lan0
ip -n "$host2" link set lan0 up
refused eth0 'host h2 has no interface eth0 that is up; what is up there: lan0 10.77.0.3/24'
trains 10.77.0.0/24 eth0
