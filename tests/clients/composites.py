"""Tiny models of several towers, made by transformers' own classes, of which the program trains the one of text."""

import copy

import models
import torch
import transformers

TEXT = {**models.SMALL, **models.EXPERTS, "head_dim": 8}
MROPE = dict(rope_type="default", mrope_section=[2, 1, 1], mrope_interleaved=True)
EYES = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32, patch_size=4,
            num_position_embeddings=16, spatial_merge_size=2, temporal_patch_size=2)
EARS = dict(num_mel_bins=8, encoder_layers=1, d_model=16, encoder_attention_heads=2, encoder_ffn_dim=16, output_dim=32,
            max_source_positions=16, n_window=2, downsample_hidden_size=8)
MARKS = dict(image_token_id=91, video_token_id=92, vision_start_token_id=93, vision_end_token_id=94)
THINKER = dict(text_config=dict(TEXT, rope_scaling=MROPE), vision_config=dict(EYES, deepstack_visual_indexes=[0]),
               audio_config=EARS, image_token_id=91, video_token_id=92, audio_token_id=93, position_id_per_seconds=1,
               vision_start_token_id=94, audio_start_token_id=95)

# model_type: (its class, its config)
COMPOSITES = {
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", dict(
        MARKS, text_config=dict(TEXT, rope_scaling=MROPE), vision_config=dict(EYES, deepstack_visual_indexes=[0]))),
    "qwen3_omni_moe_thinker": ("Qwen3OmniMoeThinkerForConditionalGeneration", THINKER),
    "qwen3_omni_moe": ("Qwen3OmniMoeForConditionalGeneration", dict(thinker_config=THINKER, enable_audio_output=False)),
    "qwen3_5_moe": ("Qwen3_5MoeForConditionalGeneration", dict(
        MARKS, text_config={**TEXT, **models.DELTA}, vision_config=EYES)),
    "gemma4": ("Gemma4ForConditionalGeneration", dict(
        image_token_id=91, boi_token_id=92, eoi_token_id=93, video_token_id=94, audio_token_id=95, audio_config=None,
        text_config={**models.SMALL, **models.FAMILIES["gemma4_text"][1]},
        vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                           num_key_value_heads=2, head_dim=8, patch_size=4, pooling_kernel_size=2,
                           position_embedding_size=64, default_output_length=4))),
    "llama4": ("Llama4ForConditionalGeneration", dict(
        image_token_index=91, boi_token_index=92, eoi_token_index=93,
        text_config={**models.SMALL, **models.FAMILIES["llama4_text"][1]},
        vision_config=dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                           vision_output_dim=16, image_size=8, patch_size=4, projector_input_dim=16,
                           projector_output_dim=16))),
}
OTHER_TOWERS = ("visual", "vision", "audio", "projector")
KNOWN = [name for name in COMPOSITES if name in transformers.CONFIG_MAPPING]


def class_of(name):
    return getattr(transformers, COMPOSITES[name][0])


def make(name):
    config = transformers.AutoConfig.for_model(name, **copy.deepcopy(COMPOSITES[name][1]))
    made = class_of(name)._from_config(config, attn_implementation="eager").float()
    models.draw(made)
    return made.eval()


def load(name, folder):
    model, keys = class_of(name).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32,
                                                 output_loading_info=True)
    return model.eval(), {kind: sorted(map(str, keys.get(kind) or ())) for kind in models.COMPLAINTS}


def of_text(model):
    """The part that predicts text."""
    return getattr(model, "thinker", model)
