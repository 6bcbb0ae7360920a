"""How jobs of several ranks end where one cannot go on. Programs of their own, several at a time."""

import importlib.util
import unittest
from concurrent.futures import ThreadPoolExecutor

from ranks import LAYER, on_ranks

BEGIN = LAYER + """
mesh = moeloom.mesh(ep=2, timeout=float(sys.argv[1]))
odd = mesh.rank == mesh.size - 1
experts = layer(mesh, 3)
y, trip = experts.forward(x, topk_idx, topk_weights)
print("begun\\n", end="", flush=True)

def on():
    while True:
        experts.forward(x, topk_idx, topk_weights)

def in_thread():
    raise KeyError("of a thread")
"""

# What the last of two ranks does while the other goes on: the limit of a wait, its code.
ENDINGS = {
    "raises": (300, "if odd: raise ValueError('no data')\non()"),
    "raises in a thread": (300, "if odd: threading.Thread(target=in_thread).start()\non()"),
    "ends early": (300, "if not odd: on()"),
    "sys.exit": (300, "if odd: sys.exit(3)\non()"),
    "sys.exit of both": (300, "sys.exit(3)"),
    "Ctrl-C": (300, "if odd: os.kill(os.getpid(), 2)\non()"),
    "raises in a with": (300, "with mesh:\n    if odd: raise ValueError('no data')\n    on()"),
    "goes on alone at the end": (3, "if odd: time.sleep(8)"),
    "killed": (300, "if odd: os.kill(os.getpid(), 9)\non()"),
    "stopped": (5, "if odd: os.kill(os.getpid(), 19)\non()"),
    "stopped in a call": (5, "if odd: threading.Timer(0.5, os.kill, (os.getpid(), 19)).start()\non()"),
    "both fail alike": (300, "raise ValueError('no data')"),
    "told to both": (300, "mesh.world.agree('no data' if odd else '', 'loading')"),
    "caught, and went on": (300, "try: mesh.world.enter('saving' if odd else 'loading')\nexcept moeloom.MpiError: pass"),
    "forked": (300, """
if odd and os.fork() == 0:
    try:
        experts.forward(x, topk_idx, topk_weights)
    except moeloom.Error as error:
        print(f"refused: {error}\\n", end="", flush=True)
        raise ValueError("of a child")
if odd: os.wait()
experts.backward(trip, x)
mesh.close()
"""),
}

# The same of programs that make no mesh of their own before.
UNMADE = {
    "does not come to a mesh": "if odd: time.sleep(600)\nmoeloom.mesh(ep=2, timeout=1)",
    "cannot make a mesh": "from mpi4py import MPI\nmoeloom.mesh(ep='2' if odd else 2)",
    "fails while it makes a mesh": """
from moeloom import _leftovers
def fail(*_): raise KeyError("of the files")
if odd: _leftovers._found = fail
moeloom.mesh(ep=2, timeout=300)
""",
    "has mapped a file whose name is not UTF-8": """
import mmap, tempfile
with tempfile.TemporaryDirectory() as folder, open(os.fsencode(folder) + b"/data-\\xe9", "w+b") as file:
    file.truncate(1)
    mapped = mmap.mmap(file.fileno(), 1)
    moeloom.mesh(ep=2, timeout=300).barrier()
""",
    "makes one in a child": """
import multiprocessing
if __name__ == "__main__":
    mesh = moeloom.mesh(ep=2)
    mesh.barrier()
    if odd:
        child = multiprocessing.get_context("spawn").Process(target=print)
        child.start()
        child.join(300)
        assert child.exitcode == 1, child.exitcode
    mesh.barrier()
else:
    moeloom.mesh(ep=2)
""",
}
HAS_MPI4PY = importlib.util.find_spec("mpi4py")


class Endings(unittest.TestCase):
    """Each job before its limit, its code not 0, and what is told of it."""

    @classmethod
    def setUpClass(cls):
        with ThreadPoolExecutor(3) as pool:
            jobs = {name: pool.submit(on_ranks, 2, BEGIN + code, limit, seconds=600)
                    for name, (limit, code) in ENDINGS.items()}
            jobs.update((name, pool.submit(on_ranks, 2, LAYER + "odd = os.environ.get('OMPI_COMM_WORLD_RANK') == '1'\n"
                                           + code, seconds=600)) for name, code in UNMADE.items())
            cls.done = {name: job.result() for name, job in jobs.items()}

    def ended(self, name, *words):
        done = self.done[name]
        self.assertNotEqual(done.code, 0, done.text)
        self.assertLess(done.seconds, 240, done.text)
        self.assertEqual(done.out.count("begun"), 0 if name in UNMADE else 2, done.text)
        for word in words:
            self.assertIn(word, done.err)
        return done

    def test_an_exception_ends_the_job_with_the_ranks_name(self):
        done = self.ended("raises", "rank 1 of 2 (", "Traceback (most recent call last)", "ValueError: no data")
        self.assertNotIn("rank 0 of 2", done.err)
        done = self.ended("raises in a with", "rank 1 of 2 (", "ValueError: no data")
        self.assertNotIn("rank 0 of 2", done.err)

    def test_so_does_one_in_a_thread(self):
        done = self.ended("raises in a thread", "KeyError: 'of a thread'")
        self.assertRegex(done.err, r"rank 1 of 2 \(.*\), in Thread-1.*: Traceback")

    def test_a_mesh_that_is_not_made_ends_the_job(self):
        self.ended("does not come to a mesh", "rank 0 of 2 (", " s in the making of a mesh for other ranks")
        if HAS_MPI4PY:
            self.ended("cannot make a mesh", "rank 1 of 2 (", "TypeError: ep is '2'")
        self.ended("fails while it makes a mesh", "KeyError: 'of the files'",
                   "rank 0 is in a mesh of ep = 2", "rank 1 is in the end of the program")

    def test_names_of_mapped_files_are_of_any_encoding(self):
        done = self.done["has mapped a file whose name is not UTF-8"]
        self.assertEqual((done.code, done.err), (0, ""), done.text)

    def test_a_child_is_told_that_it_is_no_rank(self):
        done = self.done["makes one in a child"]
        self.assertEqual(done.code, 0, done.text)
        self.assertIn('ConfigError: moeloom.mesh() in a process that multiprocessing started', done.err)
        self.assertIn('if __name__ == "__main__":', done.err)

    def test_a_rank_may_go_on_alone_at_its_end(self):
        done = self.done["goes on alone at the end"]
        self.assertEqual((done.code, done.err), (0, ""), done.text)

    def test_a_rank_that_ends_is_met_by_those_that_go_on(self):
        for name in ("ends early", "sys.exit"):
            self.ended(name, "rank 0 of 2 (", "Traceback", "rank 0 is in the forward of layer 3 (call",
                       "rank 1 is in the end of the program (call", "; rank 1 has ended its program; its own error")

    def test_an_exit_code_is_the_jobs(self):
        done = self.ended("sys.exit of both")
        self.assertEqual(done.code, 3)
        self.assertNotIn("improperly", done.err)

    def test_an_interrupt_is_told(self):
        self.ended("Ctrl-C", "rank 1 of 2 (", "KeyboardInterrupt")

    def test_a_killed_rank_ends_the_job(self):
        self.ended("killed", "signal 9")

    def test_a_stopped_rank_ends_the_job_after_the_limit(self):
        self.ended("stopped", "rank 0 of 2 (", "waited 5 s in the forward of layer 3 for rank 1, which did not come")
        self.ended("stopped in a call", "rank 0 of 2 (", " s in the forward of layer 3 for ")

    def test_what_all_ranks_have_is_told_by_each_or_once(self):
        done = self.ended("both fail alike")
        self.assertEqual(done.err.count("ValueError: no data"), 2, done.err)
        done = self.ended("told to both", "rank 0 of 2 (", "Error: rank 1: no data")
        self.assertEqual(done.err.count("Traceback"), 1, done.err)

    def test_no_job_goes_on_after_ranks_differed(self):
        done = self.ended("caught, and went on", "rank 0 is in loading (call", "rank 1 is in saving (call")
        self.assertEqual(done.err.count("do not make the same calls"), 1, done.err)

    def test_a_forked_child_has_no_ranks(self):
        done = self.done["forked"]
        self.assertEqual(done.code, 0, done.text)
        self.assertEqual(done.out.count("refused: process"), 1, done.text)
        self.assertEqual(done.err.count("ValueError: of a child"), 1, done.text)
        self.assertNotIn("rank 1 of 2", done.err)


if __name__ == "__main__":
    unittest.main()
