#!/usr/bin/env bash
# A rank that is killed on another host, and a host whose link is down, end the job within seconds. Nothing is left,
# and the run goes on from its checkpoint.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

run=$scratch/run

# The program itself, neither mpirun, nor a shell that names it, nor its watcher.
ranks_on() {
  local pid
  for pid in $(ip netns pids "$(namespace_of "$1")"); do
    [[ $(cat "/proc/$pid/comm") != moeloom ]] || echo "$pid"
  done
}
has_checkpoint() { compgen -G "$run/checkpoint-*" > /dev/null; }
ended() { ! kill -0 "$job" 2> /dev/null; }

# start: in the background, until there is a checkpoint.
start() {
  on 0 timeout -k 5 300 "$root/launch/go-on.sh" --restarts 0 "$run" "$root/launch/cluster.sh" "$(hostfile 1)" -- "${small_run[@]}" \
    --ep 4 --steps 1000000 --save-every 5 --stall-timeout 0 --log-every 1000000 > "$scratch/log" 2>&1 &
  job=$!
  soon has_checkpoint || fail "no checkpoint: $(cat "$scratch/log")"
}

# expect_end WHAT
expect_end() {
  local begin=$SECONDS code=0
  soon ended || fail "$1: the job still runs after $((SECONDS - begin)) s: $(cat "$scratch/log")"
  wait "$job" || code=$?
  [[ $code != 0 && $code != 124 ]] || fail "$1: the job succeeded, or did not end: code $code"
  soon none_of "$hosts_prefix" || fail "$1: left: $(processes_of "$hosts_prefix" | xargs -r ps -f -p)"
  echo "$1: ended after $((SECONDS - begin)) s with code $code, nothing is left"
}

make_hosts 4
start
kill -KILL "$(ranks_on 2)"
expect_end "a rank killed on host 2"

newest() { find "$run" -maxdepth 1 -name 'checkpoint-*' | sort -V | tail -n 1; }
before=$(newest)
goes_on() { [[ $(newest) != "$before" ]]; }
start
soon goes_on || fail "the run does not go on from $before: $(cat "$scratch/log")"
link down 3
expect_end "the link of host 3 down"
grep -qE '10\.77\.0\.4|h3' "$scratch/log" || fail "no word of host 3: $(cat "$scratch/log")"
