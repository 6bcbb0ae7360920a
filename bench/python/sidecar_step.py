#!/usr/bin/env python3
"""How long is a step of moeloom.train, of the model and the tokens that torch_step.py has?

    export OMP_NUM_THREADS=1 PYTHONPATH=src/python MOELOOM_LIBRARY=build/libmoeloom_c.so.1
    bench/beside.py --rounds 7 --field step_ms --ours "PYTHON bench/python/sidecar_step.py --case d256" \\
        --rival "PYTHON bench/train/torch_step.py --case d256 --patched"

As torch_step.py has it: random tokens, AdamW, no auxiliary loss, no clipping, one thread, fp32. step_ms is the median
of the seconds that the program says its steps took, the first two left out. A loss that torch_step.py could not have
is an error.
"""
import argparse
import array
import json
import math
import random
import statistics
import sys
import tempfile
from pathlib import Path

import moeloom

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "train"))
from torch_step import CASES, SEQUENCE, VOCABULARY  # noqa: E402


def write_tokens(path, count):
    draw = random.Random(0)
    with open(path, "wb") as file:
        array.array("H", (draw.randrange(VOCABULARY) for _ in range(count))).tofile(file)


def train(case, steps, folder):
    """Metrics of each step."""
    shape = {name: size for name, size in case.items() if name != "sequences"}
    batch = case["sequences"]
    write_tokens(f"{folder}/tokens.bin", 2 * (steps + 2) * batch * SEQUENCE)
    run = moeloom.train(None, f"{folder}/tokens.bin", data_format="u16", run=f"{folder}/run", vocab=VOCABULARY, **shape,
                        seq_len=SEQUENCE, global_batch=batch, steps=steps + 2, threads=1, lr=1e-3, rope_theta=1e6,
                        aux_loss_coef=0, max_grad_norm=0, save_every=0, eval_every=0, eval_sequences=1, sample_chars=0)
    return [line for line in run if "loss" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, default="d256")
    parser.add_argument("--steps", type=int, default=5, help="measured steps (default 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = train(CASES[options.case], options.steps, folder)
    losses = [line["loss"] for line in lines]
    # Nothing can be learnt from random tokens: the loss begins at ln 256 and a little above.
    if len(lines) != options.steps + 2 or not all(abs(loss - math.log(VOCABULARY)) < 0.5 for loss in losses):
        sys.exit(f"{len(lines)} steps, losses {losses}")
    seconds = [line["seconds"] for line in lines[2:]]
    print(json.dumps({"case": options.case, "step_ms": 1e3 * statistics.median(seconds), "loss": losses[-1],
                      "version": moeloom.info()["version"]}))


if __name__ == "__main__":
    main()
