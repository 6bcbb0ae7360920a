"""What accelerate does with torch.distributed, over the ranks of a mesh: small tensors, nested in lists and dicts."""

from __future__ import annotations

from typing import Any, Callable

import torch

from .torch._tensors import view


def _each(one: Callable[[torch.Tensor], torch.Tensor], tensors: Any) -> Any:
    """Of tensors in lists, tuples and dicts; as accelerate, which is there where this is called, has them."""
    from accelerate.utils import recursively_apply
    return recursively_apply(one, tensors, error_on_other_type=True)


_DIRECT = (torch.float32, torch.bfloat16, torch.float16, torch.bool)  # what a float32 holds


def _stacked(mesh: Any, tensor: torch.Tensor) -> torch.Tensor:
    """[ranks, ...]. The sum of one rank's numbers and zeros is exact; wider ones go byte by byte."""
    own = tensor.detach().reshape(-1)
    sent = own if tensor.dtype in _DIRECT else own.contiguous().view(torch.uint8)
    everywhere = torch.zeros(mesh.size, sent.numel())
    everywhere[mesh.rank] = sent
    mesh.world.sum([view(everywhere.view(-1))])
    received = everywhere.to(sent.dtype)
    return (received if sent is own else received.view(tensor.dtype)).view(mesh.size, *tensor.shape)


def gather(mesh: Any, tensors: Any) -> Any:
    """[n, ...] of each rank, or a number -> [ranks * n, ...]. Every rank has the same shapes."""
    def one(tensor: torch.Tensor) -> torch.Tensor:
        return _stacked(mesh, tensor).flatten(0, 1) if tensor.dim() else _stacked(mesh, tensor)
    return _each(one, tensors)


def from_first(mesh: Any, tensor: torch.Tensor) -> torch.Tensor:
    """That of rank 0, on every rank."""
    return _stacked(mesh, tensor)[0]


def pad(mesh: Any, tensors: Any, dim: int, pad_index: float, pad_first: bool) -> Any:
    """Along `dim` as long as the longest of all ranks."""
    def one(tensor: torch.Tensor) -> torch.Tensor:
        if dim >= tensor.dim():
            return tensor
        longest = int(_stacked(mesh, torch.tensor(tensor.size(dim))).max())
        padded = tensor.new_full((*tensor.shape[:dim], longest, *tensor.shape[dim + 1:]), pad_index)
        begin = longest - tensor.size(dim) if pad_first else 0
        padded.narrow(dim, begin, tensor.size(dim)).copy_(tensor)
        return padded
    return _each(one, tensors)
