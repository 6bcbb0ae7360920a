"""save_pretrained: the whole model in one folder, written by ranks that hold a part of it each."""

import copy
import json
import pickle
import tempfile
import unittest
from pathlib import Path

import torch
from torch import nn

import hf_classes
import moeloom
from hf_classes import LAYOUTS
from moeloom.torch import apply_kernel, save_pretrained
from moeloom.torch._files import Folder, dtype_of
from moeloom.torch._shares import shard_list, shard_stacks
from moeloom.torch._guards import guard
from ranks import succeeds
from support import same


class Pretrained(hf_classes.Model):
    """With a save of its own, as those of transformers."""

    _keys_to_ignore_on_save = ["attention.k_proj.weight"]

    def save_pretrained(self, folder, state_dict=None):
        assert state_dict == {}
        Path(folder, "config.json").write_text("{}")
        Path(folder, "model.safetensors").write_text("of nothing")


def share(model, mesh):
    """What apply_kernel() does, also for layouts that it has no kernel for under a mesh."""
    for module in list(model.modules()):
        if isinstance(module, nn.ModuleList):
            shard_list(module, mesh)
        elif hasattr(module, "gate_up_proj"):
            shard_stacks(module, hf_classes.EXPERTS, mesh)
    return model


def write(folder, ep):
    """On each rank: models of every layout, and one that a rank's disk has no room for."""
    with moeloom.mesh(ep=ep) as mesh:
        for number, layout in enumerate(LAYOUTS):
            save_pretrained(share(hf_classes.model(layout, seed=number), mesh), Path(folder, str(number)), mesh)
        fails(mesh, Path(folder, "full"))


def fails(mesh, folder):
    import resource
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if mesh.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        save_pretrained(share(hf_classes.model("5.x stack"), mesh), folder, mesh)
    except moeloom.Error as error:
        assert "model.safetensors" in str(error) and "File too large" in str(error), str(error)
    else:
        raise AssertionError("saved")
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    mesh.barrier()
    assert not folder.exists() and not list(folder.parent.glob(".*")), list(folder.parent.iterdir())


def written(folder):
    with Folder(folder) as files:
        found = {name: torch.empty(spec.shape, dtype=dtype_of(spec)) for name, spec in files.specs.items()}
        for name, tensor in found.items():
            files.read(name, tensor)
        return found


class Save(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def agrees(self, folder, state):
        found = written(folder)
        self.assertEqual(set(found), set(state))
        for name, tensor in state.items():
            self.assertTrue(same(found[name], tensor.contiguous()), name)

    def test_by_several_ranks(self):
        for ranks, ep in ((3, 3), (4, 2)):
            place = self.folder / f"{ranks}-{ep}"
            succeeds(ranks, f"import test_save; test_save.write({str(place)!r}, {ep})")
            for number, layout in enumerate(LAYOUTS):
                with self.subTest(layout, ranks=ranks):
                    self.agrees(place / str(number), hf_classes.model(layout, seed=number).state_dict())

    def test_by_one(self):
        for number, layout in enumerate(LAYOUTS):
            model = hf_classes.model(layout)
            save_pretrained(model, self.folder / f"plain {number}")
            self.agrees(self.folder / f"plain {number}", model.state_dict())
            save_pretrained(apply_kernel("fused_moe", model=model), self.folder / f"patched {number}")
            self.agrees(self.folder / f"patched {number}", model.state_dict())

    def test_every_kind_of_tensor(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.tied = nn.Parameter(torch.randn(3, 4))
                self.same = self.tied
                self.turned = nn.Parameter(torch.randn(5, 3).T)
                self.short = nn.Parameter(torch.randn(7).bfloat16())
                for name, value in (("flags", torch.tensor([True, False, True])), ("count", torch.tensor(7)),
                                    ("none", torch.empty(0, 4)), ("small", torch.tensor([-3], dtype=torch.int8)),
                                    ("wide", torch.randn(1, 2, 1, 2, 2, 1)), ("exact", torch.randn(2).double())):
                    self.register_buffer(name, value)
                self.register_buffer("passing", torch.ones(2), persistent=False)
        odd = Odd()
        save_pretrained(odd, self.folder / "odd")
        self.agrees(self.folder / "odd", odd.state_dict())
        self.assertNotIn("passing", written(self.folder / "odd"))

    def test_what_is_of_transformers(self):
        """Its own save writes all but the weights; the tokenizer comes from where the model did."""
        source = self.folder / "source"
        (source / "additional_chat_templates").mkdir(parents=True)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "merges.txt", "README.md",
                     "additional_chat_templates/tool.jinja"):
            (source / name).write_text(name)
        model = Pretrained("qwen3_moe", LAYOUTS["5.x stack"][1]())
        model.config._name_or_path = str(source)
        save_pretrained(model, self.folder / "out")
        state = model.state_dict()
        del state["attention.k_proj.weight"]
        self.agrees(self.folder / "out", state)
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()), [
            "additional_chat_templates", "chat_template.jinja", "config.json", "merges.txt", "model.safetensors",
            "tokenizer.json", "tokenizer_config.json"])
        self.assertEqual((self.folder / "out/additional_chat_templates/tool.jinja").read_text(),
                         "additional_chat_templates/tool.jinja")

    def test_over_a_model_that_is_there(self):
        """Its weights go, and what is not of a model stays; the folder may be the one that it came from."""
        out = self.folder / "out"
        out.mkdir()
        for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json", "notes"):
            (out / name).write_text(name)
        (out / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002"}}))
        model = Pretrained("qwen3_moe", LAYOUTS["4.x list"][1]())
        model.config._name_or_path = str(out)
        for _ in range(2):
            save_pretrained(model, out)
            self.assertEqual(sorted(path.name for path in out.iterdir()),
                             ["config.json", "model.safetensors", "notes", "tokenizer.json"])
            self.assertEqual((out / "tokenizer.json").read_text(), "tokenizer.json")

    def test_refusals(self):
        model = Pretrained("qwen3_moe", LAYOUTS["5.x stack"][1]())
        guard(model)
        for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            with self.assertRaisesRegex(moeloom.ConfigError, r"save_pretrained\(model, folder, mesh\)"):
                each.save_pretrained(self.folder / "out")
        save_pretrained(model, self.folder / "whole")
        plain = hf_classes.model("5.x stack")
        guard(plain)
        self.assertFalse(hasattr(plain, "save_pretrained"))
        (self.folder / "file").write_text("mine")
        with self.assertRaisesRegex(moeloom.IoError, "is a file; expected a folder"):
            save_pretrained(model, self.folder / "file")
        model.peft_config = {}
        with self.assertRaisesRegex(moeloom.ConfigError, "merge_and_unload"):
            save_pretrained(model, self.folder / "adapters")
