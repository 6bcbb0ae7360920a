"""What is left of a job whose ranks or launcher are killed or stopped in a layer's step: nothing, and a word of it."""

import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ranks import LAYER, on_ranks

STEPS = LAYER + """
mesh = moeloom.mesh(ep=2, timeout=1)
experts = layer(mesh, 3)
segments = {line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/" in line}
print("".join(f"maps {segment}\\n" for segment in segments), end="", flush=True)
if os.fork() == 0:  # as a worker, which sees no end of the rank, and whose own nobody waits for
    os.closerange(0, 3)
    for _ in range(100):
        if any(map(os.path.exists, segments)): time.sleep(0.1)
    os._exit(0)
rank, other = sorted(map(int, mesh.gather(str(os.getpid()))), key=os.getpid().__ne__)
def kills():
    for number, process in (SIGNALS): os.kill(process, number)
if mesh.rank == 1: threading.Timer(0.5, kills).start()
while True:
    y, trip = experts.forward(x, topk_idx, topk_weights)
    experts.backward(trip, y)
"""

# Signals that rank 1 sends in the middle of its own steps, and what is told of them.
CASES = {
    "a rank is killed": ("(9, rank),", "signal 9"),
    "a rank is terminated": ("(15, rank),", "signal 15"),
    "a rank is stopped": ("(19, rank),", "rank 0 of 2 ("),
    "the launcher is killed": ("(9, os.getppid()),", ""),
    "all are killed": ("(9, os.getppid()), (9, other), (9, rank)", ""),
}


def job(signals):
    """The job, and what is there of it when it has been over for a moment."""
    with tempfile.TemporaryDirectory() as folder:
        code = STEPS.replace("SIGNALS", signals)
        done = on_ranks(2, code, seconds=60, TMPDIR=folder)
        segments = {Path(line.split()[1]) for line in done.out.splitlines() if line.startswith("maps ")}
        for _ in range(80):
            left = [str(path) for path in (*segments, *Path(folder).iterdir()) if path.exists()]
            if not left:
                break
            time.sleep(0.1)
        return done, segments, left


class Leftovers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with ThreadPoolExecutor(3) as pool:
            cls.jobs = dict(zip(CASES, pool.map(job, (signals for signals, _ in CASES.values()))))

    def test_nothing_is_left_in_shared_memory_or_the_folder_for_files_that_pass(self):
        for name, (done, segments, left) in self.jobs.items():
            with self.subTest(name):
                self.assertTrue(segments, done.text)
                self.assertEqual(left, [])

    def test_each_job_ends_soon_with_a_word(self):
        for name, (done, _, _) in self.jobs.items():
            with self.subTest(name):
                self.assertNotEqual(done.code, 0, done.text)
                self.assertLess(done.seconds, 20, done.text)
                self.assertIn(CASES[name][1], done.err)
                self.assertLessEqual(done.err.count("Traceback"), 1, done.text)
                self.assertNotIn("core dumped", done.err)


if __name__ == "__main__":
    unittest.main()
