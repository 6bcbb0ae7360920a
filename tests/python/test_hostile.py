"""Functions with arrays drawn from a seed, several of which may be wrong at once: an answer that is right, or an error."""

import os
import random
import unittest
import warnings

import numpy as np
import torch
from support import difference
from test_arrays import OF_NUMPY, OF_TORCH, outputs

import moeloom

CALLS = int(os.environ.get("MOELOOM_FUZZ_RUNS", "3000"))
ODD = -1, 3, 2**31 - 1, 2**31, -2**31, 2**40, 2**63 - 1, -2**63
NO_MEMORY = "can't allocate memory", "Storage size calculation overflowed", "array is too big"  # of results
# More than any memory has. The address sanitizer ends who asks for it.
HUGE = () if "ASAN_OPTIONS" in os.environ else (2**50, 2**58)


class Draws(random.Random):
    def shape(self, dims):
        return tuple(self.choice((0, 1, 2, 3, 6, 8)) for _ in range(dims))

    def values(self, array):
        """Numbers for an array of any shape, of a kind with those of another."""
        if array.dtype.kind == "i":
            odd = self.choice(ODD)
            given = np.array([odd if self.random() < 0.2 else self.randrange(3) for _ in range(array.size)])
            return given.reshape(array.shape).astype(array.dtype)
        odd = self.choice((0.0, 1.0, np.inf, -np.inf, np.nan, 3e38, 1e-40))
        return np.where(np.random.default_rng(self.randrange(9)).random(array.shape) < 0.2, odd, array).astype(array.dtype)

    def windows(self, array):
        """A view with whatever sizes and steps lead to no byte outside of it; with a step of 0 also of more elements
        than any memory has."""
        dims = self.randrange(1, 5)
        shape, steps, left = [], [], array.size - 1
        for _ in range(dims):
            step = self.randrange(0, 9)
            size = self.choice((*HUGE, 1, 2, 5)) if step == 0 else self.randrange(0, left // step + 2)
            if step:
                left -= max(size - 1, 0) * step
            shape.append(size)
            steps.append(step)
        return shape, steps

    def changed(self, array):
        kind = self.randrange(7)
        if kind == 0:
            return np.zeros(self.shape(self.randrange(0, 6)), array.dtype)
        if kind == 1:
            return self.values(array)
        if kind == 2 and array.size:
            shape, steps = self.windows(array)
            try:
                return np.lib.stride_tricks.as_strided(np.ascontiguousarray(array), shape,
                                                       [step * array.itemsize for step in steps], writeable=False)
            except ValueError:  # NumPy's own limit
                return array
        if kind == 3:
            return array.astype(self.choice(("f4", "f8", "f2", "i4", "i8", "u1", "u8", ">f4")))
        if kind == 4 and array.ndim:
            return np.concatenate([array, array])[::self.choice((1, 2, -1))]
        if kind == 5 and array.ndim > 1:
            return self.choice((array[..., :0], array[:0], np.moveaxis(array, 0, self.randrange(array.ndim))))
        return self.choice((None, [], "x", 3, array.tolist(), array[..., None], array[None]))


def as_tensor(draws, array):
    """The same for torch, or what no tensor can be as it is."""
    if not isinstance(array, np.ndarray):
        return array
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError):  # unsigned, of another byte order, of negative steps
        return torch.zeros(draws.shape(draws.randrange(5)))


def elements(value):
    if isinstance(value, np.ndarray):
        return value.size
    return value.numel() if isinstance(value, torch.Tensor) else 0


def dense(value):
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).astype(value.dtype.newbyteorder("="))
    return value.contiguous().clone() if isinstance(value, torch.Tensor) else value


class Hostile(unittest.TestCase):
    def answer(self, function, given):
        """What comes out, or the error: moeloom's, of a type, or of memory that nobody has."""
        try:
            return outputs(function(*given)), None
        except (moeloom.Error, TypeError, MemoryError) as error:
            return None, error
        except (RuntimeError, ValueError) as error:
            if not any(words in str(error) for words in NO_MEMORY):
                raise
            return None, error

    @np.errstate(all="ignore")  # of numbers that another dtype has not
    def ask(self, table, made):
        answers = 0
        for number in range(CALLS):
            draws = Draws(number)
            which = draws.randrange(len(table))
            function, named = table[which]
            given = [tensor.numpy() for tensor in named.values()]
            for _ in range(draws.randrange(1, 4)):
                place = draws.randrange(len(given))
                if isinstance(given[place], np.ndarray) and max(given[place].shape, default=0) < 1e5:
                    given[place] = draws.changed(given[place])
            given = [made(draws, value) for value in given]
            with self.subTest(number=number, function=which, shapes=[np.shape(value) for value in given]):
                got, error = self.answer(function, given)
                if error:
                    self.assertTrue(str(error))
                    continue
                answers += 1
                if max(map(elements, given)) > 1e5:
                    continue
                wanted, refused = self.answer(function, [dense(value) for value in given])
                self.assertIsNone(refused)
                for one, other in zip(got, wanted):
                    one, other = (np.nan_to_num(each.detach().float().numpy()) for each in (one, other))
                    self.assertLess(difference(one, other), 1e-6)
        self.assertGreater(answers, CALLS // 20, "hardly any call gives an answer: the check would see nothing")

    def test_arrays_of_numpy(self):
        self.ask([(lambda *values, function=function, names=tuple(named): function(**dict(zip(names, values))), named)
                  for function, named in OF_NUMPY], lambda draws, value: value)

    def test_tensors(self):
        self.ask(OF_TORCH, as_tensor)


if __name__ == "__main__":
    unittest.main()
