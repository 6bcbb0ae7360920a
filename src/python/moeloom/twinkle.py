"""Twinkle's kernels: `kernelize(model, moeloom.twinkle.mapping())` puts these in place of transformers' functions."""

from __future__ import annotations

from typing import Any, Callable, Dict

from .torch import grouped_mm


class OnCpu(Dict[str, Callable[..., Any]]):
    """{"cpu": function} for Twinkle before 0.5, which takes it by device; later ones take the value and call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(cpu=function)
        self.__name__ = self.__qualname__ = function.__name__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self["cpu"](*arguments, **named)


def mapping() -> Dict[str, Dict[str, Callable[..., Any]]]:
    """Dotted names of functions of transformers 5 -> {"cpu": ours}."""
    return {"transformers.integrations.moe._grouped_mm": OnCpu(grouped_mm)}
