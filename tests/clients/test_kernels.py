"""moeloom's kernels under a model of Hugging Face: losses and gradients as without them, in every layout.

The package is found by MOELOOM_PYTHON, else in src/python of the repository; the library by MOELOOM_LIBRARY, else in
the build. Without the library these tests are skipped.
"""

import copy
import importlib
import io
import os
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers

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
KERNELS = ["fused_moe", "fused_rmsnorm", "fused_rope", "fused_swiglu"]
NO_EXPERTS = {"llama", "llama-tied-biases", "llama-llama3", "llama-yarn", "llama-linear", "qwen3", "qwen3-window",
              "phi3", "phi3-longrope", "glm4", "gemma3_text"}
IDS = torch.randint(0, models.VOCAB, (2, 16), generator=torch.Generator().manual_seed(1))
# Both sides sum in another order; A_log of a delta rule is a sum of large numbers that cancel.
TOLERANCE = {"qwen3_next": 3e-5}


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
    """(difference over the largest number of that gradient, its name)"""
    assert got.keys() == wanted.keys()
    return max(((got[n].float() - w.float()).abs().max().item() / max(w.float().abs().max().item(), 1e-6), n)
               for n, w in wanted.items())


def agree(model, wanted, tolerance=1e-5):
    """Twice, for at the second step the memory of gradients is used again."""
    loss, gradients = wanted
    for _ in range(2):
        got_loss, got = step(model)
        assert abs(got_loss - loss) <= 1e-6 * max(1.0, abs(loss))
        far, name = furthest(got, gradients)
        assert far < tolerance, f"{name} differs by {far:.1e}"


def left(model):
    return {(r.kernel, r.module) for r in mt.reports(model) if not r.applied}


@pytest.mark.parametrize("name", models.known())
def test_patched(name):
    model = made(name, "eager" if V5 and name not in NO_EXPERTS else None)
    wanted = step(model)
    names = list(model.state_dict())
    mt.apply_default_kernels(model)
    agree(model, wanted, TOLERANCE.get(name, 1e-5))
    assert list(model.state_dict()) == names
    applied = {r.kernel for r in mt.reports(model) if r.applied}
    assert ("fused_moe" in applied) == (name not in NO_EXPERTS and (name != "ernie4_5_moe-biases" or V5))
    mt.unapply(model)
    assert not [m for m in model.modules() if isinstance(m.__dict__.get("forward"), mt._patch.Patch)]
    assert step(model)[0] == wanted[0]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", NAMED)
def test_one_kernel(name, kernel):
    model = made(name, "grouped_mm" if V5 and name != "llama" else None)
    wanted = step(model)
    if (name == "llama" and kernel == "fused_moe") or (
            not V5 and kernel == "fused_swiglu" and name in ("gpt_oss", "granitemoe")):
        with pytest.raises(mt.kernels.ConfigError, match="asked for by name and cannot run here"):
            mt.apply_kernel(kernel, model=model)
        return
    mt.apply_kernel("npu_" + kernel, model=model)
    assert {r.kernel for r in mt.reports(model) if r.applied} == {kernel}
    agree(model, wanted)


@pytest.mark.parametrize("name", [name for name in NAMED if name != "llama"])
def test_gradients_of_autograd(name):
    model = made(name)
    wanted = step(model)
    mt.apply_kernel("fused_moe", model=model, grads="autograd")
    seen = []
    expert = next(p for n, p in model.named_parameters() if ".experts." in n or "input_linear" in n)
    expert.register_hook(lambda grad: seen.append(grad.shape))
    agree(model, wanted)
    assert seen == [expert.shape] * 2


@pytest.mark.parametrize("name", NAMED)
def test_bf16(name):
    """Not further from the model in float32 than the unpatched one in bfloat16 is, but for half of that."""
    exact = step(made(name))
    model = made(name, dtype=torch.bfloat16)
    plain = step(model)
    mt.apply_default_kernels(model)
    patched = step(model)
    distance = [sum((g[n].float() - w).square().sum().item() for n, w in exact[1].items()) ** 0.5
                for _, g in (plain, patched)]
    assert distance[1] <= 1.5 * distance[0]
    assert abs(patched[0] - exact[0]) <= 1.5 * abs(plain[0] - exact[0]) + 0.02
    assert all(p.grad.dtype == torch.bfloat16 for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_copies_and_pickles(name):
    model = made(name)
    wanted = step(model)
    mt.apply_default_kernels(model)
    agree(model, wanted)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        agree(twin, wanted)
        assert all(a is not b for a, b in zip(model.parameters(), twin.parameters()))
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(0.5)
        assert abs(step(twin)[0] - wanted[0]) > 1e-3
        agree(model, wanted)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3"])
def test_checkpointing(name, reentrant):
    model = made(name)
    wanted = step(model)
    mt.apply_default_kernels(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=reentrant))
    model.enable_input_require_grads()
    agree(model, wanted)


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral", "gpt_oss"])
def test_frozen(name):
    model = made(name)
    frozen = [p for n, p in model.named_parameters() if "experts" in n and (V5 or ".0." in n)]
    for parameter in frozen:
        parameter.requires_grad_(False)
    wanted = step(model)
    mt.apply_default_kernels(model)
    agree(model, wanted)
    assert all(p.grad is None for p in frozen)


def test_accumulation_and_an_optimizer_that_was_there_before():
    plain, patched = made("qwen3_moe"), made("qwen3_moe")
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (plain, patched)]
    mt.apply_default_kernels(patched)
    for number in range(3):
        for model, optimizer in zip((plain, patched), optimizers):
            for _ in range(2):
                model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=number != 1)
    for (name, a), b in zip(plain.named_parameters(), patched.parameters()):
        assert (a - b).abs().max().item() < 2e-4, name


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral", "olmoe", "granitemoe", "qwen2_moe"])
def test_router_losses(name):
    """Hugging Face records what routers return, by other means in each version."""
    if name == "granitemoe" and V5:
        pytest.skip("5.15.0 finds no router's logits, with or without us")
    model = made(name)
    wanted = model(input_ids=IDS, labels=IDS, output_router_logits=True)
    mt.apply_default_kernels(model)
    for _ in range(2):
        got = model(input_ids=IDS, labels=IDS, output_router_logits=True)
        assert abs(got.aux_loss - wanted.aux_loss) < 1e-5
        assert all((a - b).abs().max() < 1e-4 for a, b in zip(got.router_logits, wanted.router_logits))
    assert {r.kernel for r in mt.reports(model) if r.applied} >= {"fused_moe"}
    mt.unapply(model)
    assert not list(mt._patch.patches(model))


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "llama"])
def test_two_threads_of_each_runtime(name):
    """pip's torch has an OpenMP of its own."""
    library = importlib.import_module("moeloom._library").library()
    model = made(name)
    wanted = step(model)
    mt.apply_default_kernels(model)
    torch.set_num_threads(2)
    library.ml_set_threads(2)
    try:
        agree(model, wanted)
        assert models.greedy(model.eval(), models.IDS, 4) == models.greedy(mt.unapply(model), models.IDS, 4)
    finally:
        torch.set_num_threads(1)
        library.ml_set_threads(0)


@pytest.mark.parametrize("name", NAMED)
def test_generate(name):
    model = made(name).eval()
    wanted = models.greedy(model, models.IDS, 6)
    mt.apply_default_kernels(model)
    assert models.greedy(model, models.IDS, 6) == wanted


def losses_of_trainer(model, folder):
    rows = [{"input_ids": row, "labels": row} for row in
            torch.randint(0, models.VOCAB, (40, 12), generator=torch.Generator().manual_seed(5))]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=10, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=3e-3,
        logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, seed=1, disable_tqdm=True,
        dataloader_num_workers=0)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("name", ["qwen3_moe", "llama"])
def test_trainer(name, tmp_path):
    plain, patched = made(name), made(name)
    mt.apply_default_kernels(patched)
    program.close(losses_of_trainer(patched, tmp_path / "b"), losses_of_trainer(plain, tmp_path / "a"), 1e-3)
    patched.save_pretrained(tmp_path / "saved")
    loaded, complaints = models.load(tmp_path / "saved")
    assert not any(complaints.values())
    program.close(models.logprobs(loaded, models.IDS), models.logprobs(patched.eval(), models.IDS), 1e-5)


@pytest.mark.parametrize("when", ["before", "after"])
def test_adapters(when):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=4, init_lora_weights=False)

    def adapted(patches):
        model = made("qwen3_moe")
        if patches and when == "before":
            mt.apply_default_kernels(model)
        torch.manual_seed(11)
        model = peft.get_peft_model(model, config)
        if patches and when == "after":
            mt.apply_default_kernels(model)
        return model.train()

    agree(adapted(True), step(adapted(False)))


@pytest.mark.skipif(VERSION != "v4", reason="experts are no nn.Linear")
@pytest.mark.parametrize("when", ["before", "after"])
def test_adapters_of_experts(when):
    """Their nn.Linear are wrapped: the loop over experts is left alone, or comes back."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["gate_proj"], r=4, init_lora_weights=False)
    model = made("qwen3_moe")
    torch.manual_seed(11)
    wanted = step(peft.get_peft_model(copy.deepcopy(model), config))
    if when == "before":
        mt.apply_default_kernels(model)
    torch.manual_seed(11)
    model = peft.get_peft_model(model, config)
    mt.apply_default_kernels(model)
    agree(model, wanted)


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


def test_table_names_classes_that_are_there():
    """Of each family that this version knows."""
    for model_type, family in mt.patches.FAMILIES.items():
        folder = model_type.removesuffix("_text").removesuffix("_thinker")
        try:
            file = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
        except ImportError:
            continue
        assert any(hasattr(file, name) for rows in family for name in rows), model_type
