"""For programs on several ranks: one process's step beside that of a mesh, with the same tokens."""

import copy

import torch

import hf_classes
import moeloom.torch as mt
from moeloom.torch._shares import placed
from support import difference, random

# Sequences' lengths by rank: no two alike, one rank without tokens where there are three or more.
LENGTHS = (5, 3, 0, 7)


def tokens_of(rank, size, step=0, number=0):
    """[1, S, D]; S is 1 or more in a mesh of two."""
    return random(1, LENGTHS[rank % 4] if size > 2 else LENGTHS[rank], hf_classes.HIDDEN,
                  seed=1000 * step + 10 * rank + number)


def total(model, x):
    """A loss that is a sum over tokens, and 0 of none."""
    x = x + model.attention(model.norm(x))
    return (x + model.block(x)[0]).pow(2).sum()


def of_one_process(model, size, step=0, batches=1):
    """Gradients of all ranks' tokens -> the loss and gradients by name."""
    model.zero_grad(set_to_none=True)
    loss = sum(total(model, tokens_of(rank, size, step, number))
               for rank in range(size) for number in range(batches))
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def of_this_rank(model, mesh, step=0, batches=1, **finish):
    """This rank's tokens, and what finish_gradients makes of their gradients -> this rank's loss, the norm."""
    model.zero_grad(set_to_none=True)
    loss = 0.0
    for number in range(batches):
        one = total(model, tokens_of(mesh.rank, mesh.size, step, number))
        one.backward()
        loss += one.item()
    return loss, mt.finish_gradients(model, mesh, **{"loss": "sum", **finish})


def here(name, whole, where):
    """Of a whole tensor what this rank has."""
    place = where.get(name)
    return whole if place is None or not place.stacked else whole[place.share.begin:][:place.share.count]


def largest_difference(model, wanted):
    where = placed(model)
    return max((difference(p.grad, here(name, wanted[name], where)), name)
               for name, p in model.named_parameters() if p.grad is not None)


def norm_of(wanted):
    return torch.stack([grad.double().pow(2).sum() for grad in wanted.values()]).sum().sqrt().item()


def shared(layout, mesh, seed=0, change=None, grads="kept"):
    """A model of one process, and a copy of it whose experts the mesh shares."""
    whole = hf_classes.model(layout, seed)
    if change is not None:
        change(whole)
    return whole, mt.apply_kernel("fused_moe", model=copy.deepcopy(whole), mesh=mesh, grads=grads)
