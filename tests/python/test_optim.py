"""AdamW against torch's."""

import unittest

import torch
from support import difference, random, same

import moeloom
import moeloom.torch as mt

SHAPES = ((5, 7), (3,), (), (2, 3, 4, 2, 2), (0, 4))


def parameters(dtype=torch.float32):
    return [torch.nn.Parameter(random(*shape, dtype=dtype, seed=i)) for i, shape in enumerate(SHAPES)]


def steps(optimizer, given, first=0, last=4):
    for step in range(first, last):
        for i, parameter in enumerate(given):
            parameter.grad = random(*parameter.shape, dtype=parameter.dtype, seed=100 * step + i)
        optimizer.step()
    return [parameter.detach().clone() for parameter in given]


class AdamW(unittest.TestCase):
    def check(self, got, wanted, tolerance=1e-6):
        for one, other in zip(got, wanted):
            self.assertLess(difference(one, other), tolerance)

    def test_is_torchs(self):
        for settings in ((), (1e-2, (0.8, 0.95), 1e-6, 0.1), (1e-2, (0.0, 0.0), 1e-8, 0.0)):
            ours, torchs = parameters(), parameters()
            self.check(steps(mt.AdamW(ours, *settings), ours), steps(torch.optim.AdamW(torchs, *settings), torchs))

    def test_state_goes_there_and_back(self):
        wanted = parameters()
        steps(torch.optim.AdamW(wanted), wanted, last=6)
        given = parameters()
        optimizers = [mt.AdamW, torch.optim.AdamW, mt.AdamW]
        state = None
        for number, make in enumerate(optimizers):
            optimizer = make(given)
            if state is not None:
                optimizer.load_state_dict(state)
            steps(optimizer, given, 2 * number, 2 * number + 2)
            state = optimizer.state_dict()
        self.check(given, wanted)
        self.assertEqual(set(state["state"][0]), {"step", "exp_avg", "exp_avg_sq"})

    def test_bf16_keeps_the_mean_of_small_updates(self):
        weight = torch.nn.Parameter(torch.ones(20000, dtype=torch.bfloat16))
        optimizer = mt.AdamW([weight], lr=1e-4, weight_decay=0.0)
        for _ in range(20):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        self.assertEqual(optimizer.state[weight]["exp_avg"].dtype, torch.bfloat16)
        self.assertAlmostEqual(float(weight.detach().double().mean()), 1 - 20e-4, delta=2e-4)

    def test_parameters_that_lie_otherwise(self):
        given, plain = (torch.nn.Parameter(random(4, 6).t()) for _ in range(2))
        self.check(steps(mt.AdamW([given]), [given]), steps(torch.optim.AdamW([plain]), [plain]))

    def test_negated_views(self):
        given, plain = torch.nn.Parameter(torch._neg_view(-random(4, 6))), torch.nn.Parameter(random(4, 6))
        self.check(steps(mt.AdamW([given]), [given]), steps(torch.optim.AdamW([plain]), [plain]))
        for one in (given, plain):
            one.grad = random(4, 6, seed=3)
        given.grad = torch._neg_view(-given.grad)
        optimizers = mt.AdamW([given]), torch.optim.AdamW([plain])
        for optimizer in optimizers:
            optimizer.step()
        self.check([given], [plain])

    def test_repeats_its_bits(self):
        one, other = parameters(torch.bfloat16), parameters(torch.bfloat16)
        self.assertTrue(all(map(same, steps(mt.AdamW(one), one), steps(mt.AdamW(other), other))))

    def test_zero_grad_sets_to_none_whichever_torch(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        parameter.sum().backward()
        optimizer = mt.AdamW([parameter])
        optimizer.zero_grad()
        self.assertIsNone(parameter.grad)
        parameter.sum().backward()
        optimizer.zero_grad(set_to_none=False)
        self.assertEqual(parameter.grad.tolist(), [0, 0, 0])

    def test_leaves_alone_what_has_no_gradient(self):
        given = parameters()
        before = [parameter.detach().clone() for parameter in given]
        mt.AdamW(given).step()
        self.assertTrue(all(map(same, given, before)))

    def test_schedulers_and_closures(self):
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = mt.AdamW([weight], lr=1.0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)

        def closure():
            optimizer.zero_grad()
            loss = weight.sum()
            loss.backward()
            return loss
        self.assertEqual(float(optimizer.step(closure)), 3.0)
        scheduler.step()
        before = weight.detach().clone()
        optimizer.step(closure)
        self.assertTrue(same(weight.detach(), before))

    def test_a_backward_through_what_it_changed_is_refused(self):
        for shape in ((3, 4), (), (2, 3)):
            parameter = torch.nn.Parameter(random(*shape))
            parameter.grad = torch.ones_like(parameter)
            optimizer = mt.AdamW([parameter])
            y = (parameter * parameter).sum()
            optimizer.step()
            with self.assertRaisesRegex(RuntimeError, "inplace"):
                y.backward()
            before = [optimizer.state[parameter][name]._version for name in ("exp_avg", "exp_avg_sq")]
            optimizer.step()
            after = [optimizer.state[parameter][name]._version for name in ("exp_avg", "exp_avg_sq")]
            self.assertTrue(all(one < other for one, other in zip(before, after)))

    def test_says_what_it_has_not(self):
        weight = torch.nn.Parameter(torch.ones(3))
        for wrong in ({"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": -1.0}, {"weight_decay": -1.0}):
            with self.assertRaises(moeloom.ConfigError):
                mt.AdamW([weight], **wrong)
        optimizer = mt.AdamW([weight])
        optimizer.load_state_dict(torch.optim.AdamW([weight], amsgrad=True).state_dict())
        weight.grad = torch.ones(3)
        with self.assertRaisesRegex(moeloom.ConfigError, "amsgrad"):
            optimizer.step()
        with self.assertRaises(TypeError):
            steps(mt.AdamW(given := [torch.nn.Parameter(torch.ones(2, dtype=torch.float64))]), given)
