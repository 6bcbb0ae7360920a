"""A model of several towers: its text is what HF's class computes, and the other towers come back as they were."""

import composites
import models
import program
import pytest
from conftest import VERSION

CASES = [(name, fused) for name in composites.KNOWN for fused in ((False, True) if VERSION == "v5" else (False,))]
every_case = pytest.mark.parametrize("name,fused", CASES, ids=[f"{n}-{'fused' if f else 'default'}" for n, f in CASES])


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """towers(name, fused) -> (folder, model)"""
    made = {}

    def folder_and_model(name, fused=False):
        if (name, fused) not in made:
            model, folder = composites.make(name), tmp_path_factory.mktemp(name)
            model.save_pretrained(folder, **(dict(save_original_format=False) if fused else {}))
            made[name, fused] = folder, model
        return made[name, fused]

    return folder_and_model


@every_case
def test_inspect_reads_it(towers, name, fused):
    out = program.run("inspect", "--model", towers(name, fused)[0])
    assert name in out and "not read" not in out, out


@every_case
def test_log_probabilities_are_the_same(towers, tmp_path, name, fused):
    folder, model = towers(name, fused)
    wanted = models.logprobs(composites.of_text(model), models.IDS)
    program.close(program.logprobs(folder, models.IDS, tmp_path), wanted, 2e-5)


@every_case
def test_greedy_tokens_are_the_same(towers, name, fused):
    folder, model = towers(name, fused)
    assert program.greedy(folder, models.IDS, 6) == models.greedy(composites.of_text(model), models.IDS, 6)


@every_case
def test_export_of_train(towers, tmp_path, name, fused):
    folder, model = towers(name, fused)
    data = program.write_ids(tmp_path / "data.u32", [i * 7 % 90 for i in range(2000)])
    program.run("train", "--model", folder, "--data", data, "--steps", 1, "--seq-len", 16, "--global-batch", 2,
                "--eval-every", 0, "--warmup", 0, "--lr", "1e-3", "--run", tmp_path / "run", "--sample-chars", 0,
                "--export", tmp_path / "export")
    again, keys = composites.load(name, tmp_path / "export")
    assert not any(keys.values()), keys
    wanted = models.logprobs(composites.of_text(again), models.IDS)
    program.close(program.logprobs(tmp_path / "export", models.IDS, tmp_path), wanted, 2e-5)
    state, trained = again.state_dict(), 0
    for key, value in model.state_dict().items():
        if any(tower in key for tower in composites.OTHER_TOWERS):
            assert state[key].equal(value), key
        else:
            trained += not state[key].equal(value)
    assert trained > 10, "training changed nothing"
