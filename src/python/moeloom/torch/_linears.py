"""Whether a module does nothing but what its class says, so that a kernel may compute it without calling it."""

from __future__ import annotations

from typing import Any

from torch import nn

from ._patch import Patch


def has_hooks(module: Any) -> bool:
    """Of any kind, before or after forward or backward; they see only calls of the module itself."""
    own = module.__dict__
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
                or own.get("_backward_pre_hooks"))


def is_called_alone(module: Any) -> bool:
    """Whether calling it runs its class's forward and nothing else; a patch of ours computes the same."""
    return not has_hooks(module) and isinstance(module.__dict__.get("forward"), (Patch, type(None)))


def is_plain(linear: Any) -> bool:
    """An nn.Linear whose product with its own parameter is all that calling it does."""
    if type(linear) is not nn.Linear:
        return False
    own = linear.__dict__
    return (own["_parameters"].get("weight") is not None and own["_parameters"].get("bias", linear) is None
            and "forward" not in own and not has_hooks(linear))
