"""A layer's experts as functions on tensors: grouped products with gradients. python3 examples/python/on_tensors.py"""

import torch

from moeloom.torch import GmmFunction, PermuteFunction, SwigluFunction, UnpermuteFunction

tokens, hidden, intermediate, experts, top_k = 256, 128, 256, 8, 2
x = torch.randn(tokens, hidden, requires_grad=True)
gate_up = torch.nn.Parameter(torch.randn(experts, hidden, 2 * intermediate) / hidden**0.5)
down = torch.nn.Parameter(torch.randn(experts, intermediate, hidden) / intermediate**0.5)
weights, chosen = torch.topk(torch.softmax(torch.randn(tokens, experts), -1), top_k)

rows, order, counts = PermuteFunction.apply(x, chosen, experts)  # copies of tokens, grouped by expert
rows = GmmFunction.apply(SwigluFunction.apply(GmmFunction.apply(rows, gate_up, counts)), down, counts)
y = UnpermuteFunction.apply(rows, order, weights)
y.pow(2).mean().backward()
print(f"{counts.tolist()} rows an expert, |dx| = {x.grad.norm():.4f}, |d gate_up| = {gate_up.grad.norm():.4f}")
