"""Patched models: in every layout the same losses and gradients, whatever is done to them, and the way back."""

import copy
import pickle
import unittest
import weakref
from unittest import mock

import torch
from torch.nn.utils import parametrize, prune

import hf_classes
import moeloom.torch as mt
from hf_classes import LAYOUTS, model
from moeloom.torch._patch import patches
from patched import Case, X, step
from support import difference


class Layouts(Case):
    def test_a_patched_model_computes_what_it_did(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                wanted, names = step(a_model), list(a_model.state_dict())
                parameters = list(a_model.parameters())
                self.assertIs(mt.apply_default_kernels(a_model), a_model)
                self.agrees(a_model, wanted)
                self.assertEqual(list(a_model.state_dict()), names)
                self.assertTrue(all(a is b for a, b in zip(a_model.parameters(), parameters)))

    def test_results_may_be_changed_in_place(self):
        def loss_of(a_model):
            a_model.zero_grad(set_to_none=True)
            y = a_model.block(X.clone())[0]
            y += 1
            loss = y.pow(2).mean()
            loss.backward()
            return loss.item(), {n: p.grad.clone() for n, p in a_model.block.named_parameters()}

        for layout in LAYOUTS:
            for grads in ("kept", "autograd"):
                with self.subTest(layout, grads=grads):
                    a_model = model(layout)
                    wanted = loss_of(a_model)
                    mt.apply_kernel("fused_moe", model=a_model, grads=grads)
                    for _ in range(2):
                        loss, found = loss_of(a_model)
                        self.assertAlmostEqual(loss, wanted[0], places=5)
                        for name, grad in wanted[1].items():
                            self.assertLess(difference(found[name], grad), 5e-6, name)

    def test_gradients_of_autograd_pass_hooks(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                wanted = step(a_model)
                mt.apply_kernel("fused_moe", model=a_model, grads="autograd")
                seen = []
                parameter = [p for n, p in a_model.named_parameters() if "experts" in n][0]
                parameter.register_hook(seen.append)
                self.agrees(a_model, wanted)
                self.assertEqual(len(seen), 2)

    @unittest.skipIf(torch.__version__ < "2", "before torch 2 nothing says that a gradient is asked for")
    def test_gradients_as_results(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                _, wanted = step(a_model)
                a_model.zero_grad(set_to_none=True)
                mt.apply_default_kernels(a_model)
                for some in (slice(None), slice(None, None, 3)):
                    names, parameters = zip(*list(a_model.named_parameters())[some])
                    grads = torch.autograd.grad(a_model(X), parameters)
                    for name, grad in zip(names, grads):
                        self.assertLess(difference(grad, wanted[name]), 5e-6, name)
                    self.assertTrue(all(p.grad is None for p in a_model.parameters()))
                    a_model(X).backward(inputs=parameters)
                    for name, parameter in a_model.named_parameters():
                        self.assertEqual(parameter.grad is None, name not in names, name)
                        if name in names:
                            self.assertLess(difference(parameter.grad, wanted[name]), 5e-6, name)
                    a_model.zero_grad(set_to_none=True)
                self.agrees(a_model, (step(a_model)[0], wanted))

    def test_gradients_add_up(self):
        for layout in LAYOUTS:
            for some in (False, True):
                with self.subTest(layout, some=some):
                    a_model = model(layout)
                    _, once = step(a_model)
                    mt.apply_default_kernels(a_model)
                    step(a_model)
                    if some:  # of some parameters only the second half is wanted
                        for parameter in list(a_model.parameters())[::2]:
                            parameter.grad = None
                    a_model(X).backward()
                    for number, (name, parameter) in enumerate(a_model.named_parameters()):
                        times = 1 if some and number % 2 == 0 else 2
                        self.assertLess(difference(parameter.grad, times * once[name]), 5e-6, name)

    def test_frozen_experts_have_no_gradient(self):
        a_model = model("4.x list")
        frozen = list(a_model.block.experts[1].parameters()) + [a_model.block.experts[2].up_proj.weight]
        for parameter in frozen:
            parameter.requires_grad_(False)
        wanted = step(a_model)
        mt.apply_default_kernels(a_model)
        self.agrees(a_model, wanted)
        self.assertTrue(all(parameter.grad is None for parameter in frozen))

    def test_copies_and_pickles_are_patched_and_apart(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = mt.apply_default_kernels(model(layout))
                wanted = step(a_model)
                for twin in (copy.deepcopy(a_model), pickle.loads(pickle.dumps(a_model))):
                    self.assertEqual([n for n, _ in patches(twin)], [n for n, _ in patches(a_model)])
                    self.assertTrue(all(patch.module is dict(twin.named_modules())[n] for n, patch in patches(twin)))
                    self.agrees(twin, wanted)
                    with torch.no_grad():
                        for parameter in twin.parameters():
                            parameter.zero_()
                    self.assertNotEqual(step(twin)[0], wanted[0])
                    self.agrees(a_model, wanted)

    def test_parametrised_stacks_can_be_copied(self):
        a_model = model("5.x stack")
        mt.apply_default_kernels(a_model)
        parametrize.register_parametrization(a_model.block.moe_experts, "down_proj", torch.nn.Tanh())
        wanted = step(a_model)[0]
        twin = copy.deepcopy(a_model)
        self.assertAlmostEqual(step(twin)[0], wanted, places=5)

    def test_weights_that_move_are_followed(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model, plain = model(layout, seed=1), model(layout, seed=2)
                mt.apply_default_kernels(a_model)
                step(a_model)
                a_model.load_state_dict(plain.state_dict())
                self.agrees(a_model, step(plain))
                a_model.double().float()
                self.agrees(a_model, step(plain))

    def test_a_dtype_that_the_kernels_do_not_have(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = mt.apply_default_kernels(model(layout).double())
                wanted = step(model(layout).double(), X.double())
                for _ in range(2):
                    loss, grads = step(a_model, X.double())
                    self.assertEqual(loss, wanted[0])
                mt.apply_default_kernels(a_model.float())
                wanted = step(model(layout))
                self.agrees(a_model, wanted)
                loss, _ = step(a_model.double(), X.double())
                self.assertAlmostEqual(loss, wanted[0], places=5)

    def test_a_first_forward_in_inference_mode(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                wanted = step(a_model)
                twin = copy.deepcopy(mt.apply_default_kernels(a_model))
                with torch.inference_mode():
                    self.assertLess(abs(float(twin(X)) - wanted[0]), 1e-6)
                self.agrees(twin, wanted)

    def test_hooks_on_experts_and_their_linears_are_called(self):
        for layout in [name for name in LAYOUTS if "list" in name]:
            for of_linear in (False, True):
                for kind in ("forward", "forward_pre", "full_backward"):
                    with self.subTest(layout, of_linear=of_linear, kind=kind):
                        a_model, calls = model(layout), []
                        wanted = step(a_model)
                        mt.apply_default_kernels(a_model)
                        self.agrees(a_model, wanted)
                        expert = a_model.block.experts[1]
                        hooked = list(expert.children())[2] if of_linear else expert
                        handle = getattr(hooked, f"register_{kind}_hook")(lambda *given: calls.append(1))
                        self.agrees(a_model, wanted)
                        self.assertTrue(calls)
                        handle.remove()
                        self.agrees(a_model, wanted)
                        self.assertEqual(len(calls), 2)

    def test_hooked_experts_are_refused(self):
        for place in ("1", "1.up_proj"):
            a_model = model("4.x list")
            a_model.block.experts.get_submodule(place).register_forward_hook(lambda *given: None)
            self.fails([f"experts.{place} has hooks"], mt.apply_kernel, "fused_moe", model=a_model)

    def test_linears_that_compute_their_weight(self):
        for change in (lambda linear: prune.l1_unstructured(linear, "weight", amount=0.3),
                       lambda linear: parametrize.register_parametrization(linear, "weight", torch.nn.Tanh())):
            a_model, plain = model("4.x list"), model("4.x list")
            mt.apply_default_kernels(a_model)
            step(a_model)
            for changed in (a_model, plain):
                change(changed.block.experts[2].up_proj)
                change(changed.block.experts[1].gate_proj)
            self.agrees(a_model, step(plain))
            self.fails(["experts.1.gate_proj"], mt.apply_kernel, "fused_moe", model=plain)

    def test_an_optimizer_from_before_moves_the_weights(self):
        a_model, plain = model("4.x list"), model("4.x list")
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (a_model, plain)]
        mt.apply_default_kernels(a_model)
        for _ in range(3):
            for m, optimizer in zip((a_model, plain), optimizers):
                step(m)
                optimizer.step()
        self.agrees(a_model, step(plain))

    def test_evaluation_and_no_tokens(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                with torch.no_grad():
                    wanted = a_model(X)
                    mt.apply_default_kernels(a_model)
                    self.assertLess(difference(a_model(X), wanted), 2e-6)
                if "5.x" in layout:
                    y, _ = a_model.block(torch.zeros(1, 0, hf_classes.HIDDEN))
                    self.assertEqual(y.shape, (1, 0, hf_classes.HIDDEN))


class Undone(Case):
    def test_unapply_gives_back_the_very_functions(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model, rope = model(layout), hf_classes.apply_rotary_pos_emb
                before = {name: dict(m.__dict__) for name, m in a_model.named_modules()}
                mt.apply_default_kernels(a_model)
                mt.apply_default_kernels(a_model)
                self.assertEqual(hf_classes.apply_rotary_pos_emb is rope, a_model.config.model_type != "qwen3_moe")
                self.assertIs(mt.unapply(a_model), a_model)
                self.assertIs(hf_classes.apply_rotary_pos_emb, rope)
                for name, module in a_model.named_modules():
                    self.assertEqual(sorted(module.__dict__), sorted(before[name]), name)
                self.assertEqual(mt.reports(a_model), [])

    def test_somebody_elses_forward_comes_back(self):
        a_model = model("5.x stack")
        a_model.norm.forward = theirs = lambda x: x
        mt.apply_kernel("fused_rmsnorm", model=a_model)
        mt.unapply(a_model)
        self.assertIs(a_model.norm.forward, theirs)

    def test_twice_is_once_and_other_settings_replace(self):
        a_model = mt.apply_default_kernels(model("4.x list"))
        first, found = dict(patches(a_model)), mt.reports(a_model)
        mt.apply_default_kernels(a_model)
        self.assertEqual({n: id(p) for n, p in patches(a_model)}, {n: id(p) for n, p in first.items()})
        self.assertEqual(mt.reports(a_model), found)
        mt.apply_kernel("fused_moe", model=a_model, grads="autograd")
        self.assertEqual(dict(patches(a_model))["block"].grads, "autograd")
        mt.unapply(a_model)
        self.assertEqual(list(patches(a_model)), [])

    def test_a_model_that_nobody_holds_is_gone_at_once(self):
        for layout in LAYOUTS:
            rope = hf_classes.apply_rotary_pos_emb
            gone = weakref.ref(mt.apply_default_kernels(model(layout)))
            self.assertIsNone(gone(), layout)
            self.assertIs(hf_classes.apply_rotary_pos_emb, rope)

    def test_another_model_of_the_class_stays_as_it_is(self):
        patched, plain = model("5.x stack"), model("5.x stack")
        mt.apply_default_kernels(patched)
        with mock.patch("moeloom.torch._rope.RopeFunction.apply", side_effect=AssertionError):
            step(plain)
            self.assertRaises(AssertionError, step, patched)
        self.assertEqual(list(patches(plain)), [])
        mt.unapply(patched)


if __name__ == "__main__":
    unittest.main()
