"""experts_implementation="moeloom" of transformers 5: `import moeloom.hf`, then the word works for every family.

    model = AutoModelForCausalLM.from_pretrained(folder, experts_implementation="moeloom")
    model.set_experts_implementation("moeloom")     # or of a model that is there
    moeloom.hf.register(grads="autograd")           # gradients that hooks and DDP see, from then on

Under mpirun: register(mesh), from_pretrained(folder, mesh), ExpertParallel(mesh) (src/python/ranks.md).
"""

from __future__ import annotations

import functools
import weakref
import zlib
from typing import Any, Optional

import torch
import transformers

try:
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, _default_apply_gate
except ImportError as error:
    if int(transformers.__version__.split(".")[0]) >= 5:
        raise
    raise ImportError("moeloom.hf needs transformers 5, whose models ask a registry for their experts; with "
                      'transformers 4 use moeloom.torch.apply_kernel("fused_moe", model=model), and '
                      "moeloom.loading and moeloom.trainer, which are for both") from error

from .errors import ConfigError
from .loading import from_pretrained, shard
from .torch import ExpertsFunction, ExpertWeights, GmmFunction
from .torch._dispatch import Layer, through
from .torch._experts_function import GRADS
from .torch._guards import Registered, guard_callers, refuse_computed
from .torch._plans import Left, activation_of
from .torch._shares import Share, shard_stacks, share_of
from .torch.products import BiasFunction
from .trainer import ExpertParallel

__all__ = ["ExpertParallel", "experts_forward", "from_pretrained", "register", "shard"]

_SAMPLE = 4096  # numbers that tell layers apart
_weights: weakref.WeakKeyDictionary[torch.nn.Module, ExpertWeights] = weakref.WeakKeyDictionary()


def _fused_kind(experts: Any) -> Optional[str]:
    """The activation, where all is one call: stacks [E, 2F, D], gate first, and [E, D, F], gated as most are."""
    if not experts.has_gate or experts.is_transposed or not experts.is_concatenated:
        return None
    if type(experts)._apply_gate is not _default_apply_gate:
        return None
    try:
        return activation_of(experts)
    except Left:
        return None


def _require_one_layer(experts: Any, mesh: Any) -> None:
    """ConfigError on all ranks of the row where they came to layers with other weights."""
    weights = experts.down_proj.detach().reshape(-1)
    some = weights[::max(weights.numel() // _SAMPLE, 1)].float().contiguous()
    told = mesh.ep_row.gather(f"{zlib.crc32(some.numpy().tobytes()):08x}")
    if len(set(told)) > 1:
        raise ConfigError(f"ranks share experts whose weights differ (a sum of them by rank: {', '.join(told)}); every "
                          "rank makes the same model, and calls its layers in one order")


def _share_of(experts: Any, mesh: Any) -> Optional[Share]:
    """How its experts are shared: since an earlier forward, since it was loaded, or from now on."""
    share = share_of(experts)
    if share is None and mesh is not None and mesh.ep > 1:
        refuse_computed(experts)
        guard_callers(experts)
        Registered(experts).install()
    if share is None and mesh is not None:  # the module does not know its number, and forwards come in order
        _require_one_layer(experts, mesh)
        share = shard_stacks(experts, experts.num_experts, mesh, mesh.next_layer())
    return share


def _weights_of(experts: Any, kind: str, grads: str, mesh: Any) -> ExpertWeights:
    """The layer's, with its memory for gradients."""
    found = _weights.get(experts)
    stacks = experts.gate_up_proj, experts.down_proj
    if found is None:
        share = share_of(experts)
        layer = 0 if share is None else share.layer
        found = _weights[experts] = ExpertWeights(*stacks, num_experts=experts.num_experts, layer=layer).of_none()
    found.kind, found.grads, found.mesh = kind, grads, mesh
    biases = (experts.gate_up_proj_bias, experts.down_proj_bias) if experts.has_bias else (None, None)
    return found.of(*stacks, *biases)


def _product(experts: Any, name: str, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    weight = getattr(experts, name)
    y = GmmFunction.apply(rows, weight if experts.is_transposed else weight.transpose(1, 2), counts)
    return BiasFunction.apply(y, getattr(experts, name + "_bias"), counts) if experts.has_bias else y


def experts_forward(self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor,
                    top_k_weights: torch.Tensor, grads: str = "kept", mesh: Any = None) -> torch.Tensor:
    """hidden_states [T, D], top_k_index and top_k_weights [T, K] -> [T, D]; an index of num_experts is nobody's.

    With a mesh each rank keeps its share of the stacks from the first forward on.
    """
    kind, share = _fused_kind(self), _share_of(self, mesh)
    mesh, layer = (None, 0) if share is None else (share.mesh, share.layer)
    if kind is not None:
        weights = _weights_of(self, kind, grads, mesh)
        return ExpertsFunction.apply(hidden_states, top_k_index, top_k_weights, weights)
    name = "gate_up_proj" if self.has_gate else "up_proj"

    def products(rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        rows = _product(self, name, rows, counts)
        return _product(self, "down_proj", self._apply_gate(rows) if self.has_gate else self.act_fn(rows), counts)

    return through(products, hidden_states, top_k_index, top_k_weights, Layer(mesh, self.num_experts, layer))


def register(mesh: Any = None, grads: str = "kept") -> None:
    """What experts_implementation="moeloom" is from then on, of models that are there too.

    mesh: whose ranks share the experts, each with tokens of its own; a model that is whole is divided in its first
    forward, hf.shard(model, mesh) does it at once; None: one process. Every rank calls it. grads: of expert
    weights, "kept" in memory of the layer, or "autograd"'s tensors, for hooks and DDP.
    """
    if grads not in GRADS:
        raise ConfigError(f'unknown grads "{grads}"; known: {", ".join(GRADS)}')
    ALL_EXPERTS_FUNCTIONS.register("moeloom", functools.partial(experts_forward, grads=grads, mesh=mesh))


def registered_mesh() -> Any:
    """That of the last register()."""
    return ALL_EXPERTS_FUNCTIONS["moeloom"].keywords["mesh"]


register()
