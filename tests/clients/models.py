"""Tiny models of every family, made by transformers' own classes from a config, and what they compute there."""

import copy

import torch
import transformers

VOCAB = 96
COMPLAINTS = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")  # of from_pretrained
IDS = [5, 17, 3, 88, 42, 9, 61, 30, 74, 12, 50, 27]

# Shapes that most configs spell the same way. Heads of 8, so that every rotary share is even.
SMALL = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.1, attention_dropout=0.0,
             bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
LOCAL = dict(num_local_experts=4, num_experts_per_tok=2)
ROUTED = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, n_shared_experts=1, n_group=2,
              topk_group=1, first_k_dense_replace=1)
LATENT = dict(kv_lora_rank=16, q_lora_rank=12, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
              num_key_value_heads=4)
LATENT_YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32, beta_slow=1,
                   mscale=0.707, mscale_all_dim=0.707)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
             layer_types=["linear_attention", "full_attention"], shared_expert_intermediate_size=24, head_dim=8)
KINDS = dict(head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"])
KINDS_FULL_FIRST = dict(KINDS, layer_types=["full_attention", "sliding_attention"])
DENSE_FIRST = dict(mlp_layer_types=["dense", "sparse"])
GROUPS = dict(num_experts_per_tok=2, moe_intermediate_size=24, n_routed_experts=4, n_group=2, topk_group=1,
              routed_scaling_factor=1.3)
GROUPS_SHARED = dict(GROUPS, n_shared_experts=1)
SHARED = dict(EXPERTS, num_shared_experts=1)
TIED_BIASES = dict(tie_word_embeddings=True, attention_bias=True)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
GEMMA4 = dict(KINDS, num_experts=4, top_k_experts=2, moe_intermediate_size=24, enable_moe_block=True,
              global_head_dim=16, tie_word_embeddings=True, pad_token_id=5)


def rope_by_kind(full, sliding):
    """transformers 5: an object for each kind of layer."""
    return dict(rope_parameters=dict(
        full_attention=dict(dict(rope_type="default", rope_theta=500000.0), **full),
        sliding_attention=dict(dict(rope_type="default", rope_theta=10000.0), **sliding)))


# name: (model_type, what differs from SMALL)
FAMILIES = {
    "llama": ("llama", {}),
    "llama-tied-biases": ("llama", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    "llama-llama3": ("llama", dict(rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0,
                                                     high_freq_factor=4.0, original_max_position_embeddings=16))),
    "llama-yarn": ("llama", dict(rope_scaling=dict(rope_type="yarn", factor=4.0,
                                                   original_max_position_embeddings=16))),
    "llama-linear": ("llama", dict(rope_scaling=dict(rope_type="linear", factor=4.0))),
    "qwen3": ("qwen3", dict(head_dim=8)),
    "qwen3-window": ("qwen3", dict(head_dim=8, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "phi3": ("phi3", {}),
    "phi3-longrope": ("phi3", dict(max_position_embeddings=256, original_max_position_embeddings=64, rope_scaling=dict(
        type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.0, 2.0, 3.0, 4.0]))),
    "glm4": ("glm4", dict(head_dim=8, partial_rotary_factor=0.5)),
    "gemma3_text": ("gemma3_text", dict(head_dim=8, sliding_window=4, query_pre_attn_scalar=8,
                                        layer_types=["sliding_attention", "full_attention"])),
    "mixtral": ("mixtral", LOCAL),
    "mixtral-window": ("mixtral", dict(LOCAL, sliding_window=4)),
    "qwen2_moe": ("qwen2_moe", dict(EXPERTS, shared_expert_intermediate_size=32, use_sliding_window=False)),
    "qwen3_moe": ("qwen3_moe", dict(EXPERTS, head_dim=8, norm_topk_prob=True)),
    "qwen3_moe-dense-layer": ("qwen3_moe", dict(EXPERTS, head_dim=8, mlp_only_layers=[0], norm_topk_prob=False)),
    "olmoe": ("olmoe", dict(num_experts=4, num_experts_per_tok=2)),
    "flex_olmo": ("flex_olmo", dict(num_experts=4, num_experts_per_tok=2)),
    "phimoe": ("phimoe", dict(LOCAL, attention_bias=True, lm_head_bias=True)),
    "granitemoe": ("granitemoe", dict(LOCAL, embedding_multiplier=2.0, logits_scaling=2.0, residual_multiplier=0.5,
                                      attention_multiplier=0.25)),
    "ernie4_5_moe": ("ernie4_5_moe", dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=24,
                                          moe_num_shared_experts=1, moe_layer_start_index=1)),
    "ernie4_5_moe-biases": ("ernie4_5_moe", dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=24, use_bias=True,
                                                 moe_num_shared_experts=1, moe_layer_start_index=1)),
    "deepseek_v2": ("deepseek_v2", dict(ROUTED, **LATENT, topk_method="group_limited_greedy")),
    "deepseek_v3": ("deepseek_v3", dict(ROUTED, **LATENT)),
    "deepseek_v2-yarn": ("deepseek_v2", dict(ROUTED, **LATENT, rope_scaling=LATENT_YARN)),
    "deepseek_v3-yarn": ("deepseek_v3", dict(ROUTED, **LATENT, rope_scaling=LATENT_YARN)),
    "dots1": ("dots1", dict(ROUTED, head_dim=8)),
    "glm4_moe": ("glm4_moe", dict(ROUTED, head_dim=8, use_qk_norm=True, partial_rotary_factor=0.5)),
    "gpt_oss": ("gpt_oss", dict(LOCAL, head_dim=8, sliding_window=4,
                                layer_types=["sliding_attention", "full_attention"])),
    "gpt_oss-yarn": ("gpt_oss", dict(LOCAL, head_dim=8, sliding_window=4, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
        truncate=False), layer_types=["sliding_attention", "full_attention"])),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", dict(num_experts=4, moe_topk=2, head_dim=8)),
    "llama4_text": ("llama4_text", dict(LOCAL, num_experts_per_tok=1, head_dim=8, intermediate_size_mlp=40,
                                        attention_chunk_size=8, interleave_moe_layer_step=1)),
    "lfm2_moe": ("lfm2_moe", dict(EXPERTS, layer_types=["conv", "full_attention"], num_dense_layers=1)),
    "minimax_m2": ("minimax_m2", dict(LOCAL, head_dim=8, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "minimax_m2-rotary_dim": ("minimax_m2", dict(LOCAL, head_dim=8, rotary_dim=4)),
    "qwen3_next": ("qwen3_next", dict(EXPERTS, **DELTA)),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", dict(EXPERTS, **DELTA)),
    "qwen3_5_moe_text-tied-biases": ("qwen3_5_moe_text", dict(
        EXPERTS | dict(DELTA, linear_num_value_heads=2, linear_conv_kernel_dim=3) | TIED_BIASES, pad_token_id=5,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "gemma4_text": ("gemma4_text", dict(GEMMA4, hidden_size_per_layer_input=0, attention_k_eq_v=True,
                                        num_global_key_value_heads=1, final_logit_softcapping=4.0)),
    "gemma4_text-per-layer": ("gemma4_text", dict(
        GEMMA4, num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2,
        use_double_wide_mlp=True, hidden_size_per_layer_input=6, vocab_size_per_layer_input=VOCAB,
        tie_word_embeddings=False)),
    "minimax_m2-tied": ("minimax_m2", dict(LOCAL, head_dim=8, tie_word_embeddings=True, rms_norm_eps=1e-3,
                                           pad_token_id=5)),
    "hunyuan_v1_moe-alpha": ("hunyuan_v1_moe", dict(
        TIED_BIASES, num_experts=4, moe_topk=[2, 3], head_dim=8,
        rope_scaling=dict(type="dynamic", rope_type="dynamic", alpha=1000.0, factor=1.0))),
    "glm4_moe_lite": ("glm4_moe_lite", dict(GROUPS_SHARED | LATENT | DENSE_FIRST)),
    "glm4_moe_lite-halves": ("glm4_moe_lite", dict(
        GROUPS_SHARED | dict(LATENT, q_lora_rank=None) | TIED_BIASES, rope_interleave=False, norm_topk_prob=False,
        mlp_layer_types=["sparse", "dense"], rope_parameters=dict(LATENT_YARN, rope_theta=10000.0))),
    "mellum": ("mellum", dict(LOCAL | KINDS_FULL_FIRST | DENSE_FIRST, moe_intermediate_size=24,
                              **rope_by_kind(YARN, {}))),
    "mellum-tied-biases": ("mellum", dict(LOCAL | KINDS | TIED_BIASES, moe_intermediate_size=24,
                                          norm_topk_prob=False)),
    "granitemoe_swa": ("granitemoe_swa", dict(
        LOCAL | KINDS_FULL_FIRST, layer_rope_theta=[0, 10000.0], shared_intermediate_size=24, attention_multiplier=0.25,
        embedding_multiplier=2.0, logits_scaling=2.0, residual_multiplier=0.5)),
    "granitemoe_swa-tied-biases": ("granitemoe_swa", dict(LOCAL | KINDS | TIED_BIASES)),
    "axk1": ("axk1", dict(ROUTED | LATENT, rope_parameters=dict(LATENT_YARN, rope_theta=10000.0))),
    "axk1-halves": ("axk1", dict(ROUTED | LATENT | TIED_BIASES, rope_interleave=False)),
    "laguna": ("laguna", dict(EXPERTS | KINDS_FULL_FIRST | DENSE_FIRST, num_attention_heads_per_layer=[4, 2],
                              shared_expert_intermediate_size=24, moe_routed_scaling_factor=1.5,
                              **rope_by_kind(dict(YARN, partial_rotary_factor=0.5), {}))),
    "laguna-elements": ("laguna", dict(
        EXPERTS | KINDS | TIED_BIASES, gating="per-element", moe_router_logit_softcapping=1.0,
        mlp_layer_types=["sparse", "sparse"], shared_expert_intermediate_size=16)),
    "afmoe": ("afmoe", dict(SHARED | KINDS, num_dense_layers=1, mup_enabled=True, route_scale=1.7)),
    "afmoe-tied-biases": ("afmoe", dict(SHARED | KINDS | TIED_BIASES, num_dense_layers=0)),
    "exaone_moe": ("exaone_moe", dict(SHARED | KINDS | DENSE_FIRST, routed_scaling_factor=2.5)),
    "exaone_moe-groups": ("exaone_moe", dict(
        SHARED | KINDS_FULL_FIRST, mlp_layer_types=["sparse", "sparse"], n_group=2, topk_group=1,
        norm_topk_prob=False, tie_word_embeddings=True, pad_token_id=5)),
    "solar_open": ("solar_open", dict(GROUPS_SHARED, head_dim=8, n_group=1,
                                      rope_parameters=dict(YARN, partial_rotary_factor=1.0))),
    "solar_open-groups": ("solar_open", dict(GROUPS_SHARED | TIED_BIASES, head_dim=8, norm_topk_prob=False)),
    "hy_v3": ("hy_v3", dict(SHARED | DENSE_FIRST, head_dim=8)),
    "hy_v3-tied-biases": ("hy_v3", dict(SHARED | DENSE_FIRST | TIED_BIASES, head_dim=8, mlp_bias=True)),
    "mimo_v2_flash": ("mimo_v2_flash", dict(GROUPS | KINDS_FULL_FIRST | DENSE_FIRST, n_group=1, head_dim=12,
                                            v_head_dim=8)),
    "mimo_v2_flash-groups": ("mimo_v2_flash", dict(
        GROUPS | KINDS | TIED_BIASES, mlp_layer_types=["sparse", "sparse"], v_head_dim=10, norm_topk_prob=False,
        attention_value_scale=None, num_key_value_heads=1, **rope_by_kind(*[dict(partial_rotary_factor=0.5)] * 2))),
    "cohere2_moe": ("cohere2_moe", dict(
        KINDS_FULL_FIRST | DENSE_FIRST, num_experts=4, num_experts_per_tok=2, intermediate_size=24,
        prefix_dense_intermediate_size=40, logit_scale=0.25, tie_word_embeddings=True)),
    "cohere2_moe-sigmoid": ("cohere2_moe", dict(
        KINDS, num_experts=4, num_experts_per_tok=2, intermediate_size=24, mlp_layer_types=["sparse", "sparse"],
        attention_bias=True, rms_norm_eps=1e-3, expert_selection_fn="sigmoid", num_shared_experts=2)),
}
# Families of transformers 5, which released 4.x does not have, but for hunyuan_v1_moe.
OF_FIVE = ("qwen3_5_moe_text", "gemma4_text", "minimax_m2", "hunyuan_v1_moe", "glm4_moe_lite", "mellum",
           "granitemoe_swa", "axk1", "laguna", "afmoe", "exaone_moe", "solar_open", "hy_v3", "mimo_v2_flash",
           "cohere2_moe")


def is_known(name):
    return FAMILIES[name][0] in transformers.CONFIG_MAPPING


def known(names=FAMILIES):
    """Those that this version of transformers has classes for."""
    return [name for name in names if is_known(name)]


def config(name, **changes):
    model_type, differs = FAMILIES[name]
    # A copy: transformers writes into the dictionaries that it is given.
    return transformers.AutoConfig.for_model(model_type, **copy.deepcopy({**SMALL, **differs, **changes}))


def make(name, seed=7, **changes):
    torch.manual_seed(seed)  # sinks begin with random numbers, to which draw() adds
    made = transformers.AutoModelForCausalLM.from_config(config(name, **changes), attn_implementation="eager").float()
    draw(made, seed)
    return made.eval()


def draw(made, seed=7):
    """Every weight, also those that begin as zeros or ones, so that each has a part in the result."""
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(made.named_parameters())
    tensors.update((key, value) for key, value in made.named_buffers() if "bias" in key or "scalar" in key)
    with torch.no_grad():
        for _, value in sorted(tensors.items()):
            noise = torch.randn(value.shape, generator=generator)
            value.copy_(value + 0.1 * noise if value.ndim == 1 else 0.2 * noise)


def load(folder, **options):
    """(the model, what from_pretrained says of its keys)"""
    model, keys = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True, **options)
    return model.eval(), {kind: sorted(map(str, keys.get(kind) or ())) for kind in COMPLAINTS}


def logprobs(model, ids):
    """log p of ids[1:], each after those before it."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    return torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


def greedy(model, ids, tokens):
    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                         max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return out[0, len(ids):].tolist()


def loss_with_labels(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), labels=torch.tensor([ids]), use_cache=False).loss.item()
