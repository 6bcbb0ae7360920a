"""What a process keeps: imports, threads, forks, memory; and what the library is found by."""

import os
import re
import unittest
from pathlib import Path
from unittest import mock

import torch
from support import python

import moeloom
from moeloom import _library, _program

# A product of torch's, and how many threads worked for it: those whose own time grew by a tenth of it or more.
WORKERS = """
import os, torch
from pathlib import Path
from unittest import mock
def ticks():
    stats = {t.name: (t / "stat").read_text().rsplit(")", 1)[1].split() for t in Path("/proc/self/task").iterdir()}
    return {name: int(fields[11]) + int(fields[12]) for name, fields in stats.items()}
def workers():
    a = torch.randn(1024, 1024)
    a @ a
    before = ticks()
    for _ in range(30): a @ a
    spent = [after - before.get(name, 0) for name, after in ticks().items()]
    return sum(10 * one > sum(spent) for one in spent)
"""
STEP = """
import torch, moeloom.torch as mt
torch.manual_seed(3)
moe = mt.MoE(64, 48, 8, 2)
optimizer = mt.AdamW(moe.parameters())
def step():
    y = moe(torch.randn(50, 64))
    y.pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return y
"""


class Process(unittest.TestCase):
    def test_import_brings_neither_numpy_nor_torch_nor_the_library(self):
        seen = python("import sys, moeloom; print([m for m in ('numpy', 'torch', 'mpi4py') if m in sys.modules],"
                      "'libmoeloom' in open('/proc/self/maps').read())")
        self.assertEqual(seen, "[] False")
        self.assertEqual(python("import sys, moeloom.ops; print('torch' in sys.modules)"), "False")

    def test_torch_computes_on_as_many_processors_as_before(self):
        before, after = python(
            WORKERS + "before = workers(), torch.get_num_threads()\n" + STEP +
            "step(); print(before, (workers(), torch.get_num_threads()), sep=';')", OMP_NUM_THREADS="2").split(";")
        self.assertEqual(before, after)

    def test_bits_do_not_depend_on_threads(self):
        code = STEP + """
import hashlib
for _ in range(3): y = step()
print(hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in (y, *moe.parameters()))).hexdigest())"""
        self.assertEqual(len({python(code, OMP_NUM_THREADS=str(n)) for n in (1, 2, 1, 2)}), 1)

    def test_a_forked_worker_is_refused_and_others_go_on(self):
        said = python(STEP + """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        try: return str(moe(torch.randn(3, 64)))
        except Exception as error: return type(error).__name__ + ": " + str(error)
class Plain(Data):
    def __getitem__(self, i): return torch.ones(3)
step()
print(next(iter(torch.utils.data.DataLoader(Data(), num_workers=1)))[0])
print(len(list(torch.utils.data.DataLoader(Plain(), num_workers=2))), step().shape[0])""", OMP_NUM_THREADS="1")
        error, rest = said.splitlines()
        self.assertRegex(error, "^Error: .*fork")
        self.assertEqual(rest, "4 50")

    def test_a_forked_child_gives_back_nothing(self):
        self.assertEqual(python("""
import os
from moeloom._library import Handle
handle = Handle("trip", 1, "ml_trip_free")  # no address of anything: to free it is a crash
child = os.fork()
if child == 0:
    handle.close()
    os._exit(0)
print(os.waitpid(child, 0)[1])
handle._finalizer.detach()"""), "0")

    def test_threads_take_turns(self):
        said = python(STEP + """
import threading
wrong = []
def work():
    try:
        x = torch.randn(20, 64)
        for _ in range(50): moe(x)
    except Exception as error: wrong.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(wrong)""", OMP_NUM_THREADS="1")
        self.assertEqual(said, "[]")

    def test_memory_of_steps_does_not_grow(self):
        said = python(STEP + """
import resource
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(100): step()
before = peak()
for _ in range(1000): step()
print(peak() - before)""", OMP_NUM_THREADS="1")
        self.assertLess(int(said), 2000)  # KiB

    def test_info(self):
        found = moeloom.info()
        self.assertEqual((found["version"], found["abi"]), (moeloom.__version__, 1))
        self.assertTrue(found["openmp"])
        self.assertEqual(os.path.realpath(found["library"]), os.path.realpath(os.environ["MOELOOM_LIBRARY"]))

    def test_command(self):
        main = "from moeloom.__main__ import main; import sys; sys.exit(main([{}]))"
        self.assertIn("library", python(main.format("'info'")))
        self.assertRegex(python(main.format("'check'")), r"\nright$")

    def test_a_library_that_is_none(self):
        code = """
import moeloom
from moeloom import _library, _program
try: moeloom.info()
except moeloom.Error as error: print(type(error).__name__, error)"""
        self.assertRegex(python(code, MOELOOM_LIBRARY="/nowhere/lib.so"), "^IoError .*MOELOOM_LIBRARY")
        libc = re.search(r"/\S*libc\.so\.6", Path("/proc/self/maps").read_text()).group()
        self.assertRegex(python(code, MOELOOM_LIBRARY=libc), "^ConfigError .*not the library of moeloom")

    def test_a_short_path_has_a_program_and_a_library_too(self):
        for folder in ("/moeloom", "/app/moeloom", "/opt/app/moeloom"):
            with mock.patch.object(_library, "PACKAGE", Path(folder)), mock.patch.object(
                    _program, "PACKAGE", Path(folder)), mock.patch.dict(os.environ, PATH="/nowhere"):
                os.environ.pop("MOELOOM_LIBRARY", None)
                os.environ.pop("MOELOOM_PROGRAM", None)
                self.assertEqual(Path(_library.library_path()).name, _library.NAME)
                with self.assertRaisesRegex(moeloom.IoError, "MOELOOM_PROGRAM"):
                    _program.program()

    def test_errors_are_what_python_users_catch(self):
        for error, builtin in ((moeloom.ShapeError, ValueError), (moeloom.ConfigError, ValueError),
                               (moeloom.IoError, OSError), (moeloom.MpiError, RuntimeError),
                               (moeloom.SpentError, RuntimeError)):
            self.assertTrue(issubclass(error, builtin) and issubclass(error, moeloom.Error))

    def test_torch_is_one_that_is_supported(self):
        self.assertGreaterEqual(tuple(map(int, torch.__version__.split(".")[:2])), (1, 13))
