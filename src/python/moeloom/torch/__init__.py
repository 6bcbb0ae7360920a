"""moeloom under torch: Functions with gradients, a mixture-of-experts layer, AdamW. torch 1.13 and later."""

from __future__ import annotations

from .experts import Experts, ExpertWeights, MoE
from .functions import (ExpertsFunction, GmmFunction, HybridGmmFunction, PermuteFunction, RMSNormFunction,
                        RopeFunction, SwigluFunction, UnpermuteFunction, gmm, grouped_mm)
from .optim import AdamW

__all__ = ["AdamW", "ExpertWeights", "Experts", "ExpertsFunction", "GmmFunction", "HybridGmmFunction", "MoE",
           "PermuteFunction", "RMSNormFunction", "RopeFunction", "SwigluFunction", "UnpermuteFunction", "gmm",
           "grouped_mm"]
