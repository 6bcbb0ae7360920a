#!/usr/bin/env bash
# tests/faults/hour.sh [MINUTES [SEED [MEAN]]]: which share of the time a run trains that loses a rank about every MEAN
# (10) minutes.
#
# Trains on 2 ranks under launch/go-on.sh for so many minutes (60), and kills one of them now and then: times are drawn
# from the seed (1), with the exponential distribution of faults that know nothing of each other. At the end the run is
# stopped with a checkpoint. Prints what became of the wall time from the first start to the end; steps that a later
# start did again are not training. MOELOOM_BUILD is the build, MOELOOM_HOUR_OPTIONS replaces the model's and the save
# interval's options.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=launch/env.sh
. "$root/launch/env.sh"
export OMP_NUM_THREADS=1 MOELOOM_BUILD=${MOELOOM_BUILD:-$root/build}
minutes=${1:-60} seed=${2:-1} mean=${3:-10}
work=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-hour-XXXXXX")
run=$work/run
job='' rest=''
clean_up() {
  [[ -z $rest ]] || kill "$rest" 2> /dev/null
  if [[ -n $job ]]; then
    kill -TERM "$job" 2> /dev/null
    wait "$job"
  fi
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

"$root/launch/corpus.sh" "$work/text" > /dev/null 2>&1 ||
  for ((i = 0; i < 40000; ++i)); do echo "In the beginning was line $((i * i % 977)), and it was good."; done > "$work/text"
# 12 s between saves: tests/faults/share.sh, with what a save of this model was measured to cost.
read -rd "" -a options <<< "${MOELOOM_HOUR_OPTIONS:---layers 4 --hidden 256 --inter 256 --experts 16 --top-k 2 --heads 4
  --kv-heads 2 --head-dim 64 --seq-len 128 --global-batch 8 --save-every 0 --save-minutes 0.2}" || true
options+=(--ep 2 --steps 10000000 --schedule-steps 100000 --eval-every 0 --sample-chars 0 --log-every 1000000 --data "$work/text")

ranks() { pgrep -x moeloom -a | awk -v run="$run" 'index($0, run) { print $1 }'; }
"$root/launch/go-on.sh" "$run" mpirun -n 2 "$MOELOOM_BUILD/moeloom" -- "${options[@]}" 2> "$work/log" &
job=$!
end=$((SECONDS + 60 * minutes))
RANDOM=$seed
kills=0
while ((SECONDS < end)); do
  pause=$(awk -v u=$((RANDOM * 32768 + RANDOM)) -v mean="$mean" 'BEGIN { printf "%d", 1 - 60 * mean * log((u + 1) / 1073741825) }')
  ((SECONDS + pause < end)) || pause=$((end - SECONDS))
  sleep "$pause" &
  rest=$!
  wait "$rest"
  kill -0 "$job" 2> /dev/null || { cat "$work/log"; echo "the run has ended" >&2; exit 1; }
  ((SECONDS < end)) || break
  mapfile -t pids < <(ranks)
  ((${#pids[@]})) || continue
  kill -KILL "${pids[RANDOM % ${#pids[@]}]}" && ((++kills)) && echo "minute $((minutes - (end - SECONDS) / 60)): killed a rank"
done
kill -TERM "$job"
code=0
wait "$job" || code=$?
job=
[[ $code == 75 ]] || { cat "$work/log"; echo "the run was not stopped in order: exit code $code" >&2; exit 1; }
ended=${EPOCHREALTIME/,/.}

# number FIELD FILE: of each line.
number() { awk -v field="\"$1\":" '(at = index($0, field)) { print substr($0, at + length(field)) + 0 }' CONVFMT=%.6f OFMT=%.6f "$2"; }
((kills > 0)) || { echo "no rank was killed in $minutes minutes; give more" >&2; exit 1; }
grep -h 'go-on:' "$work/log"
sum() { number "$1" "$run/$2" | awk '{ s += $1 } END { printf "%.6f", s }'; }
# Seconds of a step are those of its slowest rank, so that their sum may be more than there were: what was not training
# is counted too, and the smaller share holds.
awk -v first="$(number started "$run/restarts.jsonl" | head -n 1)" -v ended="$ended" -v steps="$(wc -l < "$run/metrics.jsonl")" \
  -v trained="$(sum seconds metrics.jsonl)" -v again="$(sum lost_seconds restarts.jsonl)" \
  -v starting="$(sum start_seconds metrics.jsonl)" -v saving="$(sum save_seconds metrics.jsonl)" \
  -v validating="$(sum eval_seconds metrics.jsonl)" -v lost="$(sum lost_starting restarts.jsonl)" \
  -v away="$(paste <(number started "$run/restarts.jsonl" | tail -n +2) <(number ended "$run/restarts.jsonl" | head -n -1) |
    awk '{ s += $1 - $2 } END { print s + 0 }')" \
  -v restarts="$(grep -vc '"exit_code":75,' "$run/restarts.jsonl")" -v kills="$kills" -v bytes="$(du -sh "$run" | cut -f 1)" '
  BEGIN {
    wall = ended - first
    rest = again + starting + lost + saving + validating + away
    share = trained < wall - rest ? trained / wall : 1 - rest / wall
    printf "%d ranks killed, %d starts again, %d steps, run folder %s\n", kills, restarts, steps, bytes
    printf "trained %.1f s of %.1f s by its lines; %.1f s were something else\n", trained, wall, rest
    printf "share %.4f\n", share
    printf "steps done again %.1f s, starting %.1f s, saving %.1f s, validating %.1f s, between jobs %.1f s\n",
      again, starting + lost, saving, validating, away
  }'
