"""experts_implementation="moeloom" of transformers 5: what register() chooses; errors of other imports."""

import copy
import importlib.util
import unittest

import torch
from support import difference, python, random

import moeloom

FOUND = importlib.util.find_spec("transformers") is not None
if FOUND:
    import transformers
FIVE = FOUND and int(transformers.__version__.split(".")[0]) >= 5


def model():
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                                         num_attention_heads=2, num_key_value_heads=2, head_dim=8, num_experts=4,
                                         num_experts_per_tok=2, moe_intermediate_size=12)
    return transformers.Qwen3MoeForCausalLM(config)


def gradients(a_model):
    a_model.zero_grad(set_to_none=True)
    a_model(torch.arange(10)[None] % 7).logits.pow(2).mean().backward()
    return [parameter.grad.clone() for parameter in a_model.parameters()]


@unittest.skipUnless(FIVE, "transformers 5 has the registry")
class Register(unittest.TestCase):
    def setUp(self):
        import moeloom.hf
        self.register = moeloom.hf.register
        self.addCleanup(self.register)

    def test_gradients_are_kept_or_pass_hooks(self):
        a_model = model()
        wanted = gradients(a_model)
        a_model.set_experts_implementation("moeloom")
        down = next(p for n, p in a_model.named_parameters() if n.endswith("down_proj"))
        seen = []
        down.register_hook(seen.append)
        for grads, times in (("kept", 0), ("autograd", 1), ("kept", 1)):
            self.register(grads=grads)
            for got, one in zip(gradients(a_model), wanted):
                self.assertLess(difference(got, one), 1e-5)
            self.assertEqual(sum(grad is not None for grad in seen), times, grads)

    def test_what_cannot_be(self):
        with self.assertRaisesRegex(moeloom.ConfigError, 'unknown grads "lost"; known: kept, autograd'):
            self.register(grads="lost")

    def test_parametrised_stacks_can_be_copied(self):
        from torch.nn.utils import parametrize
        experts = model().model.layers[0].mlp.experts
        experts.config._experts_implementation = "moeloom"
        parametrize.register_parametrization(experts, "down_proj", torch.nn.Tanh())
        given = random(5, 16), torch.tensor([[0, 1]] * 5), torch.ones(5, 2)
        y = experts(*given)
        self.assertLess(difference(copy.deepcopy(experts)(*given), y), 1e-6)


class Imports(unittest.TestCase):
    WORDS = "import sys\nsys.modules[{}] = None\ntry:\n import moeloom.hf\nexcept ImportError as e:\n print(e)"

    def test_a_missing_package_is_named(self):
        self.assertIn("transformers", python(self.WORDS.format("'transformers'")))
        self.assertNotIn("apply_kernel", python(self.WORDS.format("'transformers'")))

    @unittest.skipUnless(FIVE, "transformers 5 has the registry")
    def test_another_error_keeps_its_words(self):
        said = python(self.WORDS.format("'transformers.integrations.moe'"))
        self.assertIn("transformers.integrations.moe", said)
        self.assertNotIn("apply_kernel", said)

    @unittest.skipUnless(FOUND and not FIVE, "transformers 5 has the registry")
    def test_transformers_4_has_apply_kernel(self):
        self.assertIn("apply_kernel", python("try:\n import moeloom.hf\nexcept ImportError as e:\n print(e)"))
