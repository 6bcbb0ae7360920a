"""Adapters both ways: what PEFT saves is added or merged, or refused by the key that is to blame; what train --lora
saves is loaded by PEFT without a key missing, and computes the same."""

import json
import warnings

import models
import program
import peft
import pytest
import torch
from conftest import VERSION

# The folder that transformers 5 makes of qwen3_moe is not read at all.
MIXERS = [name for name in models.known() if "-" not in name and (VERSION, name) != ("v5", "qwen3_moe")]
SPARSE = [name for name in MIXERS if "experts" in repr(models.config(name))]
ATTENTION = dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
# name: (families, LoraConfig, the key that may be refused, or None)
CONFIGS = {
    "leaf": (MIXERS, dict(target_modules=["q_proj", "o_proj", "out_proj"]), None),
    "rows-of-several": (("phi3",), dict(target_modules=["qkv_proj", "gate_up_proj"]), None),
    "latent": (("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "axk1"),
               dict(target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"]), None),
    **{f"delta-{module}": ((name,), dict(target_modules=[module]), None) for name, modules in {
        "qwen3_next": ("in_proj_qkvz", "in_proj_ba", "out_proj"),
        "qwen3_5_moe_text": ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")}.items()
       for module in modules if name in MIXERS},
    "gate-of-attention": (("laguna",), dict(target_modules=["g_proj"]), None),
    "shared": (("deepseek_v3", "qwen2_moe", "granitemoe_swa", "laguna", "afmoe", "hy_v3", "hunyuan_v1_moe"),
               dict(target_modules=r".*\.shared_\w+\.\w+_(proj|linear)"), None),
    "per-layer": (("gemma4_text-per-layer",), dict(target_modules=["per_layer_input_gate", "per_layer_projection"]),
                  None),
    "per-layer-all": (("gemma4_text-per-layer",), dict(target_modules=["per_layer_model_projection", "q_proj"]), None),
    "router-proj": (("gemma4_text",), dict(target_modules=["router.proj", "q_proj"]), None),
    "router-linear": (("hunyuan_v1_moe",), dict(target_modules=["q_proj", "wg"]), None),
    "router-parameter": (("axk1", "laguna", "hy_v3", "mimo_v2_flash", "afmoe"),
                         dict(target_modules=["o_proj"], target_parameters=["mlp.gate.weight", "router.gate.weight"]),
                         None),
    "dropout": (("llama",), dict(ATTENTION, lora_dropout=0.5), None),
    "pattern": (("llama", "mixtral"), dict(target_modules=r".*layers\.1\.self_attn\.(q|v)_proj"), None),
    "full-names": (("llama", "mixtral"), dict(target_modules=["model.layers.0.self_attn.q_proj"]), None),
    "all-linear": (("llama", "qwen3", "mixtral", "olmoe", "deepseek_v3"), dict(target_modules="all-linear"), None),
    "mlp": (("llama",), dict(target_modules=["gate_proj", "up_proj", "down_proj"]), None),
    "layers": (("llama",), dict(ATTENTION, layers_to_transform=[1]), None),
    "exclude": (("llama",), dict(target_modules="all-linear", exclude_modules=["k_proj", "up_proj"]), None),
    "rank-pattern": (("llama", "mixtral"), dict(ATTENTION, rank_pattern={"q_proj": 2, "layers.1.self_attn.o_proj": 3}),
                     None),
    "alpha-pattern": (("llama", "mixtral"), dict(ATTENTION, alpha_pattern={"v_proj": 3}), None),
    "rslora": (("llama", "mixtral"), dict(ATTENTION, use_rslora=True), None),
    "bias-all": (("llama-tied-biases",), dict(ATTENTION, bias="all"), "bias"),
    "bias-lora": (("llama-tied-biases",), dict(ATTENTION, bias="lora_only"), "bias"),
    "lora-bias": (("llama-tied-biases",), dict(ATTENTION, lora_bias=True), "lora_bias"),
    "dora": (("llama",), dict(ATTENTION, use_dora=True), "use_dora"),
    "save-head": (("llama",), dict(ATTENTION, modules_to_save=["lm_head"]), "modules_to_save"),
    "head": (("llama",), dict(target_modules=["q_proj", "lm_head"]), "lm_head"),
    "embedding": (("llama",), dict(target_modules=["q_proj", "embed_tokens"]), "embed_tokens"),
    "token-rows": (("llama",), dict(ATTENTION, trainable_token_indices={"embed_tokens": [3, 5]}),
                   "trainable_token_indices"),
    "token-rows-list": (("llama",), dict(ATTENTION, trainable_token_indices=[3, 5]), "trainable_token_indices"),
    "router": (("mixtral", "qwen2_moe"), dict(target_modules=["q_proj", "gate"]), None),
    **{f"init-{init}": (("llama",), dict(ATTENTION, init_lora_weights=init), None)
       for init in ("gaussian", "orthogonal")},
    **{f"init-{init}": (("llama",), dict(ATTENTION, init_lora_weights=init), "init_lora_weights")
       for init in ("pissa", "olora")},
}
PARAMETERS = dict(target_modules=["q_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"])
if VERSION == "v5":
    CONFIGS["experts"] = (("mixtral", "olmoe", "deepseek_v3", "gpt_oss", *models.OF_FIVE), PARAMETERS, None)
    CONFIGS["experts-rank-pattern"] = (("mixtral",), dict(PARAMETERS, rank_pattern={"experts.down_proj": 2}), None)
else:
    CONFIGS["some-experts"] = (("mixtral",), dict(target_modules=r".*\.experts\.[12]\.w[123]"), None)
    CONFIGS["experts"] = (("gpt_oss",), PARAMETERS, None)
    CONFIGS["experts-granite"] = (("granitemoe",), dict(target_modules=["q_proj"], target_parameters=[
        "input_linear.weight", "output_linear.weight"]), None)
CONFIGS["experts-first"] = (("llama4_text",), PARAMETERS, None)
STACKED = ("gpt_oss", "llama4_text", "gemma4_text", "granitemoe_swa")  # in any file
FROM_PEFT = [(name, kind, fused) for kind, (names, _, _) in CONFIGS.items() for name in models.known(names)
             for fused in ([False, True] if VERSION == "v5" and kind.startswith("experts") and
                           name not in STACKED else [False])]

# name: (families, train --lora)
OURS = {
    "attention": (MIXERS, "r=4,alpha=8,targets=attention"),
    "mlp": (("llama", "phi3", "deepseek_v3"), "r=4,alpha=8,targets=attention,mlp"),
    "experts": (SPARSE, "r=4,alpha=8,targets=experts"),
    "shared": (("deepseek_v3", "qwen2_moe", "granitemoe_swa", "laguna", "qwen3_5_moe_text"),
               "r=4,alpha=8,targets=shared"),
    "router": (("mixtral", "deepseek_v3", "qwen2_moe"), "r=4,alpha=8,targets=attention,router"),
    "all": (("llama", "qwen3", "gemma4_text-per-layer", *models.OF_FIVE), "r=4,alpha=8,targets=all"),
    "per-layer": (("gemma4_text-per-layer",), "r=4,alpha=8,targets=per_layer"),
    "gate-of-attention": (("afmoe",), "r=4,alpha=8,targets=*.self_attn.gate_proj"),
    "modules": (("llama", "mixtral"), "r=4,alpha=8,targets=*.q_proj"),
    "rslora": (("llama",), "r=4,alpha=8,targets=attention,rslora=true"),
}
TO_PEFT = [(name, kind) for kind, (names, _) in OURS.items() for name in models.known(names)]


def made_by_peft(saved, tmp_path, name, kind, fused):
    """(folder, adapter, log p of both), with weights of the adapter that are none of its beginning."""
    folder, _ = saved(name, fused)
    base, _ = models.load(folder)
    torch.manual_seed(3)
    given = peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **CONFIGS[kind][1])
    model = peft.get_peft_model(base, given)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, value in sorted((n, p) for n, p in model.named_parameters() if p.requires_grad):
            value.add_(0.1 * torch.randn(value.shape, generator=generator))
    model.eval().save_pretrained(tmp_path / "adapter")
    return folder, tmp_path / "adapter", models.logprobs(model, models.IDS)


def same_or_refused(wanted, key, compute):
    try:
        got = compute()
    except program.Refused as error:
        # The paths of this test have the key in them.
        words = " ".join(word for line in str(error).splitlines()[1:] for word in line.split() if "/test_" not in word)
        assert key is not None and key in words, error
        return
    program.close(got, wanted, 2e-5)


every_adapter = pytest.mark.parametrize("name,kind,fused", FROM_PEFT,
                                        ids=[f"{k}-{n}{'-fused' if f else ''}" for n, k, f in FROM_PEFT])


@every_adapter
def test_of_peft_is_added(saved, tmp_path, name, kind, fused):
    folder, adapter, wanted = made_by_peft(saved, tmp_path, name, kind, fused)
    same_or_refused(wanted, CONFIGS[kind][2],
                    lambda: program.logprobs(folder, models.IDS, tmp_path, "--adapter", adapter))


@every_adapter
def test_of_peft_is_merged(saved, tmp_path, name, kind, fused):
    folder, adapter, wanted = made_by_peft(saved, tmp_path, name, kind, fused)

    def merged():
        program.run("convert", folder, tmp_path / "merged", "--merge", adapter, "--export-dtype", "fp32")
        return program.logprobs(tmp_path / "merged", models.IDS, tmp_path)

    same_or_refused(wanted, CONFIGS[kind][2], merged)


@pytest.mark.parametrize("name,kind", TO_PEFT, ids=[f"{k}-{n}" for n, k in TO_PEFT])
def test_of_ours_is_loaded(saved, tmp_path, name, kind):
    folder, model = saved(name)
    data = program.write_ids(tmp_path / "data.u32", [i * 7 % 90 for i in range(2000)])
    adapter = tmp_path / "adapter"
    program.run("train", "--model", folder, "--lora", OURS[kind][1], "--data", data, "--steps", 3, "--lr", "0.02",
                "--seq-len", 16, "--global-batch", 2, "--eval-every", 0, "--warmup", 0, "--sample-chars", 0,
                "--run", tmp_path / "run", "--export", adapter)
    wanted = program.logprobs(folder, models.IDS, tmp_path, "--adapter", adapter)
    assert max(abs(a - b) for a, b in zip(wanted, models.logprobs(model, models.IDS))) > 1e-3, "nothing was learned"
    base, _ = models.load(folder)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loaded = peft.PeftModel.from_pretrained(base, adapter).eval()
    program.close(models.logprobs(loaded, models.IDS), wanted, 2e-5)
    assert not [str(w.message) for w in said if "key" in str(w.message).lower()]
    assert json.loads((adapter / "adapter_config.json").read_text())["r"] == 4
