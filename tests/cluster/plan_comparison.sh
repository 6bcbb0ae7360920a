#!/usr/bin/env bash
# `moeloom plan` beside training steps on hosts that shaped links join. Rates are those that `moeloom calibrate` measures
# across the hosts. Run by hand, on a machine with idle processors:
#
#   MOELOOM_BUILD=build tests/cluster/plan_comparison.sh [HOSTS RANKS RATE]...
#
# RANKS a host; without cases: 2 hosts of one rank, 2 of two and 4 of one, at 1 Gbit/s and 200 Mbit/s. Each rank has a
# share of a processor to itself (bench/moe/host_quota.sh), which others cannot take and a rank that waits does not lend:
# QUOTA percent, by default 80 % of all processors in equal parts. The kernel gives less than it says, as it stops a
# group at a tick of its clock; calibrate measures how much.
#
# Every way of plan's is trained as plan has it: ep = 1, that of a host's ranks and of all, by alltoall and hierarchical,
# with what travels under products where train lets it and with nothing that does. In each of ROUNDS (2) they take
# turns. It prints errors (PLAN_PHASES=1: each phase too), and fails where two were put in the wrong order that a tenth and more divides.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"
# shellcheck source=bench/moe/host_quota.sh
. "$root/bench/moe/host_quota.sh"

command -v python3 > /dev/null || skip "python3 is not installed"
model=(--layers 2 --hidden 512 --inter 256 --experts 8 --top-k 2)
sequences=2 # a rank
steps=8

# One after the other, each with hosts of its own; then all of them together.
if [[ $# -ne 3 ]]; then
  cases=("$@")
  [[ $# -gt 0 ]] || for rate in 1gbit 200mbit; do cases+=(2 1 "$rate" 2 2 "$rate" 4 1 "$rate"); done
  code=0
  for ((i = 0; i < ${#cases[@]}; i += 3)); do
    PLAN_ROWS=$scratch/rows bash "$0" "${cases[@]:i:3}" || code=$?
  done
  python3 - "$scratch/rows" << 'END'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
wrong = sum(row.get("wrong", 0) for row in rows)
pairs = sum(row.get("pairs", 0) for row in rows)
errors = [abs(row["error"]) for row in rows if "error" in row]
print(f"all: {len(errors)} ways, median error {100 * statistics.median(errors):.0f} %, worst "
      f"{100 * max(errors):.0f} %; {wrong} of {pairs} pairs that a tenth divides in the wrong order")
END
  exit $code
fi

hosts=$1 on_host=$2 rate=$3
ranks=$((hosts * on_host))
quota=${QUOTA:-$((80 * $(env -u OMP_NUM_THREADS nproc) / ranks))}
((quota < 100)) || quota=100
make_hosts "$hosts"
make_quota "$quota"
shape_links "$rate"
export MOELOOM_HOSTS=$hosts OMPI_MCA_mpi_yield_when_idle=0
on_all() {
  on 0 timeout -k 5 300 "$root/launch/with-env.sh" mpirun --hostfile "$(hostfile "$on_host")" -n "$ranks" \
    "${under_quota[@]}" "$MOELOOM_BUILD/moeloom" "$@" > "$scratch/log" 2>&1 || fail "$*: $(cat "$scratch/log")"
}
echo "$hosts hosts of $on_host rank(s), $rate each way, $quota % of a processor a rank, load" \
  "$(cut -d' ' -f1 /proc/loadavg): ${model[*]}, $sequences sequences of 256 a rank"
on_all calibrate "${model[@]}" --threads 1
grep -o 'exchange between nodes.*' "$scratch/log"

# train NAME EP DISPATCHER OVERLAP REDUCE GATHER: its steps behind those that NAME has.
train() {
  on_all train "${model[@]}" --threads 1 --global-batch $((sequences * ranks)) --seq-len 256 --steps "$steps" \
    --eval-every 0 --heldout 0 --sample-chars 0 --save-every 0 --data "$scratch/corpus.txt" --overwrite true --ep "$2" \
    --dispatcher "$3" --overlap "$4" --overlap-grad-reduce "$5" --overlap-param-gather "$6" --log-every 1 --run "$scratch/run"
  tail -n +3 "$scratch/run/metrics.jsonl" >> "$scratch/steps-$1"
}

# An untrained router's choices are not even: the plan is told by how much.
train load 1 alltoall off off off
expert_load=$(python3 - "$scratch/steps-load" << 'END'
import json, statistics, sys
loads = [x for line in open(sys.argv[1]) for x in json.loads(line)["expert_load"]]
print(round(statistics.mean(loads), 3))
END
)
# Hosts of this machine's processors are planned as nodes of a processor a rank.
plan() {
  OMPI_COMM_WORLD_RANK=0 "${under_quota[@]}" "$root/launch/with-env.sh" "$MOELOOM_BUILD/moeloom" plan "${model[@]}" \
    --threads 1 --ranks "$ranks" --ranks-per-node "$on_host" --processors "$on_host" \
    --tokens-per-rank $((256 * sequences)) --seq-len 256 --expert-load "$expert_load" --rows 0 --overlap "$1" \
    --json "$scratch/plan-$1.json" > "$scratch/log" 2>&1 || fail "plan: $(cat "$scratch/log")"
}
plan auto # measures what experts take, and keeps it
for overlap in auto off; do plan "$overlap"; done

# A line a way: its name, the words of train(), and what is predicted.
python3 - "$scratch" "$hosts" "$on_host" > "$scratch/ways" << 'END'
import json, sys
scratch, hosts, on_host = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seen = {}
for overlap in ("auto", "off"):
    for p in json.load(open(f"{scratch}/plan-{overlap}.json"))["points"]:
        if p["experts"] == "loop" or p["ep"] not in (1, on_host, hosts * on_host):
            continue
        if p["ep"] > 1 and p["dispatcher"] not in ("alltoall", "hierarchical"):
            continue
        on_off = lambda name: "on" if p[name] else "off"
        words = (p["ep"], p["dispatcher"], p["chunks"] or "off", on_off("overlap_grad_reduce"),
                 on_off("overlap_param_gather"))
        seen.setdefault(words, p["step_seconds"])
for words, seconds in seen.items():
    print("-".join(map(str, words)), *words, seconds)
END
for ((round = 0; round < ${ROUNDS:-2}; ++round)); do
  while read -r name ep way overlap reduce gather _ <&3; do
    train "$name" "$ep" "$way" "$overlap" "$reduce" "$gather"
  done 3< "$scratch/ways"
done

python3 - "$scratch" "${PLAN_ROWS:-/dev/null}" "$hosts x $on_host, $rate" << 'END' || fail "the plan ranks them wrongly"
import itertools, json, os, pathlib, statistics, sys
scratch, out, case = pathlib.Path(sys.argv[1]), open(sys.argv[2], "a"), sys.argv[3]
plan = json.loads((scratch / "plan-auto.json").read_text())
print("expert_load", plan["expert_load"])
phases = {}
for overlap in ("off", "auto"):
    for p in json.loads((scratch / f"plan-{overlap}.json").read_text())["points"]:
        phases[p["step_seconds"]] = p["phases"]
rows = []
for line in (scratch / "ways").read_text().splitlines():
    name, ep, way, overlap, reduce, gather, predicted = line.split()
    steps = [json.loads(step) for step in (scratch / f"steps-{name}").read_text().splitlines()]
    measured = 1e3 * statistics.median(step["seconds"] for step in steps)
    predicted = float(predicted)
    rows.append((name, 1e3 * predicted, measured))
    error = 1e3 * predicted / measured - 1
    print(f"ep={ep} {way:12} overlap {overlap:>3} reduce {reduce:3} gather {gather:3} predicted {1e3 * predicted:7.1f} ms, "
          f"measured {measured:7.1f} ms, {100 * error:+.0f} %")
    if "PLAN_PHASES" in os.environ:  # planned and measured ms of each
        for phase, seconds in phases[predicted].items():
            took = statistics.median(step["phases"].get(phase, 0) for step in steps)
            if max(seconds, took) > 5e-3:
                print(f"    {phase:10} {1e3 * seconds:7.1f} {1e3 * took:7.1f}")
    out.write(json.dumps({"case": case, "way": name, "error": error}) + "\n")
apart = [(a, b) for a, b in itertools.permutations(rows, 2) if a[2] > 1.1 * b[2]]
wrong = [(a, b) for a, b in apart if a[1] < b[1]]
out.write(json.dumps({"case": case, "pairs": len(apart), "wrong": len(wrong)}) + "\n")
errors = [abs(p / m - 1) for _, p, m in rows]
print(f"median error {100 * statistics.median(errors):.0f} %; of {len(apart)} pairs that a tenth divides {len(wrong)} in the "
      "wrong order")
for a, b in wrong:
    print(f"  planned {a[0]} before {b[0]}")
sys.exit(1 if wrong else 0)
END
