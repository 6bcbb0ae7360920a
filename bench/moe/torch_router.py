#!/usr/bin/env python3
"""The peer of router_bench, which starts it: what PyTorch takes to route, and to order slots by expert.

    build/bench/router_bench --rival "/usr/bin/python3 bench/moe/torch_router.py"

Reads one word a line and answers with the seconds of a call: `topk` is torch.topk of given scores, `route` scores,
torch.topk and weights divided by their sum, as Hugging Face routers do, `plan` a stable argsort by expert and the counts.
"""
import argparse
import sys
import time

import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--tokens", type=int, default=4096)
parser.add_argument("--experts", type=int, default=128)
parser.add_argument("--top-k", type=int, default=8)
parser.add_argument("--score", choices=["softmax", "sigmoid"], default="softmax")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
options = parser.parse_args()

torch.set_num_threads(options.threads)
torch.manual_seed(1)
torch.set_grad_enabled(False)
logits = torch.randn(options.tokens, options.experts)
score = torch.sigmoid if options.score == "sigmoid" else lambda x: torch.softmax(x, dim=-1)
scores = score(logits)
chosen = torch.topk(scores, options.top_k, dim=-1).indices.reshape(-1)


def route():
    weights, _ = torch.topk(score(logits), options.top_k, dim=-1)
    return weights / weights.sum(dim=-1, keepdim=True)


WORK = {
    "topk": lambda: torch.topk(scores, options.top_k, dim=-1),
    "route": route,
    "plan": lambda: (torch.argsort(chosen, stable=True), torch.bincount(chosen, minlength=options.experts)),
}
REPEATS = 3


def seconds_of(work):
    work()  # its threads have slept while others had their turn
    now = time.process_time if options.clock == "cpu" else time.perf_counter
    begin = now()
    for _ in range(REPEATS):
        work()
    return (now() - begin) / REPEATS


for line in sys.stdin:
    print(seconds_of(WORK[line.strip()]), flush=True)
