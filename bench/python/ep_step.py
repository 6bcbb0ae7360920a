#!/usr/bin/env python3
"""A whole training step of two ranks: experts shared among them, against DDP over gloo with all experts on each.

    export OMP_NUM_THREADS=1 PYTHONPATH=src/python MOELOOM_LIBRARY=build/libmoeloom_c.so.1
    bench/beside.py --rounds 7 --ours "mpirun -n 2 PYTHON bench/python/ep_step.py --way ours --case d512" \\
        --rival "mpirun -n 2 PYTHON bench/python/ep_step.py --way ddp --case d512"

The model, and what DDP trains with torch.optim.AdamW, are those of bench/train/torch_step.py; ours has kernels on it,
finish_gradients and moeloom's AdamW. Both clip to 1, and each rank has half of the case's sequences. Prints one JSON
line: medians of the slowest rank, milliseconds; `experts_mib`: weights, gradients and moments of experts on a rank;
`peak_mib`: of the process.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "train"))
import torch_step  # noqa: E402


class Ours:
    def __init__(self, case):
        import moeloom
        import moeloom.torch as mt
        self._finish = mt.finish_gradients
        self._view = mt.functions.view
        self.mesh = moeloom.mesh(ep=moeloom.mesh().size)
        self.rank, self.size = self.mesh.rank, self.mesh.size
        self.model = mt.apply_default_kernels(torch_step.make_model(case), mesh=self.mesh)
        self.optimizer = torch_step.moeloom_adamw(self.model)

    def step(self, tokens):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch_step.loss_of(self.model, tokens)
        loss.backward()
        self._finish(self.model, self.mesh, max_norm=1.0)
        self.optimizer.step()
        return loss.item()

    def barrier(self):
        self.mesh.barrier()

    def sum(self, numbers):
        self.mesh.world.sum([self._view(numbers)])
        return numbers


class Ddp:
    def __init__(self, case):
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        self._dist = dist
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29533")
        os.environ.setdefault("USE_LIBUV", "0")  # Debian's torch 2.6 is built without it
        self.rank, self.size = (int(os.environ[f"OMPI_COMM_WORLD_{word}"]) for word in ("RANK", "SIZE"))
        dist.init_process_group("gloo", rank=self.rank, world_size=self.size)
        # An expert without tokens has no gradient.
        self.model = DistributedDataParallel(torch_step.make_model(case), find_unused_parameters=True)
        self.optimizer = torch_step.torch_adamw(self.model)

    def step(self, tokens):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch_step.loss_of(self.model, tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def barrier(self):
        self._dist.barrier()

    def sum(self, numbers):
        self._dist.all_reduce(numbers)
        return numbers


def experts_mib(model):
    """Weights, gradients and two moments."""
    return sum(4 * 4 * p.numel() for name, p in model.named_parameters() if ".experts." in name) / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=("ours", "ddp"), required=True)
    parser.add_argument("--case", choices=sorted(torch_step.CASES), default="d512")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    a = parser.parse_args()
    torch.set_num_threads(1)
    case = torch_step.CASES[a.case]
    way = (Ours if a.way == "ours" else Ddp)(case)
    torch.manual_seed(7)
    batches = [torch_step.random_tokens(case["sequences"])[way.rank::way.size] for _ in range(a.warmup + a.steps)]
    times, losses = [], []
    for tokens in batches:
        way.barrier()
        began = time.perf_counter()
        mine = way.step(tokens)
        everywhere = torch.zeros(way.size, 2)
        everywhere[way.rank] = torch.tensor([time.perf_counter() - began, mine])
        everywhere = way.sum(everywhere)
        times.append(everywhere[:, 0].max().item())
        losses.append(everywhere[:, 1].mean().item())
    if way.rank == 0:
        print(json.dumps({"way": a.way, "case": a.case, "ranks": way.size, "experts_mib": round(experts_mib(way.model)),
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                          "total_ms": round(1e3 * statistics.median(times[a.warmup:]), 2), "last_loss": losses[-1]}))


if __name__ == "__main__":
    main()
