"""A model that HF's class saves is read, and computes what HF's class computes."""

import json
import shutil

import models
import program
import pytest
from conftest import VERSION

CASES = [(name, False) for name in models.known()]
# transformers 5 keeps experts stacked in memory and can save them so.
CASES += [(name, True) for name in models.known() if VERSION == "v5" and "experts" in repr(models.config(name))]
every_case = pytest.mark.parametrize("name,fused", CASES, ids=[f"{n}-{'fused' if f else 'default'}" for n, f in CASES])


@every_case
def test_inspect_reads_it(saved, name, fused):
    folder, model = saved(name, fused)
    out = program.run("inspect", "--model", folder)
    assert models.FAMILIES[name][0] in out and "not read" not in out, out


@every_case
def test_log_probabilities_are_the_same(saved, tmp_path, name, fused):
    folder, model = saved(name, fused)
    program.close(program.logprobs(folder, models.IDS, tmp_path), models.logprobs(model, models.IDS), 2e-5)


@every_case
def test_greedy_tokens_are_the_same(saved, name, fused):
    folder, model = saved(name, fused)
    assert program.greedy(folder, models.IDS, 6) == models.greedy(model, models.IDS, 6)


def test_kimi_k2_is_deepseek_v3_under_another_name(saved, tmp_path):
    """transformers has no class of it: the code of its folders is deepseek_v3's."""
    source, model = saved("deepseek_v3")
    folder = shutil.copytree(source, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "kimi_k2"}))
    program.close(program.logprobs(folder, models.IDS, tmp_path), models.logprobs(model, models.IDS), 2e-5)


@pytest.mark.parametrize("name", models.known(("phi3-longrope",)))
def test_short_text_has_short_factors(saved, tmp_path, name):
    """With eval's own length of a row, which is more than the text."""
    folder, model = saved(name)
    got = program.logprobs(folder, models.IDS, tmp_path, row=None)
    program.close(got, models.logprobs(model, models.IDS), 2e-5)
