"""Steps of Hugging Face's models whose experts ranks share, beside one process: loss, norm and every gradient."""

import pytest

import models
import patched  # noqa: F401  (finds the package, or skips)
from conftest import VERSION
from on_mesh import succeeds

NAMES = ["qwen3_moe", "mixtral", "deepseek_v3", "olmoe", "gpt_oss", "granitemoe"]
WAYS = ("kernel", "hf") if VERSION == "v5" else ("kernel",)
PROGRAM = "import sys, parity; sys.exit(parity.main())"


@pytest.mark.parametrize("ranks, ep", [(2, (2,)), (4, (4, 2))])
def test_steps_are_those_of_one_process(ranks, ep):
    out = succeeds(ranks, PROGRAM, *NAMES, "--steps", 2, "--ep", *ep, "--through", *WAYS, seconds=600)
    assert out.count("within the limits") == len(NAMES) * len(ep) * len(WAYS), out


@pytest.mark.skipif(VERSION != "v5", reason="models of transformers 5")
def test_steps_of_the_models_of_five():
    names = models.known(models.OF_FIVE)
    # A_log of a delta net, see patched.TOLERANCE.
    out = succeeds(2, PROGRAM, *names, "--steps", 2, "--ep", 2, "--through", *WAYS, "--gradient", "3e-5", seconds=600)
    assert out.count("within the limits") == len(names) * len(WAYS), out
