"""What tests of kernels on a model share: a step, and whether a patched model makes the same."""

import os
import unittest
from unittest import mock

import torch

import hf_classes
import moeloom
from support import difference, random

X = random(2, 7, hf_classes.HIDDEN, seed=4)


def step(a_model, x=X):
    a_model.zero_grad(set_to_none=True)
    loss = a_model(x)
    loss.backward()
    return loss.item(), {name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                         for name, p in a_model.named_parameters()}


class Case(unittest.TestCase):
    def setUp(self):
        kept = {name: text for name, text in os.environ.items() if "PATCH" not in name and "FUSED_OPS" not in name}
        patcher = mock.patch.dict(os.environ, kept, clear=True)
        patcher.start()
        self.addCleanup(patcher.stop)

    def agrees(self, patched, wanted, tolerance=5e-6):
        for _ in range(2):
            loss, grads = step(patched)
            self.assertAlmostEqual(loss, wanted[0], delta=1e-6 * max(1.0, abs(wanted[0])))
            for name, grad in wanted[1].items():
                self.assertLess(difference(grads[name], grad), tolerance, name)

    def fails(self, words, call, *arguments, **named):
        with self.assertRaises(moeloom.ConfigError) as caught:
            call(*arguments, **named)
        for word in words:
            self.assertIn(word, str(caught.exception))
