"""Fixtures, and the two lists of expected.py: what stands there must fail, and must be there to fail."""

import fnmatch
import os
import warnings
import zlib
from pathlib import Path

import pytest
import torch
import transformers

import expected
import models
import program

VERSION = "v" + transformers.__version__.split(".")[0]

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
warnings.simplefilter("ignore")


def pytest_addoption(parser):
    parser.addoption("--part", help="N/M: the tests whose name falls into part N of M")


def pytest_configure(config):
    if not program.PROGRAM.exists():
        pytest.exit(f"no {program.PROGRAM}: build first, or set MOELOOM_BUILD", returncode=4)


def name_of(item):
    """As expected.py writes it: test_families.py::test_logprobs[llama-default]"""
    return f"{item.path.name}::{item.name}"


def entries():
    """(version or both, glob, reason, whose)"""
    return [(*entry, whose) for whose, listed in (("ours", expected.OURS), ("HF's", expected.THEIRS))
            for entry in listed if entry[0] in (VERSION, "both")]


def matches(name, glob):
    return fnmatch.fnmatchcase(name, glob.replace("[", "[[]"))


def pytest_collection_modifyitems(config, items):
    part = config.getoption("--part")
    whole = not part and not config.getoption("-k") and not any("::" in str(a) or str(a).endswith(".py")
                                                                for a in config.args)
    for version, glob, reason, whose in entries():
        found = [item for item in items if matches(name_of(item), glob)]
        for item in found:
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"{whose}: {reason}"))
        if whole and not found:
            raise pytest.UsageError(f"expected.py: no test is named {glob}; strike the entry, or mend its name")
    if part:
        # By name and not by place, so that a new test moves no other one.
        which, parts = map(int, part.split("/"))
        keep = [item for item in items if zlib.crc32(name_of(item).encode()) % parts == which - 1]
        config.hook.pytest_deselected(items=[item for item in items if item not in keep])
        items[:] = keep


def pytest_terminal_summary(terminalreporter):
    """The line that launch/test-clients.sh prints of an environment."""
    count = {kind: len(terminalreporter.stats.get(kind, ())) for kind in
             ("passed", "failed", "error", "xfailed", "skipped")}
    terminalreporter.write_line(
        f"clients {VERSION}: {count['passed']} passed, {count['failed'] + count['error']} failed, "
        f"{count['xfailed']} expected, {count['skipped']} skipped")


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """saved(name, fused=False, **changes of the config) -> (folder, model), made once a session."""
    made = {}

    def folder_and_model(name, fused=False, **changes):
        key = repr((name, fused, sorted(changes.items())))
        if key not in made:
            model = models.make(name, **changes)
            folder = tmp_path_factory.mktemp(name.replace("/", "-"))
            model.save_pretrained(folder, **(dict(save_original_format=False) if fused else {}))
            made[key] = folder, model
        return made[key]

    return folder_and_model


@pytest.fixture(scope="session")
def texts():
    """The folder of tokenizers and templates: $MOELOOM_TEXT, or ../shared/text beside the repository."""
    named = os.environ.get("MOELOOM_TEXT")
    folder = Path(named) if named else program.ROOT.parent / "shared" / "text"
    if not (folder / "tokenizers").is_dir():
        pytest.skip(f"no tokenizers in {folder}; set MOELOOM_TEXT")
    return folder
