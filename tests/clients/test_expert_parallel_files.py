"""Folders of Hugging Face's models that two ranks read, each its experts, and write whole."""

import json
import shutil

import pytest
import safetensors.torch
import torch

import models
import patched  # noqa: F401  (finds the package, or skips)
import program
from on_mesh import NAMES, made, shared

WIDE = dict(num_hidden_layers=4, num_experts=64, hidden_size=256, moe_intermediate_size=256, initializer_range=0.02)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Folders that transformers saves, and beside each the one that two ranks saved of what they read."""
    folder = tmp_path_factory.mktemp("files")
    for name in NAMES:
        made(name).save_pretrained(folder / name)
        (folder / name / "chat_template.jinja").write_text(name)
    (folder / "results.json").write_text(json.dumps(shared(2, "files", {"base": str(folder)})))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_read_and_saved(base, name):
    out, ids = base / f"{name}-out", models.IDS
    wanted, _ = models.load(base / name)
    got, complaints = models.load(out)
    assert not any(complaints.values()), complaints
    assert models.logprobs(got, ids) == models.logprobs(wanted, ids)
    before, after = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (base / name, out))
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) and tensor.dtype == after[key].dtype for key, tensor in before.items())
    assert sorted(file.name for file in out.iterdir()) == sorted(file.name for file in (base / name).iterdir())
    for file in ("config.json", "generation_config.json", "chat_template.jinja"):
        assert (out / file).read_text() == (base / name / file).read_text()
    held = json.loads((base / "results.json").read_text())
    assert set(held) == {"0", "1"} and all(name in rank for rank in held.values())


@pytest.mark.parametrize("name", [name for name in NAMES if name in models.FAMILIES])
def test_the_program_reads_what_ranks_saved(base, name, tmp_path):
    out, ids = base / f"{name}-out", models.IDS
    wanted, _ = models.load(base / name)
    program.close(program.logprobs(out, ids, tmp_path), models.logprobs(wanted, ids), 1e-5)
    assert program.run("inspect", "--model", out) == program.run("inspect", "--model", base / name).replace(
        str(base / name), str(out))


def test_a_rank_reads_and_holds_its_share(base):
    """Of 200 MB of experts: one hundred are read, and held at most with what is dense and a layer's share, of 25."""
    model = models.make("qwen3_moe", **WIDE)
    folder = base / "wide"
    model.save_pretrained(folder)
    results = shared(2, "measure", {"folder": str(folder), "out": str(base / "wide-out")})
    for found in results.values():
        assert 100 < found["own"] < 110
        assert found["load"]["read"] < found["own"] + 5, found
        assert found["load"]["held"] < found["own"] + 60, found
        assert found["save"]["held"] < 60, found
    got, complaints = models.load(base / "wide-out")
    assert not any(complaints.values())
    assert all(torch.equal(tensor, got.state_dict()[key]) for key, tensor in model.state_dict().items())


def test_folders_that_are_not_shared(base):
    models.make("llama").save_pretrained(base / "llama")
    models.make("qwen3_moe", num_experts=1, num_experts_per_tok=1).save_pretrained(base / "one-expert")
    for name in ("quantized", "cut"):
        shutil.copytree(base / "qwen3_moe", base / name)
    config = json.loads((base / "quantized" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [8, 8]}
    (base / "quantized" / "config.json").write_text(json.dumps(config))
    weights = (base / "cut" / "model.safetensors").read_bytes()
    (base / "cut" / "model.safetensors").write_bytes(weights[:-5000])
    for said in shared(2, "refusals", {"base": str(base)}).values():
        assert said["missing"].startswith("IoError") and "no config.json" in said["missing"]
        assert said["llama"] == "LlamaForCausalLM"
        assert "ep = 2 ranks cannot share num_experts = 1" in said["one-expert"]
        assert "is quantized" in said["quantized"] and "shard(model, mesh)" in said["quantized"]
        assert "cut short" in said["cut"]
