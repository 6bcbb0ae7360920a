"""What tests of moeloom's kernels share. The package is found by MOELOOM_PYTHON, else in src/python of the repository;
the library by MOELOOM_LIBRARY, else in the build. Without the library these tests are skipped."""

import os
import sys

import pytest
import torch

import models
import program
from conftest import VERSION

sys.path.insert(0, os.environ.get("MOELOOM_PYTHON") or str(program.ROOT / "src" / "python"))
os.environ.setdefault("MOELOOM_LIBRARY", str(program.PROGRAM.parent / "libmoeloom_c.so"))
if not os.path.exists(os.environ["MOELOOM_LIBRARY"]):
    pytest.skip(f"no {os.environ['MOELOOM_LIBRARY']}", allow_module_level=True)

mt = pytest.importorskip("moeloom.torch")

V5 = VERSION == "v5"
# What the issue names; `auto` of the others too, below.
NAMED = ["qwen3_moe", "mixtral", "deepseek_v3", "olmoe", "gpt_oss", "granitemoe", "glm4_moe", "llama"]
NAMED += models.known(["gemma4_text", "granitemoe_swa"])  # with norms, rope and MLPs of another form
KERNELS = ["fused_moe", "fused_rmsnorm", "fused_rope", "fused_swiglu"]
NO_EXPERTS = {"llama", "llama-tied-biases", "llama-llama3", "llama-yarn", "llama-linear", "qwen3", "qwen3-window",
              "phi3", "phi3-longrope", "glm4", "gemma3_text"}
IDS = torch.randint(0, models.VOCAB, (2, 16), generator=torch.Generator().manual_seed(1))
# Both sides sum in another order; A_log of a delta rule is a sum of large numbers that cancel. Of the other either side
# is 1.6e-5 away from float64: its scores are not scaled.
TOLERANCE = {"qwen3_next": 3e-5, "gemma4_text-per-layer": 5e-5}


def quiet(model):
    """Without the noise that some add in training."""
    for module in model.modules():
        if hasattr(module, "input_jitter_noise"):
            module.input_jitter_noise = 0.0
    return model.train()


def made(name, implementation=None, dtype=torch.float32, **changes):
    model = quiet(models.make(name, **changes)).to(dtype)
    if implementation:
        model.set_experts_implementation(implementation)
    return model


def step(model, seed=3):
    """Its loss, and every gradient, zeros where there is none."""
    model.zero_grad()
    torch.manual_seed(seed)  # Phi-MoE draws
    loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    return loss.item(), {name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                         for name, p in model.named_parameters()}


def furthest(got, wanted):
    """(difference over the largest number of that gradient, its name); some gradients are rounding alone, as that of a
    key's bias without rope."""
    assert got.keys() == wanted.keys()
    return max(((got[n].float() - w.float()).abs().max().item() / max(w.float().abs().max().item(), 1e-4), n)
               for n, w in wanted.items())


def agree(model, wanted, tolerance=1e-5):
    """Twice, for at the second step the memory of gradients is used again."""
    loss, gradients = wanted
    for _ in range(2):
        got_loss, got = step(model)
        assert abs(got_loss - loss) <= 1e-6 * max(1.0, abs(loss))
        far, name = furthest(got, gradients)
        assert far < tolerance, f"{name} differs by {far:.1e}"
