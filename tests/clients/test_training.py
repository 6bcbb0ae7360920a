"""Ten steps of `train` beside a plain loop over HF's model and beside HF's Trainer, on the same rows: every loss."""

import math

import chats
import models
import program
import peft
import pytest
import torch
import transformers
from conftest import VERSION

STEPS, ROWS, LENGTH, PEAK = 10, 4, 16, 3e-3
LORA_PEAK = 1e-2
VOCAB = 259
AUX = dict(output_router_logits=True, router_aux_loss_coef=0.05)
# name: (family, changes of its config)
MODELS = {
    **{name: (name, {}) for name in ("llama", "qwen3", "gemma3_text", "mixtral", "olmoe", "qwen2_moe", "deepseek_v3",
                                     "glm4_moe", "granitemoe", "qwen3_next", "gpt_oss")},
    "mixtral-aux": ("mixtral", AUX),
    "qwen2_moe-aux": ("qwen2_moe", AUX),
    "olmoe-aux": ("olmoe", AUX),
}
# Steps that are compared, where not all, and how near norms are there. Ours are the same in every process; torch's of a
# gated delta net differ with where its numbers lie, and a loss of the tenth step by up to 0.02 once a router has chosen
# another expert.
COMPARED = {"qwen3_next": (3, 1e-3)}
# name: options of train, (warm-up, fraction of the last rate)
WAYS = {
    "constant": ((), (0, 1.0)),
    "cosine": ((), (0, 0.1)),
    "warm-up": ((), (3, 0.1)),
    "accumulate": (("--accumulate", 2), (0, 0.1)),
}
CASES = [(name, way) for name in MODELS for way in WAYS
         if way == "cosine" or name in ("llama", "mixtral", "deepseek_v3")]
LORAS = {"llama-attention": ("llama", "attention"), "llama-mlp": ("llama", "attention,mlp"),
         "mixtral-attention": ("mixtral", "attention"), "deepseek_v3-attention": ("deepseek_v3", "attention")}
if VERSION == "v4":  # as PEFT 0.19.1 has experts
    LORAS["mixtral-experts"] = ("mixtral", "experts")


def rate(step, peak, warmup, last):
    """Up in a line, whose first step has its share already, then down along half a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (last + (1 - last) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup))))


def rows():
    """Printable bytes; each text and its end fill a row."""
    generator = torch.Generator().manual_seed(11)
    return ["".join(chr(97 + i) for i in torch.randint(0, 26, (LENGTH - 1,), generator=generator).tolist())
            for _ in range(ROWS)]


@pytest.fixture(scope="module")
def start(saved, tmp_path_factory):
    """start(name) -> (folder with a tokenizer, ids [ROWS, LENGTH])"""

    def folder_and_ids(family, changes):
        folder, _ = saved(family, vocab_size=VOCAB, **changes)
        tokenizer = chats.make_tokenizer(folder)
        return folder, torch.tensor([tokenizer.encode(text) + [tokenizer.eos_token_id] for text in rows()])

    return folder_and_ids


def train(folder, tmp_path, peak, *options, steps=STEPS, decay=0.1):
    data = chats.write_jsonl(tmp_path / "rows.jsonl", [dict(text=text) for text in rows()])
    # transformers 4 leaves an expert without tokens alone, 5 decays it.
    starved = "skip" if VERSION == "v4" else "decay"
    program.run("train", "--model", folder, "--data", data, "--steps", steps, "--seq-len", LENGTH, "--global-batch",
                ROWS, "--heldout", 0, "--eval-every", 0, "--sample-chars", 0, "--lr", peak, "--beta2", 0.95,
                "--weight-decay", decay, "--max-grad-norm", 1, "--starved-experts", starved, "--run", tmp_path / "run",
                "--overwrite", "true", *options)
    return program.steps(tmp_path / "run")


def plain_loop(model, ids, rates):
    """[(loss without aux, aux, norm of the gradient)] of AdamW as everyone writes it."""
    trained = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    decays = [value for name, value in trained if value.ndim > 1 and "bias" not in name]
    rests = [value for name, value in trained if value.ndim < 2 or "bias" in name]
    adam = torch.optim.AdamW([dict(params=decays, weight_decay=0.1), dict(params=rests, weight_decay=0.0)],
                             lr=0.0, betas=(0.9, 0.95), eps=1e-8)
    model.train()
    seen = []
    for now in rates:
        out = model(input_ids=ids, labels=ids, use_cache=False)
        aux = getattr(out, "aux_loss", None)
        coefficient = getattr(model.config, "router_aux_loss_coef", 0.0) if aux is not None else 0.0
        out.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([value for _, value in trained], 1.0)
        for group in adam.param_groups:
            group["lr"] = now
        adam.step()
        adam.zero_grad(set_to_none=True)
        seen.append((out.loss.item() - coefficient * (0.0 if aux is None else aux.item()),
                     0.0 if aux is None else aux.item(), norm.item()))
    return seen


@pytest.mark.parametrize("name,way", CASES, ids=[f"{n}-{w}" for n, w in CASES])
def test_plain_loop(start, tmp_path, name, way):
    folder, ids = start(*MODELS[name])
    options, (warmup, last) = WAYS[way]
    ours = train(folder, tmp_path, PEAK, "--warmup", warmup, "--final-lr-fraction", last, *options)
    rates = [rate(step, PEAK, warmup, last) for step in range(STEPS)]
    program.close([step["learning_rate"] for step in ours], rates, 1e-9)
    model, _ = models.load(folder)
    wanted = plain_loop(model, ids, rates)
    steps, near_norm = COMPARED.get(name, (STEPS, 2e-4))
    program.close([step["loss"] for step in ours[:steps]], [loss for loss, _, _ in wanted[:steps]], 1e-5)
    # Relative, for gradients differ much in size.
    relative = [step["grad_norm"] / norm for step, (_, _, norm) in zip(ours[:steps], wanted)]
    program.close(relative, [1.0] * steps, near_norm)
    if "aux" in name:
        program.close([step["aux_loss"] for step in ours], [aux for _, aux, _ in wanted], 1e-4)
    assert ours[-1]["loss"] < ours[0]["loss"] - 0.05, "nothing was learned"


@pytest.mark.parametrize("name", LORAS)
def test_lora(start, tmp_path, name):
    family, targets = LORAS[name]
    folder, ids = start(family, {})
    given = ("--lora", f"r=4,alpha=8,targets={targets}", "--warmup", 0, "--final-lr-fraction", 0.1)
    # A step of no size: the adapter as it begins, of which B is zero.
    train(folder, tmp_path, 1e-12, *given, "--export", tmp_path / "begin", steps=1)
    ours = train(folder, tmp_path, LORA_PEAK, *given)
    base, _ = models.load(folder)
    model = peft.PeftModel.from_pretrained(base, tmp_path / "begin", is_trainable=True)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "lora_B" in key:
                value.zero_()
    wanted = plain_loop(model, ids, [rate(step, LORA_PEAK, 0, 0.1) for step in range(STEPS)])
    program.close([step["loss"] for step in ours], [loss for loss, _, _ in wanted], 1e-5)


@pytest.mark.parametrize("accumulate", (1, 2))
@pytest.mark.parametrize("name", ("llama", "mixtral", "deepseek_v3", "gpt_oss"))
def test_trainer(start, tmp_path, name, accumulate):
    folder, ids = start(*MODELS[name])
    ours = train(folder, tmp_path, PEAK, "--warmup", 0, "--final-lr-fraction", 0, "--accumulate", accumulate)
    model, _ = models.load(folder)
    given = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"), max_steps=STEPS, per_device_train_batch_size=ROWS // accumulate,
        gradient_accumulation_steps=accumulate, learning_rate=PEAK, lr_scheduler_type="cosine", adam_beta2=0.95,
        weight_decay=0.1, max_grad_norm=1.0, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True)
    trainer = transformers.Trainer(model=model, args=given,
                                   train_dataset=[dict(input_ids=row, labels=row) for row in ids])
    trainer.train()
    wanted = [float(line["loss"]) for line in trainer.state.log_history if "loss" in line]
    if VERSION == "v4":  # divides by all labels, of which the first of a row is no target, and logs four digits
        wanted = [loss * len(ids[0]) / (len(ids[0]) - 1) for loss in wanted]
    program.close([step["loss"] for step in ours], wanted, 1e-5 if VERSION == "v5" else 1e-4)


@pytest.mark.parametrize("name", ("llama", "mixtral", "deepseek_v3", "gpt_oss", "qwen3_next"))
def test_the_same_parameters_decay(start, tmp_path, name):
    """Those that a step with decay leaves elsewhere than one without."""
    folder, _ = start(*MODELS[name])
    stepped = []
    for decay in (0, 0.5):
        train(folder, tmp_path, PEAK, "--warmup", 0, "--export", tmp_path / f"decay-{decay}", steps=1, decay=decay)
        stepped.append(models.load(tmp_path / f"decay-{decay}")[0])
    left = dict(stepped[0].named_parameters())
    decayed = {key for key, value in stepped[1].named_parameters() if not value.equal(left[key])}
    assert decayed == set(transformers.Trainer.get_decay_parameter_names(None, stepped[0]))
