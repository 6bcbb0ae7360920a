#!/usr/bin/env python3
"""Two benchmark programs in turn on a noisy machine: the median of ratios between neighbours in time.

    bench/beside.py --rounds 7 --field total_ms \\
        --ours "mpirun -n 2 build/bench/layer_bench --ep 2 --paths gmm --samples 3 --json {json}" \\
        --rival "python3 torch_layer.py --ranks 2 --steps 3"

A command writes its result to the file that stands for {json} (an array: its last object counts), or prints one JSON object
as its last line. The ratio is rival / ours, so above 1 we take less time.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile


def run(command, field):
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        words = [word.replace("{json}", result.name) for word in shlex.split(command)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"failed with code {done.returncode}: {command}\n{done.stderr}")
        text = result.read() or done.stdout.strip().splitlines()[-1]
    answer = json.loads(text)
    row = answer[-1] if isinstance(answer, list) else answer
    if field not in row:
        sys.exit(f"no field {field} in the result of: {command}\nit has: {', '.join(row)}")
    return row[field]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True, help="a command")
    parser.add_argument("--rival", required=True, help="a command")
    parser.add_argument("--field", default="total_ms", help="a number that is better when smaller (default total_ms)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ours, rival, ratios = [], [], []
    for _ in range(options.rounds):
        ours.append(run(options.ours, options.field))
        rival.append(run(options.rival, options.field))
        ratios.append(rival[-1] / ours[-1])
        print(f"ours {ours[-1]:.1f}  rival {rival[-1]:.1f}  rival / ours {ratios[-1]:.3f}", flush=True)
    print(f"median: ours {statistics.median(ours):.1f}  rival {statistics.median(rival):.1f}  "
          f"rival / ours {statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})")


if __name__ == "__main__":
    main()
