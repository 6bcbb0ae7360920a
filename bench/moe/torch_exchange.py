#!/usr/bin/env python3
"""The peer of dispatch_bench: dispatch and combine, forward and backward, as PyTorch over gloo does them.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 /usr/bin/python3 bench/moe/torch_exchange.py --ranks 2 --bytes 1048576

Index the tokens by expert, all_to_all_single, regroup by expert; then back: regroup by source, all_to_all_single, add
each token's rows; autograd does the same in reverse. The counts are exchanged once and not timed, as dispatch_bench
does not time its plan. Models, --load and --bytes (of a pair of ranks in one exchange) mean what they mean there.
Prints one JSON line: the median over --steps of the slowest rank's milliseconds.
"""
import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

MODELS = {"qwen3": (2048, 128, 8), "mixtral": (4096, 8, 2), "deepseek": (7168, 256, 8)}


class Exchange(torch.autograd.Function):
    """Rows to their ranks; the gradient takes the way back."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.counts = sent, received
        landed = rows.new_empty(sum(received), rows.size(1))
        dist.all_to_all_single(landed, rows.contiguous(), received, sent)
        return landed

    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.counts
        home = gradient.new_empty(sum(sent), gradient.size(1))
        dist.all_to_all_single(home, gradient.contiguous(), sent, received)
        return home, None, None


class Plan:
    def __init__(self, chosen, experts, ranks):
        self.top_k = chosen.size(1)
        self.order = torch.argsort(chosen.reshape(-1), stable=True)
        mine = torch.bincount(chosen.reshape(-1), minlength=experts).view(ranks, -1)
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs.view(-1), mine.reshape(-1).contiguous())
        self.sent, self.received = mine.sum(1).tolist(), theirs.sum(1).tolist()
        # Where each row that arrives goes so that experts' rows lie together, sources in order.
        expert = torch.repeat_interleave(torch.arange(theirs.numel()) % theirs.size(1), theirs.view(-1))
        self.by_expert = torch.argsort(expert, stable=True)
        self.by_source = torch.argsort(self.by_expert)


def choices(count, experts, top_k, load):
    """A draw without replacement: the largest of log(weight) + Gumbel noise, weights even or 1 / (expert + 1)."""
    noise = -torch.log(-torch.log(torch.rand(count, experts).clamp(1e-12, 1 - 1e-7)))
    if load == "zipf":
        noise -= torch.arange(1.0, experts + 1).log()
    return noise.topk(top_k, -1).indices


def exchange(tokens, plan):
    rows = Exchange.apply(tokens[plan.order // plan.top_k], plan.sent, plan.received)[plan.by_expert]
    home = Exchange.apply(rows[plan.by_source], plan.received, plan.sent)
    return torch.zeros_like(tokens).index_add(0, plan.order // plan.top_k, home)


def run(rank, options, port, answer):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    hidden, experts, top_k = MODELS[options.model]
    cols = max(1, min(options.bytes // 4, hidden))
    count = -(-max(1, options.bytes // (4 * cols)) * options.ranks // top_k)
    torch.manual_seed(rank)
    plan = Plan(choices(count, experts, top_k, options.load), experts, options.ranks)
    tokens = torch.randn(count, cols).requires_grad_()
    gradient = torch.randn(count, cols)
    seconds = []
    for step in range(options.steps + 2):
        tokens.grad = None
        dist.barrier()
        begin = time.perf_counter()
        exchange(tokens, plan).backward(gradient)
        slowest = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if step >= 2:
            seconds.append(slowest.item())
    if rank == 0:
        answer.put({"model": options.model, "load": options.load, "ranks": options.ranks,
                    "bytes_per_pair": options.bytes, "tokens": count, "ms": 1e3 * statistics.median(seconds)})
    dist.barrier()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", choices=MODELS, default="qwen3")
    parser.add_argument("--load", choices=["balanced", "zipf"], default="balanced")
    parser.add_argument("--bytes", type=int, default=1 << 20, help="of a pair of ranks in one exchange (default 1 MiB)")
    parser.add_argument("--steps", type=int, default=21)
    options = parser.parse_args()
    if MODELS[options.model][1] % options.ranks:
        parser.error("--ranks must divide the model's experts")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = mp.get_context("spawn").SimpleQueue()
    mp.spawn(run, args=(options, port, answer), nprocs=options.ranks)
    print(json.dumps(answer.get()))


if __name__ == "__main__":
    main()
