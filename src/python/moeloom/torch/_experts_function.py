"""A layer's experts under autograd: one call forward, one backward."""

from __future__ import annotations

import copy
from typing import Any, Dict, Optional, Tuple

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .._group import Experts, group_of
from .._passes import next_layer
from .._stacks import Stacks
from ..arrays import require_dims
from ..errors import ConfigError, SpentError
from ._compile import outside_graphs
from ._kept import Destination
from ._tensors import given, indices, maybe, require_tensor, view
from ._tickets import Tickets

_NAMES = ("gate_up", "down", "gate_up_bias", "down_bias")
GRADS = ("kept", "autograd")
_tickets = Tickets()


class ExpertWeights:
    """This rank's experts: gate_up [e, 2F, D], gate first, down [e, D, F], and both biases [e, 2F], [e, D] or none.

    grads "kept": backward writes the gradients of both stacks into memory that stays with this object, and `param.grad`
    refers to it; it overwrites where `param.grad` is None, and adds where it is not. Hooks and DDP do not see them.
    grads "autograd": they are tensors as any.
    num_experts: of the layer over all ranks of the mesh; None: as many as all have, counted in the first use. layer:
    names it in errors; None: the mesh's next.
    """

    def __init__(self, gate_up: torch.Tensor, down: torch.Tensor, kind: str = "silu", mesh: Any = None,
                 grads: str = "kept", *, gate_up_bias: Optional[torch.Tensor] = None,
                 down_bias: Optional[torch.Tensor] = None, num_experts: Optional[int] = None,
                 layer: Optional[int] = None) -> None:
        if grads not in GRADS:
            raise ConfigError(f'unknown grads "{grads}"; known: {", ".join(GRADS)}')
        if (gate_up_bias is None) != (down_bias is None):
            raise ConfigError("one bias was given; expected both or none")
        for tensor, name in zip((gate_up, down, gate_up_bias, down_bias), _NAMES):  # on meta too: not read yet
            if not isinstance(tensor, torch.Tensor) and (tensor is not None or name in _NAMES[:2]):
                raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
        require_dims(gate_up, ("e", "2F", "D"), "gate_up")
        self.gate_up, self.down = gate_up, down
        self.gate_up_bias, self.down_bias = gate_up_bias, down_bias
        self.kind, self.mesh, self.grads = kind, mesh, grads
        self.layer = next_layer(mesh) if layer is None else layer
        # Shared by all twins; empty until the first use counts them.
        self._num_experts = [] if num_experts is None and mesh is not None else [num_experts or gate_up.size(0)]
        self._buffers: Dict[str, torch.Tensor] = {}

    @property
    def num_experts(self) -> int:
        """Of the layer, over all ranks of the mesh. Collective in the first use, where it was not given."""
        if not self._num_experts:
            told = group_of(self.mesh).gather(str(self.gate_up.size(0)))
            self._num_experts.append(sum(map(int, told)))
        return self._num_experts[0]

    @property
    def tensors(self) -> Tuple[Optional[torch.Tensor], ...]:
        return self.gate_up, self.down, self.gate_up_bias, self.down_bias

    @property
    def buffers(self) -> Optional[Dict[str, torch.Tensor]]:
        return self._buffers if self.grads == "kept" else None

    @property
    def experts(self) -> Experts:
        return group_of(self.mesh).experts(self.num_experts, self.kind, self.layer)

    def of(self, gate_up: Any, down: Any, gate_up_bias: Any = None, down_bias: Any = None) -> ExpertWeights:
        """The same layer with its memory for gradients, of these tensors."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, gate_up=gate_up, down=down, gate_up_bias=gate_up_bias, down_bias=down_bias)
        return twin

    def of_none(self) -> ExpertWeights:
        """What stays between calls: the module's tensors may be replaced, or computed anew at each call."""
        return self.of(None, None)

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_buffers": {}}

    def __deepcopy__(self, memo: Dict[int, Any]) -> ExpertWeights:
        twin = memo[id(self)] = copy.copy(self)
        for name in _NAMES:
            setattr(twin, name, copy.deepcopy(getattr(self, name), memo))
        return twin

    def __copy__(self) -> ExpertWeights:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        return twin


def _stacks(gate_up: torch.Tensor, down: torch.Tensor, *biases: Optional[torch.Tensor]) -> Stacks:
    """The weights as the library reads them; copies of those that have gaps, or of biases in another format."""
    for tensor, name in zip((gate_up, down, *biases), _NAMES):
        if tensor is not None:
            require_tensor(tensor, name)
            if not tensor.is_floating_point():
                raise TypeError(f"{name} has dtype {tensor.dtype}; expected a floating point one")
    as_read = (None if bias is None else bias.float().contiguous() for bias in biases)
    return Stacks(view(gate_up.contiguous(), "gate_up"), view(down.contiguous(), "down"),
                  *(maybe(bias, name) for bias, name in zip(as_read, _NAMES[2:])))


class ExpertsFunction:
    """apply(x [T, D], topk_idx [T, K], topk_weights [T, K], experts) -> y [T, D], sums of weight * expert.

    An index of -1 or num_experts is no expert. Collective over the experts' mesh, backward too.
    """

    @staticmethod
    @outside_graphs
    def apply(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
              experts: ExpertWeights) -> torch.Tensor:
        # Weights are arguments so that autograd sees them; grad mode is off inside forward.
        topk_idx = indices(topk_idx, "topk_idx", "TK")
        y: torch.Tensor = _Call.apply(x, topk_idx, topk_weights, experts, torch.is_grad_enabled(), *experts.tensors)
        return y


class _Call(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, experts: ExpertWeights,
                grad_enabled: bool, *weights: Any) -> torch.Tensor:
        x, topk_weights = given(x, "x", "TD"), given(topk_weights, "topk_weights", "TK")
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        stacks = _stacks(*weights)
        keeps_trip = grad_enabled and any(ctx.needs_input_grad)
        trip = experts.experts.forward(stacks, view(x, "x"), view(topk_idx, "topk_idx"),
                                       view(topk_weights, "topk_weights"), view(y), keeps_trip)
        if trip is not None:
            ctx.save_for_backward(_tickets.issue(trip), x, topk_idx, topk_weights, *weights)
            # What a hook gives back for a saved parameter is not the parameter, which has the gradient.
            ctx.parameters = [weight if weight is not None and weight.is_leaf else None for weight in weights]
            ctx.experts, ctx.spent = experts, False
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        ticket, x, topk_idx, topk_weights, *weights = _saved(ctx)
        stacks = _stacks(*weights)
        experts, buffers = ctx.experts.experts, ctx.experts.buffers
        trip = _tickets.trip_of(ticket)
        if trip is None:  # a hook moved what was saved, as save_on_cpu does: forward again
            y = torch.empty_like(x, memory_format=torch.contiguous_format)
            trip = experts.forward(stacks, view(x), view(topk_idx), view(topk_weights), view(y), keeps_trip=True)
        dx, d_topk_weights = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, topk_weights))
        destinations = [
            Destination(weight, name, parameter, buffers if i < 2 else None, ctx.next_functions[3 + i][0])
            if weight is not None and ctx.needs_input_grad[5 + i] else None
            for i, (weight, name, parameter) in enumerate(zip(weights, _NAMES, ctx.parameters))]
        experts.backward(stacks, trip, view(given(dy, "dy"), "dy"), view(dx), view(d_topk_weights),
                         {name: to and to.target for name, to in zip(_NAMES, destinations)})
        ctx.spent = True
        return (dx, None, d_topk_weights, None, None, *(to and to.result() for to in destinations))


def _saved(ctx: Any) -> Tuple[Any, ...]:
    try:
        saved: Tuple[Any, ...] = ctx.saved_tensors
        return saved
    except RuntimeError as error:
        if not ctx.spent:
            raise
        raise SpentError("this forward's backward was called already, and what it needs is used up; call forward "
                         "again") from error
