"""AdamW in one pass over each parameter."""

from __future__ import annotations

from ctypes import byref
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

import torch
from torch.optim import Optimizer

from .._library import library
from .._table import AdamWSettings
from ..errors import ConfigError
from ._tensors import view


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

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        number = 0
        for group in self.param_groups:
            settings = _settings(group)
            for parameter in group["params"]:
                number += 1
                if parameter.grad is not None:
                    settings.seed = number
                    self._update(parameter, settings)
        return loss

    def _update(self, parameter: torch.Tensor, settings: AdamWSettings) -> None:
        if parameter.grad.is_sparse:
            raise TypeError("a gradient is sparse; expected dense ones, as nn.Embedding(sparse=False) has")
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(parameter) for _ in range(2))
        state["step"] += 1
        settings.time = int(state["step"])
        written = [parameter, state["exp_avg"], state["exp_avg_sq"]]
        rows = [tensor.contiguous().view(-1) for tensor in (*written, parameter.grad)]
        weight, first, second, grad = (view(row, name) for row, name in zip(rows, ("parameter", "exp_avg", "exp_avg_sq",
                                                                                   "gradient")))
        library().ml_adamw(byref(settings), weight, grad, first, second)
        for tensor, row in zip(written, rows):
            if not tensor.is_contiguous():  # then a copy was updated
                tensor.copy_(row.view(tensor.shape))


def _settings(group: Dict[str, Any]) -> AdamWSettings:
    for word in ("amsgrad", "maximize"):
        if group.get(word):
            raise ConfigError(f"{word}=True, from the state that was loaded: moeloom's AdamW has it not; use "
                              "torch.optim.AdamW")
    beta1, beta2 = group["betas"]
    return AdamWSettings(learning_rate=float(group["lr"]), beta1=beta1, beta2=beta2, epsilon=group["eps"],
                         weight_decay=group["weight_decay"], grad_scale=1.0)
