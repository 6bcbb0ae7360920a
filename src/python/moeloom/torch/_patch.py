"""What stands in a module's place of `forward`: a patch, which knows how to give back what was there.

A patch is an attribute of the one module, so that other models of its class stay as they are, and an object rather
than a function, so that a patched model can be copied and pickled: a copy of the module has a copy of the patch. It
refers to its module weakly: a model that nobody holds gives back its memory at once, as without patches.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

import torch
from torch import nn

from ..errors import SpentError
from ._compile import outside_graphs

FORMATS = (torch.float32, torch.bfloat16, torch.float16)
ATTRIBUTES = ("forward", "moe", "_apply_gate")


class Report(NamedTuple):
    """What a kernel did with a module, by its dotted name, "" being the model; reason: why, or why not."""

    kernel: str
    module: str
    applied: bool
    reason: str


def is_ours(x: torch.Tensor) -> bool:
    """Whether the kernels compute it. A model may move to another device or dtype after it was patched."""
    return x.device.type == "cpu" and x.dtype in FORMATS


class Patch:
    """Called in place of the module's own method. `settings`: two patches of one kernel with the same are alike."""

    kernel = ""
    attribute = "forward"
    settings: Tuple[Any, ...] = ()
    reason = ""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "__call__" in cls.__dict__:
            cls.__call__ = outside_graphs(cls.__call__)  # type: ignore[method-assign]

    def sizes(self) -> Tuple[int, int, int]:
        """Of experts: how many, hidden, intermediate."""
        raise NotImplementedError

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)
        self._before: Optional[Callable[..., Any]] = None

    @property
    def module(self) -> Any:
        """An nn.Module with what its class has."""
        module = self._module()
        if module is None:
            raise SpentError(f"the module that {self.kernel} patched is gone; hold the model, not its {self.attribute}")
        return module

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_module": self.module}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _module=weakref.ref(state["_module"]))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    def original(self, *arguments: Any, **named: Any) -> Any:
        """The module's own method, for what the patch does not do."""
        if self._before is not None:
            return self._before(*arguments, **named)
        return getattr(type(self.module), self.attribute)(self.module, *arguments, **named)

    def install(self) -> None:
        """Takes the place of an earlier patch of the same kernel, and leaves one that is alike."""
        standing = self.module.__dict__.get(self.attribute)
        if isinstance(standing, Patch) and standing.kernel == self.kernel:
            if type(standing) is type(self) and standing.settings == self.settings:
                return
            standing.remove()
        self._before = self.module.__dict__.get(self.attribute)
        self.module.__dict__[self.attribute] = self

    def remove(self) -> None:
        """What stood there stands there again, be it the class's own or somebody's before."""
        if self._before is None:
            del self.module.__dict__[self.attribute]
        else:
            self.module.__dict__[self.attribute] = self._before


def patches(model: nn.Module) -> Iterator[Tuple[str, Patch]]:
    """Of all modules, by dotted name."""
    for name, module in model.named_modules():
        for attribute in ATTRIBUTES:
            standing = module.__dict__.get(attribute)
            if isinstance(standing, Patch):
                yield name, standing
