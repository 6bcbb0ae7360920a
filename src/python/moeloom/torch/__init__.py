"""moeloom under torch 1.13 and later: Functions, a mixture-of-experts layer, AdamW, kernels on a model."""

from __future__ import annotations

from .buffer import Buffer
from .checkpoint import load_checkpoint, save_checkpoint
from .experts import Experts, ExpertWeights, MoE
from .functions import (ExpertsFunction, GmmFunction, HybridGmmFunction, PermuteFunction, RMSNormFunction,
                        RopeFunction, SwigluFunction, UnpermuteFunction, gmm, grouped_mm)
from .kernels import (BaseKernel, Report, apply_default_kernels, apply_kernel, apply_kernels, get_default_kernels,
                      register_kernel, reports, scan_all_kernels, unapply)
from .optim import AdamW
from .parallel import finish_gradients, shard_batches
from .save import save_pretrained

__all__ = ["AdamW", "BaseKernel", "Buffer", "ExpertWeights", "Experts", "ExpertsFunction", "GmmFunction",
           "HybridGmmFunction", "MoE", "PermuteFunction", "RMSNormFunction", "Report", "RopeFunction", "SwigluFunction",
           "UnpermuteFunction", "apply_default_kernels", "apply_kernel", "apply_kernels", "finish_gradients",
           "get_default_kernels", "gmm", "grouped_mm", "load_checkpoint", "register_kernel", "reports",
           "save_checkpoint", "save_pretrained", "scan_all_kernels", "shard_batches", "unapply"]
