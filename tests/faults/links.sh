#!/usr/bin/env bash
# tests/faults/links.sh down|slow HOST: the link of a host is cut, or has 1 % of its speed, while 4 hosts train; run.sh
# calls it. The hosts are network namespaces (tests/cluster/hosts.sh); 77 where the machine has none.
#
# down: the job ends within the bound, says which host is lost, and goes on from its checkpoint once the link is back.
# slow: a job that only waits longer is not ended, unless a step then takes longer than --stall-timeout.
set -uo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/../cluster/hosts.sh"
fault=${1:?down or slow}
host=${2:?a host, 0 to 3}
((host > 0)) || host=1 # mpirun's own loses every other one
run=$scratch/run
undisturbed=$scratch/undisturbed
options=("${small_run[@]}" --ep 4 --steps 60 --save-every 10 --keep 0 --progress off --stall-timeout 5)

right() { # WHAT MESSAGE COMMAND...
  local checked=$1 message=$2
  shift 2
  if "$@"; then echo "right $checked"; else echo "wrong $checked: $message"; fi # a wrong one counts, whatever follows
}
go_on() { # RUN RESTARTS
  on 0 timeout -k 5 300 "$root/launch/go-on.sh" --pause 0 --restarts "$2" "$1" \
    "$root/launch/cluster.sh" "$(hostfile 1)" -- "${options[@]}"
}
has_checkpoint() { compgen -G "$run/checkpoint-*" > /dev/null; }
ended() { ! kill -0 "$job" 2> /dev/null; }
in_log() { grep -qE -- "$1" "$scratch/log"; }
slow_link() {
  tc -n "$(namespace_of "$host")" qdisc change dev eth0 root tbf rate 10mbit burst 80kb latency 50ms &&
    tc -n "$hosts_prefix-net" qdisc change dev "h$host" root tbf rate 10mbit burst 80kb latency 50ms
}
same() {
  diff <(losses "$undisturbed") <(losses "$run") > /dev/null &&
    cmp -s "$undisturbed/checkpoint-60/model.safetensors" "$run/checkpoint-60/model.safetensors"
}

make_hosts 4
shape_links 1gbit
go_on "$undisturbed" 0 > "$scratch/log" 2>&1 || fail "the undisturbed run: $(cat "$scratch/log")"
began=$SECONDS code=0
go_on "$run" 0 > "$scratch/log" 2>&1 &
job=$!
soon has_checkpoint || fail "no checkpoint: $(cat "$scratch/log")"
if [[ $fault == down ]]; then
  link down "$host"
  soon ended && bounded=true || bounded=false
  link up "$host"
  right named "host h$host is not named" in_log "(on node h$host|10\\.77\\.0\\.$((host + 1))|rank $host )"
  soon none_of "$hosts_prefix" || echo "wrong clean: $(processes_of "$hosts_prefix" | wc -l) processes"
  wait "$job"
  sleep 3 # the host is heard again a moment later
  go_on "$run" 2 >> "$scratch/log" 2>&1 || code=$?
else
  slow_link
  soon ended && bounded=true || bounded=false
  wait "$job" || code=$?
  # shellcheck disable=SC2251
  right named "a rank was said to be stalled" eval '! in_log stalled:'
fi
$bounded || code="not ended in time"
right finished "$code after $((SECONDS - began)) s" test "$code" = 0
right same "other losses or weights" same
right clean "processes are left" soon none_of "$hosts_prefix"
grep -v kernel= "$scratch/log" | tail -n 20
