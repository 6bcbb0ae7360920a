"""A run that was saved and goes on, at another ep too, makes the losses of the run that did not stop."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import torch

import hf_classes
import moeloom
from hf_classes import HIDDEN, LAYOUTS
from moeloom.torch import AdamW, apply_kernel, checkpoint, finish_gradients, load_checkpoint, save_checkpoint
from ranks import succeeds
from support import PACKAGE, random, same

PARTS = 4  # of a step's batch: of these each rank takes its own
# Of one process, and of ranks that add up in another order: a few roundings, which AdamW's division makes larger.
TOLERANCE = 1e-6

OPTIMIZERS = {
    "ours": lambda model: AdamW(model.parameters(), lr=0.05),
    "torch's": lambda model: torch.optim.AdamW([
        {"params": [p for p in model.parameters() if p.dim() > 1], "lr": 0.05},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
}
RUNS = [(layout, optimizer) for layout in LAYOUTS for optimizer in OPTIMIZERS
        if optimizer == "ours" or layout in ("4.x list", "5.x stack")]


def made(layout, optimizer, mesh=None):
    model = apply_kernel("fused_moe", model=hf_classes.model(layout, seed=3), mesh=mesh)
    return model, OPTIMIZERS[optimizer](model)


def steps(model, optimizer, first, last, mesh=None):
    """Losses of the whole batch."""
    losses = []
    size, rank = (1, 0) if mesh is None else (mesh.size, mesh.rank)
    for step in range(first, last):
        parts = random(PARTS, 2, 5, HIDDEN, seed=step).split(PARTS // size)[rank]
        loss = sum(model(part) for part in parts) / len(parts)
        loss.backward()
        finish_gradients(model, mesh)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = loss.detach().view(1) / size
        if mesh is not None:
            mesh.world.sum([moeloom.arrays.borrow(total)])
        losses.append(total.item())
    return losses


def run(folder, first, last, ep):
    """On each rank: every layout and optimizer from step `first` on, from the checkpoint unless that is 0."""
    with moeloom.mesh(ep=ep) as mesh:
        for number, (layout, optimizer_name) in enumerate(RUNS):
            model, optimizer = made(layout, optimizer_name, mesh)
            place = Path(folder, str(number))
            if first:
                extra = load_checkpoint(model, optimizer, place, mesh)
                assert extra == {"step": first, "own": 0, "text": "a"}, extra
            losses = steps(model, optimizer, first, last, mesh)
            save_checkpoint(model, optimizer, place, mesh, step=last, own=mesh.rank, text="a")
            if mesh.rank == 0:
                print(number, *(loss.hex() for loss in losses))
            goes_on = steps(model, optimizer, last, last + 1, mesh)
            again = made(layout, optimizer_name, mesh)
            assert load_checkpoint(*again, place, mesh)["own"] == mesh.rank
            assert steps(*again, last, last + 1, mesh) == goes_on, "another loss in a world of the same size"
        refuses(mesh, Path(folder, "never"))


def refuses(mesh, place):
    """An error of one rank is one on all."""
    model, optimizer = made("5.x stack", "ours", mesh)
    try:
        save_checkpoint(model, optimizer, place, mesh, lock=object() if mesh.rank else 1)
    except TypeError as error:
        assert 'extra "lock" is a object' in str(error) and "expected tensors, numbers" in str(error), str(error)
    else:
        raise AssertionError("saved")
    assert not place.exists()


def ran(ranks, folder, first, last, ep):
    out = succeeds(ranks, f"import test_checkpoint; test_checkpoint.run({str(folder)!r}, {first}, {last}, {ep})")
    return [[float.fromhex(word) for word in line.split()[1:]] for line in out.splitlines()]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)


class Resumed(Case):
    def compare(self, got, wanted):
        self.assertEqual([len(losses) for losses in got], [len(losses) for losses in wanted])
        for name, losses, others in zip(RUNS, got, wanted):
            for loss, other in zip(losses, others):
                self.assertLessEqual(abs(loss - other), TOLERANCE * abs(other), name)

    def test_at_another_ep(self):
        whole = [steps(*made(*names), 0, 6) for names in RUNS]
        self.compare(ran(2, self.folder, 0, 3, 2), [losses[:3] for losses in whole])
        self.compare(ran(4, self.folder, 3, 5, 2), [losses[3:5] for losses in whole])
        last = []
        for number, names in enumerate(RUNS):
            model, optimizer = made(*names)
            self.assertEqual(load_checkpoint(model, optimizer, self.folder / str(number))["step"], 5)
            last.append(steps(model, optimizer, 5, 6))
        self.compare(last, [losses[5:] for losses in whole])


class Killed(BaseException):
    pass


class Stands(Case):
    """A checkpoint is the one before or the new one, whole."""

    def saved(self, step, place=None):
        model, optimizer = made("5.x stack", "torch's")
        steps(model, optimizer, 0, step)
        save_checkpoint(model, optimizer, place or self.folder / "at", step=step)
        return model, optimizer

    def loaded(self, place=None):
        model, optimizer = made("5.x stack", "torch's")
        return model, optimizer, load_checkpoint(model, optimizer, place or self.folder / "at")

    def test_wherever_it_is_killed(self):
        """At each call that changes what lies on the disk."""
        wanted = {step: self.saved(step)[0].state_dict() for step in (1, 2)}
        shutil.rmtree(self.folder / "at")
        count, died = 0, True
        while died:
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            self.saved(1)
            died = self.dies_at(count, lambda: self.saved(2))
            model, _, extra = self.loaded()
            self.assertIn(extra["step"], (1, 2) if died else (2,))
            for name, tensor in wanted[extra["step"]].items():
                self.assertTrue(same(model.state_dict()[name], tensor), name)
            self.saved(2)
            self.assertEqual(self.loaded()[2]["step"], 2)
            self.assertEqual([path.name for path in self.folder.iterdir()], ["at"])
            count += 1
        self.assertGreater(count, 8)

    @staticmethod
    def dies_at(number, action):
        left = [number]

        def deadly(call):
            def instead(*arguments, **named):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return call(*arguments, **named)
            return instead
        with contextlib.ExitStack() as patched:
            for owner, name in ((Path, "rename"), (Path, "mkdir"), (shutil, "rmtree"), (torch, "save"),
                                (checkpoint, "sync"), (checkpoint, "write_folder")):
                patched.enter_context(mock.patch.object(owner, name, deadly(getattr(owner, name))))
            try:
                action()
            except Killed:
                return True
        return False

    def test_kill_9(self):
        program = ("import sys, test_checkpoint as t\nmodel, optimizer = t.made('5.x stack', 'ours')\n"
                   "for step in range(10000):\n    t.save_checkpoint(model, optimizer, sys.argv[1], step=step)\n"
                   "    print(step, flush=True)\n")
        environ = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
        with subprocess.Popen([sys.executable, "-c", program, str(self.folder / "at")], stdout=subprocess.PIPE,
                              env=environ) as process:
            self.assertEqual(process.stdout.readline(), b"0\n")
            time.sleep(0.2)
            process.send_signal(signal.SIGKILL)
            printed = process.stdout.read().split()
        model, optimizer = made("5.x stack", "ours")
        step = load_checkpoint(model, optimizer, self.folder / "at")["step"]
        self.assertIn(step - int(printed[-1]), (0, 1))

    def fails(self, kind, words, call, *arguments, **named):
        with self.assertRaises(kind) as caught:
            call(*arguments, **named)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_says_what_is_damaged(self):
        self.fails(moeloom.IoError, ["at is no checkpoint", "save_checkpoint"], self.loaded)
        for file in ("model.safetensors", "rank-00000.pt"):
            self.saved(1)
            path = self.folder / "at" / file
            path.write_bytes(path.read_bytes()[:-20])
            self.fails(moeloom.IoError, [file], self.loaded)
        (self.folder / "file").write_text("mine")
        self.fails(moeloom.IoError, ["is there and is no checkpoint"], self.saved, 1, self.folder / "file")
        (self.folder / "mine" / "too").mkdir(parents=True)
        self.fails(moeloom.IoError, ["is there and is no checkpoint"], self.saved, 1, self.folder / "mine")
        self.assertTrue((self.folder / "mine" / "too").is_dir())

    def test_says_what_does_not_fit(self):
        self.saved(1)
        place = self.folder / "at"
        for layout, words in (("4.x list", "which the model has"),
                              ("5.x stack, 2F = D", "is F32 [5, 24, 16] there, and")):
            model, optimizer = made(layout, "torch's")
            before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            self.fails(moeloom.ConfigError, ["does not fit", words], load_checkpoint, model, optimizer, place)
            self.assertTrue(all(same(tensor, before[name]) for name, tensor in model.state_dict().items()))
        model, optimizer = made("5.x stack", "ours")
        self.fails(moeloom.ConfigError, ["has 2 groups of parameters, this one 1"], load_checkpoint, model, optimizer,
                   place)
        other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
        self.fails(moeloom.ConfigError, ["none of the model's", "model.parameters()"], save_checkpoint, model, other,
                   place)

    def test_optimizer_goes_on(self):
        """Settings that changed, states of no shape, and what was frozen."""
        model, optimizer = made("5.x stack", "torch's")
        model.attention.q_proj.weight.requires_grad_(False)
        steps(model, optimizer, 0, 2)
        optimizer.param_groups[1]["lr"] = 0.25
        save_checkpoint(model, optimizer, self.folder / "at", rng=torch.get_rng_state(), at=[1, (2.5, None)],
                        so={"a": True})
        again, fresh = made("5.x stack", "torch's")
        extra = load_checkpoint(again, fresh, self.folder / "at")
        self.assertEqual((extra["at"], extra["so"]), ([1, (2.5, None)], {"a": True}))
        self.assertTrue(same(extra["rng"], torch.get_rng_state()))
        self.assertEqual(fresh.param_groups[1]["lr"], 0.25)
        self.assertNotIn(again.attention.q_proj.weight, fresh.state)
        for name, parameter in model.named_parameters():
            states = optimizer.state.get(parameter, {}), fresh.state.get(again.get_parameter(name), {})
            self.assertEqual(*map(set, states))
            for key, value in states[0].items():
                self.assertTrue(same(states[1][key], value), f"{key} of {name}")
