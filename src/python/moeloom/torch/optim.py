"""AdamW in one pass over each parameter."""

from __future__ import annotations

from ctypes import byref
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch
from torch.optim import Optimizer

from .._library import library
from .._table import AdamWSettings, Array
from ..errors import ConfigError
from ._tensors import plain, view

_bump: Any = getattr(torch.autograd.graph, "increment_version", None)


class AdamW(Optimizer):
    """torch.optim.AdamW's first five arguments, and its state: `step`, `exp_avg`, `exp_avg_sq`.

    float32 parameters, or bfloat16 ones, which with their moments are rounded at random, up as often as keeps the
    mean: small updates are not lost. The same steps give the same bits.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2) -> None:
        settings = {"lr": lr, "eps": eps, "weight_decay": weight_decay}
        for name, value in settings.items():
            if not float(value) >= 0:
                raise ConfigError(f"{name} = {value}: expected 0 or more")
        if not all(0 <= beta < 1 for beta in betas):
            raise ConfigError(f"betas = {betas}: expected two numbers from 0 on and below 1")
        super().__init__(params, {**settings, "betas": betas})
        self._arrays: Dict[torch.Tensor, Tuple[Any, List[Array]]] = {}

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        number = 0
        for group in self.param_groups:
            settings = _settings(group)
            numbered = [(number + i, parameter) for i, parameter in enumerate(group["params"], 1)]
            number += len(numbered)
            updated = [(place, parameter, self._state_of(parameter)) for place, parameter in numbered
                       if parameter.grad is not None]
            if updated:
                torch._foreach_add_([state["step"] for *_, state in updated], 1)
            for settings.seed, parameter, state in updated:
                settings.time = int(state["step"])
                self._update(parameter, state, settings)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Also before torch 2, whose own zeros would be written, and then read and added to."""
        super().zero_grad(set_to_none)

    def _state_of(self, parameter: torch.Tensor) -> Dict[str, Any]:
        if parameter.grad.is_sparse:  # type: ignore[union-attr]
            raise TypeError("a gradient is sparse; expected dense ones, as nn.Embedding(sparse=False) has")
        state: Dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(parameter) for _ in range(2))
        elif not isinstance(state["step"], torch.Tensor):  # as torch before 1.12 saved it
            state["step"] = torch.tensor(float(state["step"]))
        if state["exp_avg"].shape != parameter.shape:
            raise ConfigError(f"a parameter is {list(parameter.shape)} and its state {list(state['exp_avg'].shape)}: "
                              "experts were shared among ranks after the first step; share them before, or make a new "
                              "optimizer, and load_checkpoint reads this rank's part of its state")
        return state

    def _update(self, parameter: torch.Tensor, state: Dict[str, Any], settings: AdamWSettings) -> None:
        tensors = parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]
        if all(tensor.is_contiguous() and not tensor.is_neg() for tensor in tensors):
            library().ml_adamw(byref(settings), *self._lent(parameter, tensors))
            for tensor in (parameter, *tensors[2:]):
                _changed(tensor)
            return
        rows = [plain(tensor).contiguous() for tensor in tensors]
        library().ml_adamw(byref(settings), *_flat(rows))
        for tensor, row in zip(tensors, rows):
            if tensor is not row and tensor is not parameter.grad:
                tensor.copy_(row)

    def _lent(self, parameter: torch.Tensor, tensors: Tuple[Any, ...]) -> List[Array]:
        """Arrays of them, those of the step before where all lie where they lay, as kept gradients do.

        Making four arrays takes longer than to update a small parameter.
        """
        where = [tensor.data_ptr() for tensor in tensors]
        lie = where, parameter.shape, parameter.dtype
        known, arrays = self._arrays.get(parameter, (None, []))
        if known != lie:
            arrays = _flat(tensors)
            for array in arrays:
                array.owner = None  # a gradient that is set to None gives back its memory
            self._arrays[parameter] = lie, arrays
        return arrays

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        self._arrays = {}


def _changed(tensor: torch.Tensor) -> None:
    """Autograd is told that the library wrote the tensor, so that who saved it for a backward hears of it."""
    if _bump is not None:
        _bump(tensor)
    else:  # before torch 2.1: a write of nothing
        tensor.detach().view(-1)[:0].zero_()


def _flat(tensors: Iterable[torch.Tensor]) -> List[Array]:
    names = "parameter", "gradient", "exp_avg", "exp_avg_sq"
    return [view(tensor.view(-1), name) for tensor, name in zip(tensors, names)]


def _settings(group: Dict[str, Any]) -> AdamWSettings:
    for word in ("amsgrad", "maximize"):
        if group.get(word):
            raise ConfigError(f"{word}=True, from the state that was loaded: moeloom's AdamW has it not; use "
                              "torch.optim.AdamW")
    beta1, beta2 = group["betas"]
    return AdamWSettings(learning_rate=float(group["lr"]), beta1=beta1, beta2=beta2, epsilon=group["eps"],
                         weight_decay=group["weight_decay"], grad_scale=1.0)
