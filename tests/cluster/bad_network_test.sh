#!/usr/bin/env bash
# A network that drops, reorders, delays, is slow or away for a while makes training slower and changes no bit. One that
# stays away ends the job with the name of a host or a rank. Rows go in chunks, gradients and weights under products.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

command -v python3 > /dev/null || skip "python3 is not installed"
[[ -c /dev/net/tun ]] || skip "no /dev/net/tun here"

one=$scratch/one
run=$scratch/run
train=("${small_run[@]}" --hidden 128 --inter 128 --ep 4 --dispatcher hierarchical --overlap 2
  --overlap-grad-reduce on --overlap-param-gather on --steps 12)

# over_two OPTION...: on two hosts of two ranks.
over_two() {
  on 0 timeout -k 5 300 "$root/launch/cluster.sh" "$(hostfile 2)" train "${train[@]}" --run "$run" --overwrite "$@" \
    > "$scratch/log" 2>&1
}
same_losses() {
  grep -q 'on 2 node(s)' "$scratch/log" || fail "$1: the ranks are not on two hosts: $(cat "$scratch/log")"
  diff <(losses "$one") <(losses "$run") || fail "$1: other losses than one host's"
  echo "$1: the losses of one host, in $2 s"
}

# plug_in HOST: its eth0 into the bridge; the others forget the address of the card it had before.
plug_in() {
  local host
  ip -n "$hosts_prefix-net" link set "h$1" master bridge up
  ip -n "$(namespace_of "$1")" address add "10.77.0.$(($1 + 1))/24" dev eth0
  ip -n "$(namespace_of "$1")" link set eth0 up
  for ((host = 0; host < number_of_hosts; ++host)); do ip -n "$(namespace_of "$host")" neighbour flush dev eth0; done
}
relay=
# bad_link HOST OPTION...: in its cable's place.
bad_link() {
  local host=$1
  shift
  good_link "$host"
  ip -n "$hosts_prefix-net" link delete "h$host"
  : > "$scratch/relay"
  python3 "$root/tests/cluster/bad_link.py" "$(namespace_of "$host")" "$hosts_prefix-net" "h$host" "$@" > "$scratch/relay" 2>&1 &
  relay=$!
  soon grep -q ready "$scratch/relay" || skip "no bad links here: $(cat "$scratch/relay")"
  plug_in "$host"
}
good_link() {
  [[ -n $relay ]] || return 0
  kill "$relay"
  wait "$relay" 2> /dev/null || true
  relay=
  ip -n "$hosts_prefix-net" link add "h$1" type veth peer name eth0 netns "$(namespace_of "$1")"
  plug_in "$1"
}
counted() { sed -n "s/.*$1 \([0-9]*\).*/\1/p" "$scratch/relay" | tail -n 1; }

make_hosts 2
mpirun_here -n 4 "$MOELOOM_BUILD/moeloom" train \
  "${small_run[@]}" --hidden 128 --inter 128 --ep 4 --steps 12 --run "$one" > "$scratch/log" 2>&1 ||
  fail "one host: $(cat "$scratch/log")"
[[ $(losses "$one" | wc -l) == 12 ]] || fail "twelve steps have twelve losses: $(losses "$one")"

for way in "--drop 0.001" "--drop 0.02 --seed 2" "--reorder 0.05" "--delay-ms 5" "--drop 0.001 --reorder 0.01 --delay-ms 1"; do
  # shellcheck disable=SC2086  # words
  bad_link 1 $way
  begin=$SECONDS
  over_two || fail "$way: $(cat "$scratch/log")"
  same_losses "$way" $((SECONDS - begin))
  sleep 0.5  # until it has said the last numbers
  [[ $way != *drop* ]] || (($(counted dropped) > 0)) || fail "$way: nothing was dropped: $(tail -n 1 "$scratch/relay")"
  [[ $way != *reorder* ]] || (($(counted reordered) > 0)) || fail "$way: nothing was reordered: $(tail -n 1 "$scratch/relay")"
done
good_link 1

begin=$SECONDS
for side in "$(namespace_of 1) eth0" "$hosts_prefix-net h1"; do
  tc -n "${side% *}" qdisc add dev "${side#* }" root tbf rate 10mbit burst 80kb latency 50ms 2> "$scratch/why" ||
    skip "no shaped links here: $(cat "$scratch/why")"
done
over_two || fail "10 Mbit/s: $(cat "$scratch/log")"
same_losses "a host at 10 Mbit/s" $((SECONDS - begin))
tc -n "$(namespace_of 1)" qdisc del dev eth0 root
tc -n "$hosts_prefix-net" qdisc del dev h1 root

# start STEPS OPTION...: in the background, until it trains.
steps_done() { (($(losses "$run" 2> /dev/null | wc -l) > $1)); }
start() {
  rm -rf "$run"
  (over_two "$@") &
  job=$!
  soon steps_done 3 || fail "no steps: $(cat "$scratch/log")"
}
ended() { ! kill -0 "$job" 2> /dev/null; }

begin=$SECONDS
train+=(--steps 60)
mpirun_here -n 4 "$MOELOOM_BUILD/moeloom" train \
  "${small_run[@]}" --hidden 128 --inter 128 --ep 4 --steps 60 --run "$one" --overwrite > "$scratch/log" 2>&1 ||
  fail "one host: $(cat "$scratch/log")"
start
link down 1
sleep 1  # three probes of the launcher, a second each, may stay without an answer
! ended || fail "a link that was down for a second ended the job: $(cat "$scratch/log")"
link up 1
wait "$job" || fail "a link that was down for a second: $(cat "$scratch/log")"
same_losses "a link down for a second" $((SECONDS - begin))

# The launcher's messages go another way, so that it misses nobody.
second_network
begin=$SECONDS
export OMPI_MCA_oob_tcp_if_include=eth1 PRTE_MCA_prte_if_include=eth1
train+=(--steps 1000000)
start --stall-timeout 6
link down 1
soon ended || fail "a link down, the launcher's up: the job still runs: $(cat "$scratch/log")"
code=0
wait "$job" || code=$?
[[ $code == 76 ]] || fail "a link down, the launcher's up: code $code, not 76: $(cat "$scratch/log")"
said=$(grep -m 1 'stalled: no rank has moved' "$scratch/log" || true)
[[ $said =~ ranks?\ [0-3] && -s $run/stall.json ]] ||
  fail "a link down, the launcher's up: no rank is named: $(cat "$scratch/log")"
echo "a link down, the launcher's up: ended with code 76 after $((SECONDS - begin)) s: $said"
