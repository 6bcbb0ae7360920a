"""Folders in FP8 as transformers 5 reads them: the program computes and writes the same numbers."""

import json
import shutil

import models
import program
import pytest
import torch
from conftest import VERSION
from safetensors.torch import load_file, save_file

pytestmark = pytest.mark.skipif(VERSION != "v5", reason="transformers 4 reads FP8 on a GPU alone")

FAMILIES = models.known(("llama", "mixtral", "qwen3_moe", "deepseek_v3", "glm4_moe", "minimax_m2", "qwen3_next"))
BLOCK = 8
SAID = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}


def is_quantized(name, tensor):
    """As released: projections, without the head, routers and what is no matrix."""
    return tensor.ndim == 2 and name.endswith((
        "_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight", "_proj_with_mqa.weight"))


def blocks(tensor):
    rows, cols = (size // BLOCK for size in tensor.shape)
    return tensor.reshape(rows, BLOCK, cols, BLOCK)


def quantized(tensor, power_of_two):
    """(numbers in FP8, scales), which transformers 5 takes in whole blocks alone."""
    scales = blocks(tensor).abs().amax((1, 3)) / 448
    if power_of_two:  # the product is then exact in bf16
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    return (blocks(tensor) / scales[:, None, :, None]).reshape(tensor.shape).to(torch.float8_e4m3fn), scales


def dequantized(numbers, scales):
    return (blocks(numbers.float()) * scales[:, None, :, None].float()).reshape(numbers.shape)


def write_fp8(source, target, power_of_two=True, scale_type=torch.float32):
    shutil.copytree(source, target)
    tensors = load_file(source / "model.safetensors")
    for name, tensor in list(tensors.items()):
        if is_quantized(name, tensor) and all(size % BLOCK == 0 for size in tensor.shape):
            numbers, scales = quantized(tensor, power_of_two)
            tensors[name], tensors[name + "_scale_inv"] = numbers, scales.to(scale_type)
    assert any(name.endswith("_scale_inv") for name in tensors)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "quantization_config": SAID}))
    return tensors


@pytest.mark.parametrize("name", FAMILIES)
def test_logprobs(saved, tmp_path, name):
    write_fp8(saved(name)[0], tmp_path / "fp8")
    model, complaints = models.load(tmp_path / "fp8")
    assert not any(complaints.values()), complaints
    program.close(program.logprobs(tmp_path / "fp8", models.IDS, tmp_path), models.logprobs(model, models.IDS), 2e-5)


@pytest.mark.parametrize("scale_type", [torch.float32, torch.bfloat16, torch.float8_e8m0fnu], ids=str)
def test_convert(saved, tmp_path, scale_type):
    """The product itself in fp32, and rounded once in bf16."""
    wanted = write_fp8(saved("qwen3_moe")[0], tmp_path / "fp8", scale_type == torch.float8_e8m0fnu, scale_type)
    for dtype in (torch.float32, torch.bfloat16):
        out = tmp_path / str(dtype)
        program.run("convert", tmp_path / "fp8", out, "--export-dtype", "bf16" if dtype == torch.bfloat16 else "fp32")
        assert "quantization_config" not in json.loads((out / "config.json").read_text())
        found = load_file(out / "model.safetensors")
        assert set(found) == {name for name in wanted if not name.endswith("_scale_inv")}
        for name, tensor in found.items():
            if name + "_scale_inv" in wanted:
                assert tensor.dtype == dtype
                assert torch.equal(tensor, dequantized(wanted[name], wanted[name + "_scale_inv"]).to(dtype)), name
    assert not any(models.load(out)[1].values())


def test_training(saved, tmp_path):
    write_fp8(saved("deepseek_v3")[0], tmp_path / "fp8")
    data = program.write_ids(tmp_path / "data.u32", models.IDS * 40)
    program.run("train", "--model", tmp_path / "fp8", "--data", data, "--run", tmp_path / "run",
                "--export", tmp_path / "out", "--export-dtype", "bf16", "--steps", 1, "--seq-len", 16,
                "--global-batch", 2, "--eval-every", 0, "--warmup", 0)
    model, complaints = models.load(tmp_path / "out")
    assert not any(complaints.values()), complaints
    assert getattr(model.config, "quantization_config", None) is None
    program.close(program.logprobs(tmp_path / "out", models.IDS, tmp_path), models.logprobs(model, models.IDS), 2e-5)
