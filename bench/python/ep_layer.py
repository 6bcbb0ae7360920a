#!/usr/bin/env python3
"""A mixture-of-experts layer, forward and backward, whose experts several ranks share, from Python.

    export OMP_NUM_THREADS=1 PYTHONPATH=src/python MOELOOM_LIBRARY=build/libmoeloom_c.so.1
    bench/beside.py --rounds 7 --ours "mpirun -n 2 PYTHON bench/python/ep_layer.py --tokens 1024" \\
        --rival "PYTHON torch_ep_moe.py --ranks 2 --tokens 1024"

Softmax router, its gradient and that of the tokens included; every rank has --tokens of its own. The rival is eager
PyTorch over gloo. Gradients are None before each step. Prints one JSON line: medians over --steps of the slowest rank,
in milliseconds.
"""
import argparse
import json
import statistics
import time

import torch

import moeloom
import moeloom.torch as mt


def slowest(mesh, seconds):
    """[2] of this rank -> of the rank that took longest over both."""
    everywhere = torch.zeros(mesh.size, 2)
    everywhere[mesh.rank] = torch.tensor(seconds)
    mesh.world.sum([mt.functions.view(everywhere)])
    return everywhere[everywhere.sum(1).argmax()].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"tokens": 1024, "hidden": 1024, "inter": 768, "experts": 32, "top_k": 4, "warmup": 3,
                          "steps": 10}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    a = parser.parse_args()
    torch.set_num_threads(1)
    mesh = moeloom.mesh()
    if mesh.size > 1:
        mesh = moeloom.mesh(ep=mesh.size)
    torch.manual_seed(1)
    layer = mt.MoE(a.hidden, a.inter, a.experts, a.top_k, mesh=mesh)
    torch.manual_seed(100 + mesh.rank)
    x, dy = torch.randn(a.tokens, a.hidden, requires_grad=True), torch.randn(a.tokens, a.hidden)
    times = []
    for step in range(a.warmup + a.steps):
        layer.zero_grad(set_to_none=True)
        x.grad = None
        mesh.barrier()
        began = time.perf_counter()
        y = layer(x)
        middle = time.perf_counter()
        y.backward(dy)
        times.append(slowest(mesh, [middle - began, time.perf_counter() - middle]))
    forward, backward = (1e3 * statistics.median(column) for column in zip(*times[a.warmup:]))
    if mesh.rank == 0:
        flops = 18.0 * a.top_k * a.tokens * a.hidden * a.inter
        print(json.dumps({"ranks": mesh.size, "tokens": a.tokens, "forward_ms": round(forward, 2),
                          "backward_ms": round(backward, 2), "total_ms": round(forward + backward, 2),
                          "gflops_per_rank": round(flops / (forward + backward) / 1e6, 1)}))


if __name__ == "__main__":
    main()
