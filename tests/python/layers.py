"""Small layers of experts for tests."""

import torch
from support import random

import moeloom.torch as mt

TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 21, 24, 16, 6, 2


def layer_inputs(dtype=torch.float32, tokens=TOKENS):
    scores = torch.softmax(random(tokens, EXPERTS, seed=5), -1)
    scores[:, 3] = 0  # an expert without a row
    weights, idx = torch.topk(scores, TOP_K, -1)
    return random(tokens, HIDDEN, dtype=dtype), idx, weights.to(dtype)


def stacks(dtype=torch.float32):
    return (random(EXPERTS, 2 * INTERMEDIATE, HIDDEN, dtype=dtype) / 4, random(EXPERTS, HIDDEN, INTERMEDIATE,
                                                                               dtype=dtype) / 4)


def layer(grads="kept", frozen=()):
    gate_up, down = (torch.nn.Parameter(t) for t in stacks())
    for name in frozen:
        {"gate_up": gate_up, "down": down}[name].requires_grad_(False)
    return mt.ExpertWeights(gate_up, down, grads=grads)


def backward(experts, scale=1.0, run=lambda f, *t: f(*t), **options):
    """One forward and backward; returns the gradient of x."""
    x, idx, weights = layer_inputs()
    x = x.requires_grad_()
    y = run(lambda x: mt.ExpertsFunction.apply(x, idx, weights, experts), x, **options)
    (scale * y).sum().backward()
    return x.grad


def gradient_of(name):
    """Of a layer's stack, by autograd."""
    experts = layer(grads="autograd")
    backward(experts)
    return getattr(experts, name).grad
