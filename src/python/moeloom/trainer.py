"""Hugging Face's Trainer, of transformers 4 or 5, on the ranks of a mesh.

    mesh = moeloom.mesh(ep=2)                                       # mpirun -n 4 python3 train.py
    model = moeloom.loading.from_pretrained(folder, mesh)
    arguments = TrainingArguments(..., max_grad_norm=0, save_strategy="no")
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[ExpertParallel(mesh, max_norm=1.0)])
    trainer.train(); trainer.save_model("out")                      # on every rank

accelerate sees ranks of mpirun in two ways. With TrainingArguments(use_cpu=True), and MASTER_ADDR set, it starts
torch.distributed and wraps the model in DistributedDataParallel, which from here on leaves the experts alone. Else it
sees one process, and is told of the mesh: it divides the data among its ranks, and what it gathers goes over MPI.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

import torch
from transformers import Trainer, TrainerCallback

from ._over_ranks import from_first, gather, pad
from .errors import ConfigError
from .loading import shard
from .torch._guards import keep_from_ddp
from .torch._shares import mesh_for, mesh_of
from .torch.parallel import LOSSES, finish_gradients, require_max_norm
from .torch.save import save_pretrained

__all__ = ["ExpertParallel"]


class ExpertParallel(TrainerCallback):
    """For Trainer(callbacks=[...]), on every rank: each has its own samples, gradients are those of all ranks' loss.

    max_norm: what gradients are clipped to; `grad_norm` in logs is the norm before. loss: what finish_gradients makes
    of the ranks' losses. Trainer's own loss is for "mean": with average_tokens_across_devices (its default) the mean
    over the tokens of all ranks, as of one process with the larger batch; without, the mean of the ranks' means; of
    the routers' loss that models add, the mean of the ranks' own in both. "sum" is for a compute_loss_func whose losses
    are to be added, with average_tokens_across_devices=False. Losses in logs are means over ranks, and rank 0 logs. A
    dataset that does not divide among ranks begins again for the last batch, as Trainer does it. Experts that
    hf.register(mesh) would share in their first forward are shared now. trainer.save_model(folder), on every rank,
    saves the whole model.

    Raises ConfigError where Trainer would clip, or save checkpoints, of a part of the model.
    """

    def __init__(self, mesh: Any, max_norm: Optional[float] = None, loss: str = "mean") -> None:
        if loss not in LOSSES:
            raise ConfigError(f'unknown loss "{loss}"; known: {", ".join(LOSSES)}')
        require_max_norm(max_norm)
        self.mesh, self.max_norm, self.loss = mesh, max_norm, loss
        self.norm: Optional[float] = None
        self._trainer: Any = None

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        _check(args)
        trainer = self._trainer = _caller()
        _share_now(trainer.model, mesh_for(trainer.model, self.mesh))
        if str(getattr(args.parallel_mode, "value", args.parallel_mode)) == "distributed":
            _beside_ddp(trainer, self.mesh)
        elif self.mesh.size > 1:
            _over_mpi(trainer, self.mesh)
            state.is_world_process_zero, state.is_local_process_zero = self.mesh.rank == 0, _local_rank(self.mesh) == 0
        _routers_once(trainer, self.mesh)
        self._log_our_norm(trainer)
        self._save_whole(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._trainer is None:
            raise ConfigError("ExpertParallel came after the Trainer was made; give it to Trainer(callbacks=[...])")
        _check(args)
        steps = gather(self.mesh, torch.tensor(state.max_steps)).tolist()
        if len(set(steps)) != 1:
            raise ConfigError(f"ranks would do {steps} steps; every rank has to have the same dataset and arguments")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        """All ranks shuffle as the first, also by samplers that draw from torch's own generator or from another."""
        generators = torch.default_generator, getattr(train_dataloader, "synchronized_generator", None)
        for generator in generators:
            if isinstance(generator, torch.Generator):
                generator.set_state(from_first(self.mesh, generator.get_state()))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.norm = finish_gradients(self._trainer.model_wrapped, self.mesh, self.max_norm, self.loss)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        _refuse_checkpoints()

    def _log_our_norm(self, trainer: Any) -> None:
        log = trainer.log

        def with_norm(logs: Any, *arguments: Any, **named: Any) -> Any:
            if "loss" in logs and self.norm is not None:
                logs["grad_norm"] = self.norm
            return log(logs, *arguments, **named)
        trainer.log = with_norm

    def _save_whole(self, trainer: Any) -> None:
        save = trainer.save_model

        def save_model(output_dir: Optional[str] = None, *arguments: Any, **named: Any) -> None:
            if hasattr(trainer.model, "peft_config"):
                save(output_dir, *arguments, **named)
                return
            folder = output_dir or trainer.args.output_dir
            save_pretrained(trainer.model, folder, self.mesh)
            if self.mesh.rank == 0 and getattr(trainer, "processing_class", None) is not None:
                trainer.processing_class.save_pretrained(folder)
        trainer.save_model = save_model


def _check(args: Any) -> None:
    if args.max_grad_norm:
        raise ConfigError(f"max_grad_norm = {args.max_grad_norm}: Trainer would clip by the norm of one rank's part; "
                          "TrainingArguments(max_grad_norm=0), and ExpertParallel(mesh, max_norm=1.0) clips by that of "
                          "all ranks")
    if str(getattr(args.save_strategy, "value", args.save_strategy)) != "no":
        _refuse_checkpoints()


def _refuse_checkpoints() -> None:
    raise ConfigError('Trainer\'s checkpoints would have a part of the model; TrainingArguments(save_strategy="no") '
                      "writes none. On every rank trainer.save_model(folder) writes the whole model, and "
                      "moeloom.torch.save_checkpoint(model, optimizer, folder, mesh) what a run goes on from")


def _caller() -> Any:
    """The Trainer that is being made: callbacks are given its parts, but not itself."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), Trainer):
            return frame.f_locals["self"]
        frame = frame.f_back
    raise ConfigError("ExpertParallel was not called by a Trainer of transformers")


def _routers_once(trainer: Any, mesh: Any) -> None:
    """Trainer multiplies a rank's loss, a sum divided by the tokens of all ranks, by the number of ranks. The loss of
    routers that the model has added is a mean already: of it the surplus goes."""
    own = type(trainer).compute_loss is Trainer.compute_loss and not trainer.label_smoother
    if mesh.size == 1 or not own or trainer.compute_loss_func is not None or not trainer.model_accepts_loss_kwargs:
        return
    compute = trainer.compute_loss

    def compute_loss(model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None,
                     **named: Any) -> Any:
        loss, outputs = compute(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch, **named)
        routers = outputs.get("aux_loss") if isinstance(outputs, dict) else None
        is_scaled = trainer.args.average_tokens_across_devices and num_items_in_batch is not None
        if is_scaled and isinstance(routers, torch.Tensor):
            share = getattr(trainer.model.config.get_text_config(), "router_aux_loss_coef", 0.0)
            loss = loss - (mesh.size - 1) * share * routers
        return (loss, outputs) if return_outputs else loss
    trainer.compute_loss = compute_loss


def _share_now(model: Any, mesh: Any) -> None:
    """Experts that hf.register(mesh) would share in their first forward, after Trainer has looked at the model."""
    asked = getattr(getattr(model, "config", None), "_experts_implementation", None)
    if asked == "moeloom" and mesh.ep > 1 and mesh_of(model) is None:
        from . import hf
        if hf.registered_mesh() is mesh:
            shard(model, mesh)


def _beside_ddp(trainer: Any, mesh: Any) -> None:
    """torch.distributed runs: DDP is kept from experts, which are others on each rank and have gradients of ours."""
    world = torch.distributed.get_world_size(), torch.distributed.get_rank()
    if world != (mesh.size, mesh.rank):
        raise ConfigError(f"torch.distributed has rank {world[1]} of {world[0]}, the mesh rank {mesh.rank} of "
                          f"{mesh.size}; expected the same, as mpirun's variables give them")
    keep_from_ddp(trainer.model)


def _local_rank(mesh: Any) -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", mesh.rank))


def _over_mpi(trainer: Any, mesh: Any) -> None:
    """accelerate sees one process: it is told of the others, by which it divides data and knows who logs."""
    from accelerate.state import AcceleratorState, PartialState
    accelerator = trainer.accelerator
    for told in (PartialState(), AcceleratorState()):
        told.num_processes, told.process_index, told.local_process_index = mesh.size, mesh.rank, _local_rank(mesh)
    loading = accelerator.dataloader_config
    if loading.dispatch_batches:
        raise ConfigError("accelerator_config has dispatch_batches=True, which needs torch.distributed: "
                          "TrainingArguments(use_cpu=True) starts it")
    loading.dispatch_batches = False
    accelerator.gather = lambda tensors: gather(mesh, tensors)
    accelerator.pad_across_processes = lambda tensors, dim=0, pad_index=0, pad_first=False: pad(
        mesh, tensors, dim, pad_index, pad_first)
    step = trainer.training_step

    def training_step(*arguments: Any, **named: Any) -> torch.Tensor:
        """What is logged: the mean over ranks."""
        losses: torch.Tensor = gather(mesh, step(*arguments, **named))
        return losses.mean()
    trainer.training_step = training_step
