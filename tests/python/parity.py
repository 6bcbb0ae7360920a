#!/usr/bin/env python3
"""Steps of a model whose experts ranks share, beside those of one process with the same tokens, as a table.

    mpirun -n 4 PYTHON tests/python/parity.py qwen3_moe --ep 2 --steps 20
    mpirun -n 2 PYTHON tests/python/parity.py deepseek_v3 FOLDER --ep 2 1 --through hf

A model is a name of tests/clients/models.py, which needs transformers, a folder of Hugging Face, or a layout of
tests/python/hf_classes.py. Each rank has an equal part of --sequences sequences of --tokens tokens; one process has
them all and no patch. Both make steps of their own by AdamW with clipping. --through hf: experts_implementation of
transformers 5; kernel: apply_kernel("fused_moe"). Ends with 1 where a loss, norm or gradient is further off than
--loss, --norm, --gradient allow in the first step, and ten times that later, for steps drift apart.
"""
import argparse
import copy
import sys
from pathlib import Path

import torch

import moeloom
import moeloom.torch as mt
from moeloom.torch._shares import placed

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]


def made(name):
    import hf_classes
    if name in hf_classes.LAYOUTS:
        return hf_classes.model(name)
    import transformers
    if Path(name).is_dir():
        return transformers.AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32).train()
    import models
    model = models.make(name).float().train()
    for module in model.modules():
        if hasattr(module, "input_jitter_noise"):
            module.input_jitter_noise = 0.0
    return model


def batch(model, a, step):
    """[sequences, ...] of a step, the same on every rank."""
    generator = torch.Generator().manual_seed(step)
    if not hasattr(model, "get_input_embeddings"):
        return torch.randn(a.sequences, a.tokens, 16, generator=generator)
    return torch.randint(0, model.get_input_embeddings().num_embeddings, (a.sequences, a.tokens), generator=generator)


def loss_of(model, x):
    return model(x) if x.is_floating_point() else model(input_ids=x, labels=x, use_cache=False).loss


def share(model, mesh, through):
    if through == "kernel":
        return mt.apply_kernel("fused_moe", model=model, mesh=mesh)
    import moeloom.hf
    moeloom.hf.register(mesh)
    model.set_experts_implementation("moeloom")
    return model


def furthest(model, wanted):
    """(largest difference over the largest number of that gradient, its name), of this rank's."""
    where = placed(model)
    worst = 0.0, ""
    for name, parameter in model.named_parameters():
        grad, place = wanted[name], where.get(name)
        if place is not None and place.stacked:
            scale = grad.abs().max().item() if grad is not None else 0.0
            grad = None if grad is None else grad[place.share.begin:place.share.begin + place.share.count]
        else:
            scale = 0.0 if grad is None else grad.abs().max().item()
        got = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        worst = max(worst, ((got - (0 if grad is None else grad)).abs().max().item() / max(scale, 1e-6), name))
    return worst


def over_ranks(mesh, *values):
    """[ranks, n] of each rank's numbers."""
    everywhere = torch.zeros(mesh.size, len(values))
    everywhere[mesh.rank] = torch.tensor(values)
    mesh.world.sum([mt.functions.view(everywhere)])
    return everywhere


def compare(name, mesh, through, a):
    """Whether all steps were within the limits."""
    torch.manual_seed(a.seed)
    whole = made(name)
    model = share(copy.deepcopy(whole), mesh, through)
    optimizers = [mt.AdamW(each.parameters(), lr=a.learning_rate, weight_decay=0.0) for each in (whole, model)]
    if mesh.rank == 0:
        of_ranks = f"{mesh.size} ranks    off    "
        print(f"{name}, {mesh.size} ranks, ep {mesh.ep}, through {through}\n"
              f"step  loss, one process  {of_ranks}  norm, one process  {of_ranks}  gradients off  the furthest")
    good = True
    for step in range(a.steps):
        x = batch(whole, a, step)
        mine = x[mesh.rank::mesh.size]
        for each in (whole, model):
            each.zero_grad(set_to_none=True)
        loss = loss_of(whole, x)
        loss.backward()
        part = loss_of(model, mine)
        part.backward()
        norm = mt.finish_gradients(model, mesh)
        worst, furthest_name = furthest(model, {n: p.grad for n, p in whole.named_parameters()})
        wanted_norm = float(torch.nn.utils.clip_grad_norm_(whole.parameters(), a.max_norm))
        clip = min(1.0, a.max_norm / (norm + 1e-6))
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(clip)
        numbers = over_ranks(mesh, part.item(), worst)
        got, worst_of_all = numbers[:, 0].double().mean().item(), numbers[:, 1].max().item()
        off, norm_off = abs(got / loss.item() - 1), abs(norm / wanted_norm - 1)
        times = 1 if step == 0 else 10
        good &= off <= times * a.loss and norm_off <= times * a.norm and worst_of_all <= times * a.gradient
        if mesh.rank == 0:
            print(f"{step:4}  {loss.item():17.9f}  {got:11.9f}  {off:7.1e}  {wanted_norm:17.9f}  {norm:11.9f}  "
                  f"{norm_off:7.1e}  {worst_of_all:13.1e}  {furthest_name}", flush=True)
        for optimizer in optimizers:
            optimizer.step()
    if mesh.rank == 0:
        print(f"{name}: {'within' if good else 'BEYOND'} the limits", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--through", choices=("kernel", "hf"), nargs="*", default=["kernel"])
    parser.add_argument("--ep", type=int, nargs="*", default=[0], help="0: all ranks")
    for name, default in {"steps": 20, "sequences": 12, "tokens": 16, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"learning-rate": 1e-3, "max-norm": 1.0, "loss": 1e-6, "norm": 1e-5, "gradient": 1e-5}.items():
        parser.add_argument(f"--{name}", type=float, default=default)
    a = parser.parse_args()
    torch.set_num_threads(1)
    size = moeloom.mesh().size
    if a.sequences % size:
        parser.error(f"--sequences {a.sequences} does not divide among {size} ranks")
    meshes = [moeloom.mesh(ep=ep or size) for ep in a.ep]
    return 0 if all([compare(name, mesh, through, a) for name in a.models for mesh in meshes
                     for through in a.through]) else 1


if __name__ == "__main__":
    sys.exit(main())
