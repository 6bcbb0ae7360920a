"""experts_implementation="moeloom" of transformers 5, and Twinkle's mapping, which is of its functions."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers

import models
from conftest import VERSION
from patched import NO_EXPERTS, TOLERANCE, agree, made, step


@pytest.mark.skipif(VERSION != "v5", reason="a registry of transformers 5")
@pytest.mark.parametrize("name", [name for name in models.known() if name not in NO_EXPERTS and name != "llama4_text"])
def test_experts_implementation(name):
    import moeloom.hf  # noqa: F401
    model = made(name, "grouped_mm")
    wanted = step(model)
    model.set_experts_implementation("moeloom")
    agree(model, wanted, TOLERANCE.get(name, 1e-5))


@pytest.mark.skipif(VERSION != "v5", reason="a registry of transformers 5")
def test_experts_implementation_by_name_and_sentinels(tmp_path):
    import moeloom.hf  # noqa: F401
    made("qwen3_moe").save_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, experts_implementation="moeloom")
    assert model.config._experts_implementation == "moeloom"
    experts = model.model.layers[0].mlp.experts
    x, weights = torch.randn(5, 32), torch.rand(5, 2)
    chosen = torch.tensor([[0, 1], [4, 2], [3, 4], [4, 4], [2, 0]])
    with torch.no_grad():
        got = experts(x, chosen, weights)
        model.set_experts_implementation("grouped_mm")
        assert (got - experts(x, chosen, weights)).abs().max() < 1e-6
    assert got[3].abs().max() == 0


class _Small(dict):
    """A config that has what any experts class asks for."""

    def __getattr__(self, name):
        if name.startswith("__") or name == "_experts_implementation":
            raise AttributeError(name)
        numbers = {"expert": 5, "hidden_act": "silu", "activation": "silu", "hidden": 16, "intermediate": 12,
                   "ffn": 12, "limit": 7.0, "alpha": 1.702, "latent": None, "act": "silu"}
        return next(value for part, value in numbers.items()
                    if part in name and (part != "expert" or "intermediate" not in name))


def experts_classes():
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        for name in re.findall(r"@use_experts_implementation(?:\([^)]*\))?\nclass (\w+)", path.read_text("utf8")):
            yield pytest.param(f"transformers.models.{path.parent.name}.{path.stem}", name, id=name)


@pytest.mark.skipif(VERSION != "v5", reason="a registry of transformers 5")
@pytest.mark.parametrize("file, name", list(experts_classes()))
def test_every_experts_class(file, name):
    """Of whatever layout, gate and biases."""
    import moeloom.hf  # noqa: F401
    experts = getattr(importlib.import_module(file), name)(_Small())
    torch.manual_seed(2)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    chosen, results = torch.randint(0, 5, (9, 2)), []
    given = [torch.randn(9, 16), torch.rand(9, 2)]
    for implementation in ("grouped_mm", "moeloom"):
        experts.config.__dict__["_experts_implementation"] = implementation
        x, weights = (tensor.clone().requires_grad_() for tensor in given)
        experts.zero_grad()
        y = experts(x, chosen, weights)
        y.pow(2).sum().backward()
        results.append([y, x.grad, weights.grad, *(p.grad.clone() for p in experts.parameters())])
    for wanted, got in zip(*results):
        assert (got - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.skipif(VERSION != "v4", reason="transformers 5 has the registry")
def test_hf_names_apply_kernel():
    with pytest.raises(ImportError, match="apply_kernel"):
        import moeloom.hf  # noqa: F401


@pytest.mark.skipif(VERSION != "v5", reason="transformers 5 has this function")
def test_twinkle():
    import moeloom.twinkle
    (path, by_device), = moeloom.twinkle.mapping().items()
    where, _, function = path.rpartition(".")
    module = sys.modules[where]
    theirs, ours = getattr(module, function), by_device["cpu"]
    x, w = torch.randn(6, 8), torch.randn(3, 5, 8)
    ends = torch.tensor([2, 2, 6], dtype=torch.int32)
    assert (theirs(x, w.transpose(1, 2), ends) - ours(x, w.transpose(1, 2), ends)).abs().max() < 1e-5
