"""Folders in the hub's form: read as the tiny model they were made of, and written as from_pretrained reads them."""

import models
import program
import pytest
import released
import safetensors.torch

every_name = pytest.mark.parametrize("name", released.KNOWN)


@pytest.fixture(scope="module")
def hub(saved, tmp_path_factory):
    """hub(name) -> (folder, the tiny model)"""
    made = {}

    def folder_and_model(name):
        if name not in made:
            of, _, is_inner, _ = released.RELEASED[name]
            source, model = saved(of, fused=is_inner)
            made[name] = released.release(name, source, tmp_path_factory.mktemp("hub") / name), model
        return made[name]

    return folder_and_model


@every_name
def test_from_pretrained_reads_it(hub, name):
    """What the other tests build on. 5.15.0 overlooks minimax_m2's rotary_dim, so its numbers are others."""
    folder, model = hub(name)
    loaded, complaints = models.load(folder)
    assert not any(complaints[kind] for kind in complaints if kind != "unexpected_keys"), complaints
    if name != "minimax_m2":
        program.close(models.logprobs(loaded, models.IDS), models.logprobs(model, models.IDS), 1e-6)


@every_name
def test_inspect_reads_it(hub, name):
    assert name in program.run("inspect", "--model", hub(name)[0])


@every_name
def test_log_probabilities_are_the_same(hub, tmp_path, name):
    folder, model = hub(name)
    program.close(program.logprobs(folder, models.IDS, tmp_path), models.logprobs(model, models.IDS), 2e-5)


@every_name
def test_greedy_tokens_are_the_same(hub, name):
    folder, model = hub(name)
    assert program.greedy(folder, models.IDS, 6) == models.greedy(model, models.IDS, 6)


def check(name, folder, tmp_path):
    """from_pretrained reads it, and what is no text lies there as it was."""
    loaded, complaints = models.load(folder)
    assert not any(complaints[kind] for kind in complaints if kind != "unexpected_keys"), complaints
    wanted = models.logprobs(loaded, models.IDS)
    program.close(program.logprobs(folder, models.IDS, tmp_path), wanted, 2e-5)
    tensors = {key: value for file in folder.glob("*.safetensors")
               for key, value in safetensors.torch.load_file(file).items()}
    for key, value in released.stand_ins(name).items():
        assert tensors[key].equal(value), key
    return tensors


@every_name
def test_convert_keeps_names_and_numbers(hub, tmp_path, name):
    folder, _ = hub(name)
    program.run("convert", folder, tmp_path / "to", "--export-dtype", "fp32")
    before = safetensors.torch.load_file(folder / "model.safetensors")
    after = check(name, tmp_path / "to", tmp_path)
    assert {key: value.tolist() for key, value in after.items()} == {key: value.tolist()
                                                                     for key, value in before.items()}


@every_name
def test_export_of_train(hub, tmp_path, name):
    folder, _ = hub(name)
    data = program.write_ids(tmp_path / "data.u32", [i * 7 % 90 for i in range(2000)])
    program.run("train", "--model", folder, "--data", data, "--steps", 1, "--seq-len", 16, "--global-batch", 2,
                "--eval-every", 0, "--warmup", 0, "--lr", "1e-3", "--run", tmp_path / "run", "--sample-chars", 0,
                "--export", tmp_path / "export")
    check(name, tmp_path / "export", tmp_path)
