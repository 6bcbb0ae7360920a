"""Folders as the hub has them, made of a tiny model that transformers saved: an outer model's config and names, stacked
experts, older keys, and stand-ins of what no text needs: a vision tower, the heads that predict further tokens."""

import json

import models
import safetensors.torch
import torch


def _text(config):
    """What is said of the text inside of an outer config."""
    return {key: value for key, value in config.items() if key not in ("architectures", "transformers_version")}


def _qwen3_5_moe(config):
    return dict(
        architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", tie_word_embeddings=False,
        image_token_id=91, video_token_id=92, vision_start_token_id=93, vision_end_token_id=94,
        text_config=dict(_text(config), attn_output_gate=True, full_attention_interval=4, mamba_ssm_dtype="float32",
                         mtp_num_hidden_layers=1),
        vision_config=dict(model_type="qwen3_5_moe", depth=1, hidden_size=8, num_heads=2, intermediate_size=8,
                           out_hidden_size=32))


def _gemma4(config):
    text = _text(config)
    del text["per_layer_config"]
    return dict(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", tie_word_embeddings=True,
                text_config=dict(text, global_head_dim=16, num_global_key_value_heads=1), vision_config=None,
                audio_config=None)


def _minimax_m2(config):
    rope = config.pop("rope_parameters")
    return dict(config, rope_theta=rope["rope_theta"],
                rotary_dim=int(config["head_dim"] * rope["partial_rotary_factor"]), use_qk_norm=True,
                qk_norm_type="per_layer", scoring_func="sigmoid", use_routing_bias=True, shared_intermediate_size=0,
                use_mtp=True, num_mtp_modules=3, mtp_transformer_layers=1)


# model_type: (the tiny model, its config's new form, whether an outer model is around it, stand-ins)
RELEASED = {
    "qwen3_5_moe": ("qwen3_5_moe_text", _qwen3_5_moe, True,
                    {"model.visual.merger.norm.weight": (8,), "mtp.fc.weight": (32, 64), "mtp.norm.weight": (32,),
                     "mtp.layers.0.mlp.experts.0.up_proj.weight": (24, 32)}),
    "gemma4": ("gemma4_text", _gemma4, True, {"model.embed_vision.embedding_projection.weight": (32, 8),
                                              "model.vision_tower.patch_embedder.input_proj.weight": (8, 12)}),
    "minimax_m2": ("minimax_m2", _minimax_m2, False, {}),
}
KNOWN = [name for name, (of, *_) in RELEASED.items() if models.is_known(of)]


def stand_ins(name):
    generator = torch.Generator().manual_seed(13)
    return {key: torch.randn(shape, generator=generator) for key, shape in RELEASED[name][3].items()}


def release(name, source, folder):
    """source: what transformers saves of the tiny model, its experts stacked where an outer model is around it."""
    _, form, is_inner, _ = RELEASED[name]
    folder.mkdir()
    config = form(json.loads((source / "config.json").read_text()))
    (folder / "config.json").write_text(json.dumps(config))
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    if is_inner:
        tensors = {key.replace("model.", "model.language_model.", 1): value for key, value in tensors.items()}
    tensors.update(stand_ins(name))
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    return folder
