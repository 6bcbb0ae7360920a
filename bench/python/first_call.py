#!/usr/bin/env python3
"""How long until moeloom.torch is there and has computed for the first time?

    OMP_NUM_THREADS=1 PYTHONPATH=src/python MOELOOM_LIBRARY=build/libmoeloom_c.so.1 python3 bench/python/first_call.py

torch is imported before the clock starts; one fresh process a sample, and of the samples the median. total_ms: import,
with the library's loading, and forward and backward of a small layer of experts; import_ms: the import alone.
"""
import argparse
import json
import statistics
import subprocess
import sys

SAMPLE = """
import json, time
import torch
torch.set_num_threads(1)
x, idx, weights = torch.randn(8, 16, requires_grad=True), torch.zeros(8, 1, dtype=torch.int64), torch.ones(8, 1)
gate_up, down = torch.nn.Parameter(torch.randn(2, 16, 16)), torch.nn.Parameter(torch.randn(2, 16, 8))
begin = time.perf_counter()
import moeloom.torch as mt
imported = time.perf_counter()
y = mt.ExpertsFunction.apply(x, idx, weights, mt.ExpertWeights(gate_up, down))
y.sum().backward()
end = time.perf_counter()
gate, up = (x @ gate_up[0].T).chunk(2, -1)
expected = (torch.nn.functional.silu(gate) * up) @ down[0].T
assert torch.allclose(y, expected, atol=1e-4), "wrong numbers"
print(json.dumps({"torch": torch.__version__, "total_ms": 1e3 * (end - begin), "import_ms": 1e3 * (imported - begin)}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=7, help="processes (default 7)")
    options = parser.parse_args()
    samples = []
    for _ in range(options.samples):
        done = subprocess.run([sys.executable, "-c", SAMPLE], stdout=subprocess.PIPE, text=True, check=True)
        samples.append(json.loads(done.stdout))
    medians = {name: statistics.median(sample[name] for sample in samples) for name in ("total_ms", "import_ms")}
    print(json.dumps({**samples[0], **medians}))


if __name__ == "__main__":
    main()
