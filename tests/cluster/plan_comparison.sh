#!/usr/bin/env bash
# `moeloom plan` beside training steps on two hosts of one rank each, with links of 1 Gbit/s. The network's rates are
# those that `moeloom calibrate` measures across the hosts. Run by hand, on a machine with two idle processors:
#
#   MOELOOM_BUILD=build tests/cluster/plan_comparison.sh
#
# It prints every mesh and dispatcher, and fails where plan puts two in the wrong order that a tenth and more divides.
set -euo pipefail
# shellcheck source=tests/cluster/hosts.sh
. "$(dirname "$0")/hosts.sh"

command -v python3 > /dev/null || skip "python3 is not installed"
model=(--layers 2 --hidden 256 --inter 256 --experts 8 --top-k 2)
steps=9

make_hosts 2
shape_links 1gbit
on 0 "$root/launch/cluster.sh" "$(hostfile 1)" calibrate "${model[@]}" --threads 1 > "$scratch/log" 2>&1 ||
  fail "calibrate: $(cat "$scratch/log")"

train() {
  on 0 timeout -k 5 120 "$root/launch/cluster.sh" "$(hostfile 1)" train "${model[@]}" --threads 1 --global-batch 4 \
    --seq-len 256 --steps "$steps" --eval-every 0 --sample-chars 0 --data "$scratch/corpus.txt" --ep "$1" \
    --dispatcher "$2" --run "$scratch/run-$1-$2" > "$scratch/log" 2>&1 || fail "ep = $1, $2: $(cat "$scratch/log")"
}
train 1 alltoall
for way in alltoall hierarchical allgather; do train 2 "$way"; done

# An untrained router's choices are not even: the plan is told by how much.
expert_load=$(python3 - "$scratch/run-1-alltoall/metrics.jsonl" << 'END'
import json, statistics, sys
loads = [x for line in open(sys.argv[1]) for x in json.loads(line)["expert_load"]]
print(round(statistics.mean(loads), 3))
END
)
# Two hosts of this machine's processors are planned as two nodes of one.
"$root/launch/with-env.sh" "$MOELOOM_BUILD/moeloom" plan "${model[@]}" --threads 1 --ranks 2 --ranks-per-node 1 \
  --processors 1 --tokens-per-rank 512 --seq-len 256 --expert-load "$expert_load" --rows 0 --json "$scratch/plan.json" \
  > "$scratch/log" 2>&1 || fail "plan: $(cat "$scratch/log")"

python3 - "$scratch" << 'END' || fail "the plan ranks them wrongly"
import json, pathlib, statistics, sys
scratch = pathlib.Path(sys.argv[1])
plan = json.loads((scratch / "plan.json").read_text())
print("expert_load", plan["expert_load"])
rows = []
for point in plan["points"]:
    run = scratch / f"run-{point['ep']}-{point['dispatcher']}" / "metrics.jsonl"
    if point["experts"] == "loop" or not run.exists():
        continue
    seconds = [json.loads(line)["seconds"] for line in run.read_text().splitlines()][2:]
    rows.append((point, 1e3 * point["step_seconds"], 1e3 * statistics.median(seconds)))
for point, predicted, measured in rows:
    print(f"ep={point['ep']} {point['dispatcher']:12} predicted {predicted:7.1f} ms, measured {measured:7.1f} ms, "
          f"{100 * (predicted / measured - 1):+.0f} %")
wrong = [(a, b) for a in rows for b in rows if a[1] < b[1] and a[2] > 1.1 * b[2]]
sys.exit(1 if wrong else 0)
END
