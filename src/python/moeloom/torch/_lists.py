"""Experts of transformers 4, a list of MLPs, as two stacks that the kernels read.

Each `nn.Linear.weight` becomes a view of one tensor of the layer, once: parameters stay the objects that they were,
with their names, so that state_dict, hooks on modules and optimizers that were made before see no difference. What
moves the weights away (`.to()`, a copy, a load with assign=True) is seen at the next forward, which stacks them anew.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ._experts_function import ExpertsFunction, ExpertWeights
from ._kept import _will_execute
from ._linears import is_called_alone, is_plain
from ._patch import FORMATS
from ._shares import local_experts


class Projections(NamedTuple):
    """Attributes of an expert, as models of transformers 4 name them."""

    gate: str
    up: str
    down: str


def why_not_stacked(experts: nn.ModuleList, names: Projections) -> Optional[str]:
    """None where every expert is three plain `nn.Linear` without biases or hooks, all alike."""
    shapes: Set[Tuple[Any, ...]] = set()
    for number, expert in local_experts(experts):
        if not is_called_alone(expert):
            return f"experts.{number} has hooks or a forward of its own, which the kernel would not call"
        for name in names:
            linear = expert._modules.get(name)
            where = f"experts.{number}.{name}"
            if type(linear) is not nn.Linear:
                return f"{where} is a {type(linear).__module__}.{type(linear).__qualname__}, not a torch.nn.Linear"
            if linear.bias is not None:
                return f"{where} has a bias"
            if not is_plain(linear):
                return f"{where} has hooks, a forward of its own or a weight that is computed from others"
            if linear.weight.device.type != "cpu" or linear.weight.dtype not in FORMATS:
                return f"{where} is {linear.weight.dtype} on {linear.weight.device}; expected 32 or 16 bits on the CPU"
            shapes.add((name, linear.weight.dtype, *linear.weight.shape))
    return None if len(shapes) == len(names) else f"experts differ in shape or dtype: {sorted(map(str, shapes))}"


class _Stack:
    """One stack [E, ., .] and the parameters that are views of it, each with its place."""

    def __init__(self, parameters: List[nn.Parameter], per_expert: int) -> None:
        first = parameters[0]
        rows, columns = first.shape
        self.parameters, self._rows = parameters, rows
        self._slices: List[torch.Tensor] = []
        with torch.inference_mode(False), torch.no_grad():  # what begins in inference may be trained later
            self.tensor = torch.empty(len(parameters) // per_expert, per_expert * rows, columns, dtype=first.dtype)
            for parameter, place in zip(parameters, self.slices(self.tensor)):
                place.copy_(parameter)
                parameter.data = place
        self._addresses = [parameter.data_ptr() for parameter in parameters]

    def slices(self, tensor: torch.Tensor) -> List[torch.Tensor]:
        """Of each parameter its part of a tensor that is laid out as the stack."""
        return list(tensor.view(-1, self._rows, tensor.size(-1)).unbind())

    def holds(self, parameters: List[nn.Parameter]) -> bool:
        return all(mine is given and given.data_ptr() == address
                   for mine, given, address in zip(self.parameters, parameters, self._addresses))

    def follow_freezing(self) -> None:
        self.tensor.requires_grad_(any(parameter.requires_grad for parameter in self.parameters))

    def before_backward(self) -> None:
        """`tensor.grad` becomes what the parameters' gradients are, if they are all its parts; else None."""
        grads = [parameter.grad for parameter in self.parameters]
        kept = self.tensor.grad is not None and self._slices
        if kept and all(grad is part for grad, part in zip(grads, self._slices)):
            return
        if kept:  # some of them are parts, which the next gradient would overwrite
            parts = set(map(id, self._slices))
            for parameter, grad in zip(self.parameters, grads):
                if grad is not None and id(grad) in parts:
                    parameter.grad = grad.clone()
        self.tensor.grad = None

    def after_backward(self, *_: Any) -> None:
        """Parameters have their parts of `tensor.grad`."""
        if self.tensor.grad is None:
            return
        if not self._slices or self._slices[0].data_ptr() != self.tensor.grad.data_ptr():
            self._slices = self.slices(self.tensor.grad)
        for parameter, part in zip(self.parameters, self._slices):
            if parameter.grad is part or not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = part
            else:
                parameter.grad.add_(part)


class _Before(Function):
    """y as it is. Its backward comes before that of the experts, and autograd sees here that y is of the parameters.

    Where only some gradients are asked for, by torch.autograd.grad() or backward(inputs=...), which the stacks are not
    among, those of the parameters are computed here, as autograd's.
    """

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, listed: ListedExperts, of_stack: Any, x: torch.Tensor,
                topk_idx: torch.Tensor, topk_weights: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.listed, ctx.stacks, ctx.of_stack = listed, listed.stacks, of_stack
        ctx.save_for_backward(x, topk_idx, topk_weights)
        ctx.mark_dirty(y)  # a view could not be changed in place
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        for stack in ctx.stacks:
            stack.before_backward()
        parameters = [parameter for stack in ctx.stacks for parameter in stack.parameters]
        nothing = [None] * 5
        if ctx.of_stack is None or _comes_to(ctx.of_stack):
            return (dy, *nothing, *[None] * len(parameters))
        asked = [node is not None and _comes_to(node) for node, _ in ctx.next_functions[4:]]
        x, topk_idx, topk_weights = (tensor.detach() for tensor in ctx.saved_tensors)
        wanted = [parameter for parameter, is_asked in zip(parameters, asked) if is_asked]
        grads: Iterator[torch.Tensor] = iter(())
        if wanted:
            with torch.enable_grad():
                y = ctx.listed.of_autograd(x, topk_idx, topk_weights)
            grads = iter(torch.autograd.grad(y, wanted, dy))
        return (dy, *nothing, *(next(grads) if is_asked else None for is_asked in asked))


def _comes_to(node: Any) -> bool:
    """Whether this backward does, or gives its gradient as a result; before torch 2 nothing says so."""
    try:
        return _will_execute is None or bool(_will_execute(node))
    except RuntimeError:
        return True


class _Stacked(Function):
    """The stack as a function of its parameters, for who wants their gradients from autograd."""

    @staticmethod
    def forward(ctx: Any, stack: _Stack, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.stack = stack
        return stack.tensor.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_stack: torch.Tensor) -> Tuple[Any, ...]:
        wanted = ctx.needs_input_grad[1:]
        return (None, *(part if wants else None for wants, part in zip(wanted, ctx.stack.slices(d_stack))))


class ListedExperts:
    """forward(x [T, D], topk_idx [T, K], topk_weights [T, K]) over the experts of a ModuleList."""

    def __init__(self, experts: nn.ModuleList, names: Projections, kind: str, mesh: Any, grads: str) -> None:
        self._experts, self._names = experts, names
        self._kind, self._mesh, self._grads = kind, mesh, grads
        self.layer = 0  # which errors name
        self._stacks: Tuple[_Stack, ...] = ()
        self._weights: Optional[ExpertWeights] = None

    def __getstate__(self) -> Dict[str, Any]:
        """A copy's parameters lie elsewhere: it stacks them at its first forward."""
        return {**self.__dict__, "_stacks": (), "_weights": None}

    def _parameters(self) -> Optional[Tuple[List[nn.Parameter], List[nn.Parameter]]]:
        """Of gate and up in turns, and of down; None where one is no plain nn.Linear any more, as under an adapter or a
        hook."""
        gate_up: List[Any] = []
        down: List[Any] = []
        names = self._names
        for _, expert in local_experts(self._experts):
            modules: Any = expert._modules
            gate, up, last = modules[names.gate], modules[names.up], modules[names.down]
            if not (is_called_alone(expert) and is_plain(gate) and is_plain(up) and is_plain(last)):
                return None
            gate_up += gate._parameters["weight"], up._parameters["weight"]
            down.append(last._parameters["weight"])
        return gate_up, down

    def sizes(self) -> Tuple[int, int, int]:
        """Experts, hidden, intermediate."""
        _, expert = local_experts(self._experts)[0]
        hidden, intermediate = getattr(expert, self._names.down).weight.shape
        return len(self._experts), hidden, intermediate

    def stack(self) -> bool:
        """Weights lie in the stacks from here on; False where these experts cannot be stacked any more."""
        parameters = self._parameters()
        if parameters is None:
            return False
        if not self._stacks or not all(stack.holds(own) for stack, own in zip(self._stacks, parameters)):
            if why_not_stacked(self._experts, self._names):
                return False
            self._stacks = _Stack(parameters[0], 2), _Stack(parameters[1], 1)
            self._weights = self._of(self._stacks[0].tensor, self._stacks[1].tensor, "kept")
        return True

    @property
    def stacks(self) -> Tuple[_Stack, ...]:
        return self._stacks

    def of_autograd(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        """With gradients that are tensors as any."""
        gate_up, down = (_Stacked.apply(stack, *stack.parameters) for stack in self._stacks)
        return ExpertsFunction.apply(x, topk_idx, topk_weights, self._of(gate_up, down, "autograd"))

    def _of(self, gate_up: torch.Tensor, down: torch.Tensor, grads: str) -> ExpertWeights:
        return ExpertWeights(gate_up, down, self._kind, self._mesh, grads, num_experts=len(self._experts),
                             layer=self.layer)

    def __call__(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        """After stack()."""
        if self._grads == "autograd":
            return self.of_autograd(x, topk_idx, topk_weights)
        assert self._weights is not None
        for stack in self._stacks:
            stack.follow_freezing()
        y = ExpertsFunction.apply(x, topk_idx, topk_weights, self._weights)
        if y.grad_fn is None:
            return y
        for stack in self._stacks:
            y.grad_fn.register_hook(stack.after_backward)
        of_stack = next((node for node, _ in y.grad_fn.next_functions[3:5] if node is not None), None)
        parameters = (parameter for stack in self._stacks for parameter in stack.parameters)
        y = _Before.apply(y, self, of_stack, x, topk_idx, topk_weights, *parameters)
        return y
