"""Trainer runs, of one process and of ranks: the same data, the same model, the same steps."""

import os
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments

import models

ROWS, BATCH, STEPS = 24, 4, 4
# family, and word that tells two of one apart: what of Trainer's arguments differs
RUNS = {
    "qwen3_moe": {},
    "mixtral": dict(gradient_accumulation_steps=2),
    "deepseek_v3": dict(gradient_accumulation_steps=3, max_steps=2),
    "olmoe": dict(gradient_checkpointing=True),
    "gpt_oss": {},
    "olmoe sum": dict(average_tokens_across_devices=False),
}
BESIDE_DDP = ["qwen3_moe", "mixtral", "olmoe sum"]


def rows(count=ROWS):
    generator = torch.Generator().manual_seed(3)
    made = []
    for number in range(count):
        ids = torch.randint(0, models.VOCAB, (5 + number % 7,), generator=generator).tolist()
        made.append({"input_ids": ids, "labels": ids[:-2] + [-100, -100]})
    return made


def collate(batch):
    longest = max(len(row["input_ids"]) for row in batch)

    def filled(key, value):
        return torch.tensor([row[key] + [value] * (longest - len(row[key])) for row in batch])
    mask = torch.tensor([[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in batch])
    return {"input_ids": filled("input_ids", 0), "labels": filled("labels", -100), "attention_mask": mask}


def summed(outputs, labels, num_items_in_batch=None):
    """The sum over tokens, of which Trainer makes no mean."""
    logits = outputs.logits[:, :-1].flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100, reduction="sum")


def made(name):
    return models.make(name.split()[0]).train()


def with_adapters(model):
    """LoRA of attention; all else is frozen."""
    import peft
    torch.manual_seed(5)
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))


def loss_of(name):
    return "sum" if name.endswith("sum") else "mean"


def trainer(model, folder, size, callbacks=None, count=ROWS, loss="mean", **arguments):
    """One that has made no step yet. size: ranks that share a batch."""
    settings = dict(output_dir=str(folder), per_device_train_batch_size=BATCH // size, max_steps=STEPS, optim="sgd",
                    per_device_eval_batch_size=BATCH // size, learning_rate=0.1, lr_scheduler_type="constant",
                    logging_steps=1, save_strategy="no", report_to=[], seed=1, disable_tqdm=True,
                    average_tokens_across_devices=True, max_grad_norm=0.5 if callbacks is None else 0)
    return Trainer(model, TrainingArguments(**{**settings, **arguments}), train_dataset=rows(count),
                   eval_dataset=rows(8), data_collator=collate, callbacks=callbacks,
                   compute_loss_func=summed if loss == "sum" else None)


def trained(one):
    """What it logged, as floats that were rounded by nobody."""
    losses = []
    step = one.training_step

    def noted(*given, **named):
        loss = step(*given, **named)
        losses.append(loss.item())
        return loss
    one.training_step = noted
    one.train()
    history = [line for line in one.state.log_history if "loss" in line]
    return {"losses": losses, "logged": [line["loss"] for line in history],
            "norms": [float(line["grad_norm"]) for line in history], "eval": one.evaluate()["eval_loss"]}


def on_ranks(mesh, base, port):
    """On each rank: every run, first over MPI alone and then beside torch.distributed."""
    from moeloom.loading import shard
    from moeloom.trainer import ExpertParallel
    found = {"refused": _refusals(mesh, base), "routers": _routers(mesh, base), "lazy": _lazy(mesh, base)}
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    for word, names in (("mpi", RUNS), ("ddp", BESIDE_DDP)):
        for name in names:
            folder, loss = Path(base, f"{name}-{word}"), loss_of(name)
            one = trainer(shard(made(name), mesh), folder, mesh.size, [ExpertParallel(mesh, max_norm=0.5, loss=loss)],
                          loss=loss, use_cpu=word == "ddp", **RUNS[name])
            found[f"{name}-{word}"] = {**trained(one), "model": type(one.model_wrapped).__name__}
            one.save_model(str(folder))
        if word == "mpi":
            found["uneven"] = _uneven(mesh, base)
            one = trainer(with_adapters(shard(made("qwen3_moe"), mesh)), Path(base, "lora"), mesh.size,
                          [ExpertParallel(mesh, max_norm=0.5)])
            found["lora"] = trained(one)
            one.save_model(str(Path(base, "lora")))
    return found


def _uneven(mesh, base):
    """21 rows are 6 batches of 4: the last one begins again."""
    from moeloom.loading import shard
    from moeloom.trainer import ExpertParallel
    word = dict(group_by_length=True) if "group_by_length" in TrainingArguments.__dataclass_fields__ else dict(
        train_sampling_strategy="group_by_length")
    one = trainer(shard(made("olmoe"), mesh), Path(base, "uneven"), mesh.size, [ExpertParallel(mesh)], count=21,
                  max_steps=-1, num_train_epochs=2, **word)
    torch.manual_seed(mesh.rank)  # what shuffles is not a rank's own
    seen = []
    step = one.training_step

    def noted(model, inputs, *more):
        seen.append(inputs["input_ids"][:, 0].tolist())
        return step(model, inputs, *more)
    one.training_step = noted
    one.train()
    return {"steps": one.state.global_step, "seen": seen}


def _routers(mesh, base):
    """A rank's loss as it is scaled for the mean over ranks: of tokens as many times as there are ranks, of routers
    once."""
    from moeloom.loading import shard
    from moeloom.trainer import ExpertParallel
    model = models.make("qwen3_moe", output_router_logits=True, router_aux_loss_coef=0.5)
    one = trainer(shard(model.train(), mesh), Path(base, "routers"), mesh.size, [ExpertParallel(mesh)])
    batch, items = collate(rows()[2 * mesh.rank:][:2]), torch.tensor(30)
    got, outputs = one.compute_loss(model, dict(batch), return_outputs=True, num_items_in_batch=items)
    routers = 0.5 * outputs.aux_loss.item()
    plain = model(**batch, num_items_in_batch=items).loss.item() - routers
    assert routers > 0.1
    return {"got": got.item(), "wanted": mesh.size * plain + routers}


def _lazy(mesh, base):
    """Of the registry of transformers 5: experts that are shared in the first forward, or as Trainer begins."""
    try:
        from moeloom import hf
    except ImportError:
        return None
    from moeloom.torch._shares import placed
    from moeloom.trainer import ExpertParallel
    hf.register(mesh)
    model = models.make("qwen3_moe").train()
    model.set_experts_implementation("moeloom")
    trainer(model, Path(base, "never"), mesh.size, [ExpertParallel(mesh)])
    found = {"shared": len(placed(model))}
    model = models.make("qwen3_moe").train()
    model.set_experts_implementation("moeloom")
    found["before"] = len(placed(model))
    ids = torch.tensor([[1, 2, 3]])
    model(ids)
    found["save"] = _said(lambda: model.save_pretrained(Path(base, "never")))
    model.set_experts_implementation("eager")
    found["eager"] = _said(lambda: model(ids))
    import peft
    around = peft.get_peft_model(models.make("qwen3_moe").train(), peft.LoraConfig(
        r=2, target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj"]))
    found["adapters"] = _said(lambda: hf.shard(around, mesh))
    around.base_model.model.set_experts_implementation("moeloom")
    found["adapters, lazy"] = _said(lambda: around(ids))
    hf.register()
    return found


def _said(action):
    try:
        action()
    except ValueError as error:
        return str(error)
    return ""


def _refusals(mesh, base):
    from moeloom.loading import shard
    from moeloom.trainer import ExpertParallel
    model = shard(models.make("qwen3_moe"), mesh)
    said = {}

    def refused(word, action):
        try:
            action()
            said[word] = ""
        except ValueError as error:
            said[word] = str(error)
    for word, arguments in (("clipping", dict(max_grad_norm=1.0)), ("checkpoints", dict(save_strategy="steps"))):
        refused(word, lambda given=arguments: trainer(model, Path(base, "never"), mesh.size, [ExpertParallel(mesh)],
                                                      **given))
    late = trainer(model, Path(base, "never"), mesh.size, [])
    late.add_callback(ExpertParallel(mesh))
    refused("late", late.train)
    refused("loss", lambda: ExpertParallel(mesh, loss="total"))
    return said
