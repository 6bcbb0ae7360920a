"""Which classes of Hugging Face's models are what: THE table, by model_type; made from the program's families.

A sparse block, an experts class, an MLP, a norm, attention: each by the name of its class, with how its weights lie
and what its forward does, in transformers 4.57 and 5.15. A class that is not here is left alone. Nothing is taken from
shapes: [E, 2F, D] and [E, D, 2F] look the same where 2F = D.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from ._lists import Projections

_LLAMA = Projections("gate_proj", "up_proj", "down_proj")
_MIXTRAL = Projections("w1", "w3", "w2")
_FUSED = Projections("gate_up_proj", "", "down_proj")
_GRANITE = Projections("input_linear", "", "output_linear")


class Listed(NamedTuple):
    """A block of transformers 4 whose `experts` are a ModuleList; `_routing.py` has the words."""

    routing: str
    shared: str = ""
    names: Projections = _LLAMA
    returns_logits: bool = True


class ListedMoe(NamedTuple):
    """A block of transformers 4 with a method `moe(hidden_states, topk_indices, topk_weights)` over such a list."""

    names: Projections = _LLAMA


class Stacked(NamedTuple):
    """An experts class of transformers 5: gate_up_proj [E, 2F, D], gate first, down_proj [E, D, F].

    in_out_if: where its forward has an argument of this name it is that of transformers 4, [E, D, 2F] and [E, F, D].
    """

    in_out_if: str = ""


class Granite(NamedTuple):
    """A block of transformers 4: input_linear.weight [E, 2F, D], gate first, output_linear.weight [E, D, F]."""


class GptOss(NamedTuple):
    """gate_up_proj [E, D, 2F], gate and up in turns, down_proj [E, F, D], biases; in 4 and 5."""


class Llama4(NamedTuple):
    """A block whose experts have gate_up_proj [E, D, 2F], gate first, and down_proj [E, F, D]; in 4 and 5."""


class Part(NamedTuple):
    """A class whose block computes it."""


class MlpRow(NamedTuple):
    """kind: of the activation that its forward spells out; "": its attribute act_fn or activation_fn."""

    names: Projections = _LLAMA
    kind: str = ""


class NormRow(NamedTuple):
    """may_lack_weight: a module of this class that says with_scale = False divides by the root mean square alone."""

    offset: float = 0.0
    gated: bool = False
    may_lack_weight: bool = False


class Family(NamedTuple):
    """Rows by class name."""

    experts: Mapping[str, Any] = {}
    mlps: Mapping[str, MlpRow] = {}
    norms: Mapping[str, NormRow] = {}
    attentions: Mapping[str, Mapping[str, str]] = {}


_HALVES = {"apply_rotary_pos_emb": "halves"}
_INTERLEAVED = {"apply_rotary_pos_emb": "interleaved"}
_DEEPSEEK = {**_HALVES, "apply_rotary_pos_emb_interleave": "to_halves"}
_BACKENDS = ("Attention", "SdpaAttention", "FlashAttention2")  # transformers 4 has some models' three times


def _family(prefix: str, block: str = "", listed: Any = None, *, stacked: Optional[Stacked] = Stacked(),
            mlp: Optional[MlpRow] = MlpRow(), offset: Optional[float] = 0.0,
            rope: Optional[Mapping[str, str]] = None) -> Family:
    """Of classes that are called as most are: PrefixSparseMoeBlock, PrefixExperts, PrefixMLP, PrefixRMSNorm, ..."""
    experts: Dict[str, Any] = {}
    if listed is not None:
        experts[prefix + (block or "SparseMoeBlock")] = listed
    if stacked is not None:
        experts[prefix + "Experts"] = stacked
    return Family(experts, {} if mlp is None else {prefix + "MLP": mlp},
                  {} if offset is None else {prefix + "RMSNorm": NormRow(offset)},
                  {prefix + backend: _HALVES if rope is None else rope for backend in _BACKENDS})


def _dense(prefix: str, **settings: Any) -> Family:
    return _family(prefix, stacked=None, **settings)


def _with(family: Family, *others: Family, **rows: Mapping[str, Any]) -> Family:
    """All rows of several, and some more."""
    every = (family, *others, Family(**rows))
    columns: Any = ({name: row for each in every for name, row in each[column].items()}
                    for column in range(len(Family._fields)))
    return Family(*columns)


_GATED = Listed("softmax", "gated_shared_expert")
_QWEN3_OMNI = _with(
    _family("Qwen3OmniMoeThinkerText", listed=Listed("softmax")),
    _family("Qwen3OmniMoeTalkerText", listed=_GATED, offset=None),
    _dense("Qwen3OmniMoe"), _dense("Qwen3OmniMoeTalkerCodePredictor", mlp=None, offset=None),
    norms={"Qwen3OmniMoeTextRMSNorm": NormRow()})
_QWEN3_VL_MOE = _family("Qwen3VLMoeText", stacked=Stacked(in_out_if="router_indices"))
_QWEN3_5_MOE = _with(_family("Qwen3_5Moe", offset=1.0), norms={"Qwen3_5MoeRMSNormGated": NormRow(gated=True)})
_QWEN3_5 = _with(_dense("Qwen3_5", offset=1.0), norms={"Qwen3_5RMSNormGated": NormRow(gated=True)})
_DEEPSEEK_V3 = _family("DeepseekV3", "MoE", ListedMoe(), rope=_DEEPSEEK)
_LLAMA4 = _with(_dense("Llama4Text", rope={"apply_rotary_emb": "complex_heads"}),
                experts={"Llama4TextMoe": Llama4(), "Llama4TextExperts": Part()})
_GEMMA3 = _dense("Gemma3", offset=1.0)
_GEMMA4 = _with(_family("Gemma4Text", offset=None, rope={"apply_rotary_pos_emb": "one_by_token"}),
                norms={"Gemma4RMSNorm": NormRow(may_lack_weight=True)})

FAMILIES: Dict[str, Family] = {
    "afmoe": _family("Afmoe"),
    "axk1": _family("AXK1", rope=_DEEPSEEK),
    "cohere2_moe": _family("Cohere2Moe", rope=_INTERLEAVED),
    "deepseek_v2": _family("DeepseekV2", "MoE", ListedMoe(), rope={"apply_rotary_emb": "complex"}),
    "deepseek_v3": _DEEPSEEK_V3,
    "dots1": _family("Dots1", "MoE", ListedMoe()),
    "ernie4_5_moe": _family("Ernie4_5_Moe", listed=Listed("corrected_softmax", "shared_experts"), rope=_INTERLEAVED),
    "exaone_moe": _family("ExaoneMoe"),
    "flex_olmo": _family("FlexOlmo", listed=Listed("softmax")),
    "gemma2": _dense("Gemma2", offset=1.0),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "glm4": _dense("Glm4", mlp=MlpRow(_FUSED), rope=_INTERLEAVED),
    "glm4_moe": _family("Glm4Moe", "MoE", ListedMoe()),
    "glm4_moe_lite": _family("Glm4MoeLite", rope=_DEEPSEEK),
    "gpt_oss": _with(_dense("GptOss", mlp=None, rope={"apply_rotary_pos_emb": "half_angles"}),
                     experts={"GptOssExperts": GptOss()}, mlps={"GptOssMLP": Part()}),
    "granitemoe": _with(_family("GraniteMoe", "MoE", Granite(), mlp=None),
                        experts={"GraniteMoeParallelExperts": Part()}),
    "granitemoe_swa": _family("GraniteMoeSWA", mlp=MlpRow(_GRANITE)),
    "hunyuan_v1_moe": _family("HunYuanMoEV1", "Moe",
                              Listed("softmax_of_gate_module", "shared_mlp", returns_logits=False)),
    "hy_v3": _family("HYV3"),
    "kimi_k2": _DEEPSEEK_V3,
    "laguna": _family("Laguna"),
    "lfm2_moe": _family("Lfm2Moe", mlp=MlpRow(_MIXTRAL, kind="silu")),
    "llama": _dense("Llama"),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "mellum": _family("Mellum"),
    "mimo_v2_flash": _family("MiMoV2Flash"),
    "minimax_m2": _family("MiniMaxM2", mlp=None),
    "mistral": _dense("Mistral"),
    "mixtral": _with(_family("Mixtral", listed=Listed("softmax_normalized", names=_MIXTRAL), mlp=None),
                     mlps={"MixtralBlockSparseTop2MLP": MlpRow(_MIXTRAL)}),
    "olmoe": _family("Olmoe", listed=Listed("softmax")),
    "phi3": _dense("Phi3", mlp=MlpRow(_FUSED)),
    "phimoe": _with(_family("Phimoe", listed=Listed("sparse_mixer", names=_MIXTRAL), mlp=None, offset=None),
                    mlps={"PhimoeBlockSparseTop2MLP": MlpRow(_MIXTRAL)}),
    "qwen2": _dense("Qwen2"),
    "qwen2_moe": _family("Qwen2Moe", listed=_GATED),
    "qwen3": _dense("Qwen3"),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5_MOE,
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    "qwen3_moe": _family("Qwen3Moe", listed=Listed("softmax")),
    "qwen3_next": _with(_family("Qwen3Next", listed=_GATED, offset=1.0),
                        norms={"Qwen3NextRMSNormGated": NormRow(gated=True)}),
    "qwen3_omni_moe": _QWEN3_OMNI,
    "qwen3_omni_moe_thinker": _QWEN3_OMNI,
    "qwen3_omni_moe_text": _QWEN3_OMNI,
    "qwen3_vl": _dense("Qwen3VLText"),
    "qwen3_vl_text": _dense("Qwen3VLText"),
    "qwen3_vl_moe": _QWEN3_VL_MOE,
    "qwen3_vl_moe_text": _QWEN3_VL_MOE,
    "seed_oss": _dense("SeedOss"),
    "solar_open": _family("SolarOpen"),
}


def model_types(model: Any) -> FrozenSet[str]:
    """Of the model's config and of those inside of it, as that of a text tower."""
    found, seen, waiting = set(), set(), [getattr(model, "config", None)]
    while waiting:
        config = waiting.pop()
        model_type = config.get("model_type") if isinstance(config, dict) else getattr(config, "model_type", None)
        if not isinstance(model_type, str) or id(config) in seen:
            continue
        seen.add(id(config))
        found.add(model_type)
        if not isinstance(config, dict):
            waiting.extend(getattr(config, "__dict__", {}).values())
    return frozenset(found)


def family_of(model: Any) -> Tuple[Optional[Family], str]:
    """Rows of all its model types, and what they are called; None where none is known."""
    types = model_types(model)
    if not types:
        return None, "this model has no config with a model_type"
    known = [FAMILIES[model_type] for model_type in sorted(types) if model_type in FAMILIES]
    named = " and ".join(f'"{model_type}"' for model_type in sorted(types))
    if not known:
        return None, f"model type {named} is not one this kernel knows"
    return _with(*known), named
