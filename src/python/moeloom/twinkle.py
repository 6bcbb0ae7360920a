"""Twinkle's kernels: `kernelize(model, moeloom.twinkle.mapping())` puts these in place of transformers' functions."""

from __future__ import annotations

from typing import Any, Callable, Dict

from .torch import grouped_mm


def mapping() -> Dict[str, Dict[str, Callable[..., Any]]]:
    """Dotted names of functions of transformers 5 -> {"cpu": ours}; on other devices Twinkle leaves them alone."""
    return {"transformers.integrations.moe._grouped_mm": {"cpu": grouped_mm}}
