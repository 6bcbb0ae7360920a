"""A model that HF's class saves is read, and computes what HF's class computes."""

import models
import moeloom
import pytest
from conftest import VERSION

CASES = [(name, False) for name in models.known()]
# transformers 5 keeps experts stacked in memory and can save them so.
CASES += [(name, True) for name in models.known() if VERSION == "v5" and "experts" in repr(models.config(name))]
every_case = pytest.mark.parametrize("name,fused", CASES, ids=[f"{n}-{'fused' if f else 'default'}" for n, f in CASES])


@every_case
def test_inspect_reads_it(saved, name, fused):
    folder, model = saved(name, fused)
    out = moeloom.run("inspect", "--model", folder)
    assert models.FAMILIES[name][0] in out and "not read" not in out, out


@every_case
def test_log_probabilities_are_the_same(saved, tmp_path, name, fused):
    folder, model = saved(name, fused)
    moeloom.close(moeloom.logprobs(folder, models.IDS, tmp_path), models.logprobs(model, models.IDS), 2e-5)


@every_case
def test_greedy_tokens_are_the_same(saved, name, fused):
    folder, model = saved(name, fused)
    assert moeloom.greedy(folder, models.IDS, 6) == models.greedy(model, models.IDS, 6)
