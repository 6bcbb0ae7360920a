"""What the program writes is opened by from_pretrained, no key missing or left over, and computes the same there."""

import json
import shutil

import models
import program
import pytest
from conftest import VERSION

TRAIN = ("--steps", 1, "--seq-len", 16, "--global-batch", 2, "--eval-every", 0, "--warmup", 0, "--lr", "1e-3")
FLAGS = {"--layers": 2, "--hidden": 32, "--inter": 24, "--dense-inter": 40, "--vocab": models.VOCAB, "--heads": 4,
         "--kv-heads": 2, "--head-dim": 8, "--experts": 4, "--top-k": 2, "--init-std": 0.2}
SHAPES = {
    "moe": {},
    "tied": {"--tie-embeddings": "true"},
    "no-norm": {"--norm-topk": "false"},
    "dense-layers": {"--dense-layers": 0},
    "theta": {"--rope-theta": 500},
    "no-aux": {"--aux-loss-coef": 0},
    "dense": {"--experts": 0, "--top-k": 1},
}
STACKS = ("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_moe-dense-layer", "olmoe", "flex_olmo", "deepseek_v2",
          "deepseek_v3", "dots1", "glm4_moe", "hunyuan_v1_moe", "lfm2_moe", "minimax_m2", "qwen3_next",
          "qwen3_5_moe_text", "glm4_moe_lite", "mellum", "axk1", "laguna", "afmoe", "exaone_moe",
          "solar_open", "hy_v3", "mimo_v2_flash", "cohere2_moe")
SHARDED = ("llama", "gemma3_text", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "granitemoe", "qwen3_next",
           "gemma4_text", "laguna", "mimo_v2_flash")


def check_keys(folder):
    model, keys = models.load(folder)
    assert not any(keys.values()), keys
    return model


def check_numbers(folder, model, tmp_path, tolerance=2e-5):
    wanted = models.logprobs(model, models.IDS)
    program.close(program.logprobs(folder, models.IDS, tmp_path), wanted, tolerance)


def check_loss_and_generate(folder, model):
    """Both as a user calls them, with what the config says."""
    scores = models.logprobs(model, models.IDS)
    loss = models.loss_with_labels(model, models.IDS)
    if not getattr(model.config, "output_router_logits", False):
        program.close([loss], [-sum(scores) / len(scores)], 1e-4)
    assert 0 < loss < 100
    assert models.greedy(model, models.IDS, 6) == program.greedy(folder, models.IDS, 6)


@pytest.fixture(scope="module")
def trained(saved, tmp_path_factory):
    """trained(name of a family, or of a shape from flags) -> (export, newest checkpoint)"""
    made = {}

    def export_and_checkpoint(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("trained")
            data = program.write_ids(folder / "ids.u32", [i * 7 % 90 for i in range(2000)])
            start = {**FLAGS, **SHAPES[name]} if name in SHAPES else {"--model": saved(name)[0]}
            program.run("train", *(word for option in start.items() for word in option), *TRAIN, "--data", data,
                        "--run", folder / "run", "--export", folder / "export")
            made[name] = folder / "export", next((folder / "run").glob("checkpoint-*"))
        return made[name]

    return export_and_checkpoint


@pytest.mark.parametrize("name", models.known())
def test_export_of_train(trained, tmp_path, name):
    folder, _ = trained(name)
    model = check_keys(folder)
    check_numbers(folder, model, tmp_path)
    check_loss_and_generate(folder, model)


@pytest.mark.parametrize("name", models.known())
def test_checkpoint_is_a_folder_of_transformers(trained, tmp_path, name):
    export, checkpoint = trained(name)
    model = check_keys(checkpoint)
    check_numbers(export, model, tmp_path)


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_from_flags(trained, tmp_path, shape):
    folder, _ = trained(shape)
    check_numbers(folder, check_keys(folder), tmp_path)


@pytest.mark.parametrize("shape", SHAPES)
def test_shape_from_flags_in_use(trained, shape):
    folder, _ = trained(shape)
    check_loss_and_generate(folder, check_keys(folder))


# transformers 4 has no stacked experts.
@pytest.mark.parametrize("layout", ("list", "stacked") if VERSION == "v5" else ("list",))
@pytest.mark.parametrize("name", models.known(STACKS))
def test_layout_of_convert(saved, tmp_path, name, layout):
    source, model = saved(name)
    program.run("convert", source, tmp_path / "to", "--layout", layout)
    wanted = models.logprobs(model, models.IDS)
    program.close(program.logprobs(tmp_path / "to", models.IDS, tmp_path), wanted, 2e-5)
    program.close(models.logprobs(check_keys(tmp_path / "to"), models.IDS), wanted, 2e-5)


@pytest.mark.parametrize("name", models.known(SHARDED))
def test_bf16_in_shards(saved, tmp_path, name):
    source, model = saved(name)
    program.run("convert", source, tmp_path / "to", "--export-dtype", "bf16", "--shard-size", "20KB")
    assert len(list((tmp_path / "to").glob("*.safetensors"))) > 1
    loaded = check_keys(tmp_path / "to")
    check_numbers(tmp_path / "to", loaded, tmp_path)
    state = loaded.state_dict()
    for key, value in model.state_dict().items():
        assert (state[key] - value).abs().max() <= value.abs().max() / 256, key


@pytest.mark.parametrize("name", ("llama", "qwen3"))
def test_experts_from_a_dense_model(saved, tmp_path, name):
    source, _ = saved(name)
    program.run("convert", source, tmp_path / "to", "--experts", 4, "--top-k", 2, "--noise", "0.1", "--seed", 3)
    check_numbers(tmp_path / "to", check_keys(tmp_path / "to"), tmp_path)


@pytest.mark.parametrize("name", ("llama", "qwen3"))
def test_experts_from_a_dense_model_in_use(saved, tmp_path, name):
    source, _ = saved(name)
    program.run("convert", source, tmp_path / "to", "--experts", 4, "--top-k", 2, "--seed", 3)
    check_loss_and_generate(tmp_path / "to", check_keys(tmp_path / "to"))


@pytest.mark.parametrize("name", models.known(("llama", "mixtral", "deepseek_v3", "gpt_oss", "qwen3_next",
                                               "gemma4_text", "laguna", "mimo_v2_flash", "hy_v3")))
def test_config_keeps_every_key(saved, tmp_path, name):
    source, _ = saved(name)
    program.run("convert", source, tmp_path / "to", "--export-dtype", "fp32")
    before, after = (json.loads((f / "config.json").read_text()) for f in (source, tmp_path / "to"))
    by_layer = before.pop("per_layer_config", None)  # which 5.5 does not know; full layers are all alike
    if by_layer:
        assert after["global_head_dim"] == next(iter(by_layer.values()))["head_dim"]
    assert {key: after[key] for key in before} == before
    # Each version of transformers has its own names for these.
    assert set(after) - set(before) <= {"rope_theta", "rope_scaling", "rope_parameters", "num_experts",
                                        "global_head_dim", "num_global_key_value_heads"}


# Each version reads what it calls rope itself; what the other calls so it gives its own default.
ROPES = {"v4": ("llama", dict(rope_parameters=dict(rope_type="default", rope_theta=500.0))),
         "v5": ("gpt_oss", dict(rope_theta=500.0, rope_scaling=None))}


def test_rope_is_read_by_both_versions(saved, tmp_path):
    """A folder that says rope as the other version of transformers does, after `convert`."""
    name, rope = ROPES[VERSION]
    source, _ = saved(name)
    folder = shutil.copytree(source, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    for key in ("rope_theta", "rope_scaling", "rope_parameters"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps({**config, **rope}))
    program.run("convert", folder, tmp_path / "to", "--export-dtype", "fp32")
    check_numbers(tmp_path / "to", check_keys(tmp_path / "to"), tmp_path)
