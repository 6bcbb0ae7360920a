#!/usr/bin/env bash
# The study of expert-parallel sizes, which launch/bench-ep.sh --study starts once it has built moeloom:
#
#   MOELOOM_PROGRAM=build/moeloom COMMIT=abc bench/study/run.sh [--hostfile FILE] [--out DIR]
#
# Training steps of models of 64 and of 512 experts with as many active parameters, at every ep that the ranks allow, on
# one node and on several, the sizes of ep in turn; what `plan` predicts of them, and of 64 ranks; exchanges of 64
# simulated ranks, where SimGrid is installed. Without a hostfile the nodes are four network namespaces of this machine,
# which takes root (shaped_hosts.sh). DIR (bench-ep-study) gets study.jsonl, a line a result, and which-ep.md, the page
# about them; with a hostfile it must lie on a disk that all hosts share. What is measured there is not measured again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
program=$(realpath "${MOELOOM_PROGRAM:?}")

words=("$@")
hosts_from=
out=bench-ep-study
while [[ $# -gt 0 ]]; do
  case $1 in
    --hostfile | --out)
      [[ $# -gt 1 ]] || { echo "study: $1 needs a value" >&2; exit 1; }
      if [[ $1 == --out ]]; then out=$2; else hosts_from=$2; fi
      shift
      ;;
    --hostfile=*) hosts_from=${1#*=} ;;
    --out=*) out=${1#*=} ;;
    *) echo "study: unknown word $1; --study takes --hostfile FILE and --out DIR, its sizes are fixed" >&2 && exit 1 ;;
  esac
  shift
done
[[ -z $hosts_from || -r $hosts_from ]] ||
  { echo "study: cannot read the hostfile $hosts_from; it holds a line 'node1 slots=16' a machine" >&2; exit 1; }
for needed in python3 bible; do
  command -v $needed > /dev/null ||
    { echo "study: there is no $needed here; launch/install-deps.sh packages-test.txt installs it" >&2; exit 1; }
done
mkdir -p "$out"
out=$(realpath "$out")
COMMIT=${COMMIT:-unknown}
machines=$(if [[ -n $hosts_from ]]; then grep -vE '^[[:space:]]*(#|$)' "$hosts_from" | xargs; else uname -n; fi)
subject="commit $COMMIT on $machines"
[[ $(cat "$out/subject" 2> /dev/null || echo "$subject") == "$subject" ]] ||
  { echo "study: $out holds a study of $(cat "$out/subject"), and this is $subject; name another --out" >&2; exit 1; }
echo "$subject" > "$out/subject"

few=512 many=4096 # tokens of a rank
# shape EXPERTS [HIDDEN INTER HEADS]
shape() {
  echo --layers 2 --hidden "${2:-256}" --inter "${3:-128}" --experts "$1" --top-k 8 --heads "${4:-4}" \
    --kv-heads $((${4:-4} / 2)) --head-dim 64 --vocab 256 --seq-len 256
}

say() { echo "study: $* ($((SECONDS / 60)) min)"; }
quietly() { "$@" > "$out/log" 2>&1 || { cat "$out/log" >&2; echo "study: failed: $*" >&2; exit 1; }; }

# Where a job runs: on the node's ranks, on so many hosts (on_hosts), as one process of a host.
on_node() { MOELOOM_HOSTS=1 "$root/launch/with-env.sh" mpirun -n "$node_ranks" "$program" "$@"; }
of_node() { "$root/launch/with-env.sh" "$program" "$@"; }
of_a_host() { of_node "$@"; }
if [[ -n $hosts_from ]]; then
  # shellcheck source=bench/study/real_hosts.sh
  . "$here/real_hosts.sh"
else
  set -- "${words[@]}" # it may start this script again
  # shellcheck source=bench/study/shaped_hosts.sh
  . "$here/shaped_hosts.sh"
fi

# Ranks that are predicted: 64, or four times as many as there are where these are 64 and more; whole hosts.
larger=$((hosts * slots < 64 ? 64 : 4 * hosts * slots))
larger=$(((larger + slots - 1) / slots * slots))

# Routers of models that have learned something choose less evenly than new ones.
record() {
  local experts
  "$root/launch/corpus.sh" "$out/corpus.txt"
  for experts in 64 512; do
    [[ ! -s $out/routing-$experts ]] || continue
    say "records what routers over $experts experts choose after 100 steps"
    rm -f "$out/routing-$experts.part" # of a study that was stopped
    # shellcheck disable=SC2046
    quietly on_node train $(shape $experts 64 32 2) --global-batch $((8 * node_ranks)) --lr 0.003 --steps 100 \
      --heldout 0 --sample-chars 0 --save-every 0 --log-every 50 --data "$out/corpus.txt" --run "$out/recorder" \
      --overwrite true --record-routing "$out/routing-$experts.part"
    mv "$out/routing-$experts.part" "$out/routing-$experts"
  done
}

# measure PLACE JOB...: training steps of both models, routed by themselves and, of few tokens, as recorded.
measure() {
  local place=$1 experts tokens workloads=()
  shift
  for experts in 64 512; do
    for tokens in $few $many; do
      workloads=()
      [[ $place == alone || $place == whole || $tokens == "$many" ]] || workloads=(--workloads "trace:routing-$experts")
      say "$place: steps of $experts experts, $tokens tokens a rank"
      # Of 64 experts the sizes of ep are close to each other; a step of 512 on hosts takes seconds.
      # shellcheck disable=SC2046
      (cd "$out" && quietly "$@" bench ep $(shape $experts) --mode step --scaling weak --gmm auto \
        "${workloads[@]}" --tokens-per-rank "$tokens" --warmup 0 \
        --samples $((experts == 64 ? 7 : 3)) --commit "$COMMIT" --out "$out/$place")
    done
  done
}

# made FILE COMMAND...: by `COMMAND... --json FILE`, unless it is there.
made() { [[ -s $1 ]] || quietly "${@:2}" --json "$1"; }

# plan NAME RANKS RANKS_A_NODE PROCESSORS JOB [WORDS]: what is predicted of the same, told how uneven rows were.
plan() {
  local name=$1 place=$1 job=$5 layout=(--ranks "$2" --ranks-per-node "$3" --processors "$4" "${@:6}")
  local experts tokens load
  [[ $name != larger ]] || place=hosts
  for experts in 64 512; do
    for tokens in $few $many; do
      load=$(python3 "$here/gather.py" load "$out" $place $experts "$tokens")
      # shellcheck disable=SC2046
      made "$out/plan-$name-$experts-$tokens-natural.json" "$job" plan $(shape $experts) "${layout[@]}" --rows 0 \
        --tokens-per-rank "$tokens" --expert-load "$load"
    done
    # shellcheck disable=SC2046
    made "$out/plan-$name-$experts-$few-recorded.json" "$job" plan $(shape $experts) "${layout[@]}" --rows 0 \
      --tokens-per-rank $few --routing "trace:$out/routing-$experts"
  done
}
# Of the place where $XDG_CACHE_HOME lies.
calibrate() {
  local experts
  for experts in 64 512; do
    [[ ! -e $XDG_CACHE_HOME/of-$experts ]] || continue
    # shellcheck disable=SC2046
    quietly "$@" calibrate $(shape $experts)
    touch "$XDG_CACHE_HOME/of-$experts"
  done
}

# 64 ranks, which run.sh of it builds for: some minutes the first time.
simulate() {
  local experts
  command -v smpirun > /dev/null || return 0
  for experts in 64 512; do
    [[ ! -s $out/simulated-$experts.json ]] || continue
    "$root/bench/moe/simgrid/run.sh" 64 --tokens "$few" --hidden 256 --top-k 8 --experts $((experts / 64)) \
      --ways alltoall --json "$out/simulated-$experts.json" > "$out/log" 2>&1 ||
      say "not simulated: $(tail -1 "$out/log")"
  done
}

record
measure node on_node
if [[ -z $hosts_from ]]; then
  measure alone on_hosts 1
  measure whole on_whole 2
fi
measure hosts on_hosts "$hosts"
say "measures rates, and predicts"
# Rates of the node and of shaped hosts are of one machine, but not the same.
processors=$(python3 "$here/gather.py" processors "$out")
export XDG_CACHE_HOME=$out/cache-node
calibrate on_node
plan node "$node_ranks" "$node_ranks" "$processors" of_node
export XDG_CACHE_HOME=$out/cache-hosts
calibrate on_hosts "$hosts"
plan hosts $((hosts * slots)) "$slots" "${host_processors:-$processors}" of_a_host
plan larger "$larger" "$slots" "${host_processors:-$processors}" of_a_host "${larger_net[@]}"
say "exchanges of 64 simulated ranks"
simulate
describe > "$out/places.json"
python3 "$here/gather.py" all "$out" > "$out/study.jsonl"
"$here/page.py" "$out/study.jsonl" > "$out/which-ep.md"
say "the page: $out/which-ep.md, about $out/study.jsonl"
