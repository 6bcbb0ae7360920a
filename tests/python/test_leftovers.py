"""What is left of a job whose ranks or launcher are killed or stopped in a layer's step: nothing, and a word of it."""

import mmap
import os
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ranks import LAYER, on_ranks

from moeloom._leftovers import _found, _shell_for

LIMIT = 240  # of a call, in seconds; what ends sooner did not end by it

STEPS = LAYER + """
mesh = moeloom.mesh(ep=2, timeout=SECONDS)
experts = layer(mesh, 3)
segments = {line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/" in line}
print("".join(f"maps {segment}\\n" for segment in segments), end="", flush=True)
if os.fork() == 0:  # as a worker, which sees no end of the rank, and whose own nobody waits for
    os.closerange(0, 3)
    for _ in range(600):
        if any(map(os.path.exists, segments)): time.sleep(0.1)
    os._exit(0)
rank, other = sorted(map(int, mesh.gather(str(os.getpid()))), key=os.getpid().__ne__)
def kills():
    print("kills\\n", end="", flush=True)
    for number, process in (SIGNALS): os.kill(process, number)
for step in itertools.count():
    if step == 50 and mesh.rank == 1: threading.Thread(target=kills).start()
    y, trip = experts.forward(x, topk_idx, topk_weights)
    experts.backward(trip, y)
"""

# Signals that rank 1 sends in the middle of its own steps, and what is told of them.
STOPPED = "a rank is stopped"
CASES = {
    "a rank is killed": ("(9, rank),", "signal 9"),
    "a rank is terminated": ("(15, rank),", "signal 15"),
    STOPPED: ("(19, rank),", "rank 0 of 2 ("),
    "the launcher is killed": ("(9, os.getppid()),", ""),
    "all are killed": ("(9, os.getppid()), (9, other), (9, rank)", ""),
}


def left_of(paths):
    """What is there of them when the launcher has been over for a moment."""
    for _ in range(600):
        left = [str(path) for path in paths() if path.exists()]
        if not left:
            break
        time.sleep(0.1)
    return left


def job(name):
    """The job, what it mapped, and what is left of it."""
    with tempfile.TemporaryDirectory() as folder:
        code = STEPS.replace("SIGNALS", CASES[name][0]).replace("SECONDS", "10" if name == STOPPED else str(LIMIT))
        done = on_ranks(2, "import itertools\n" + code, seconds=4 * LIMIT, TMPDIR=folder)
        segments = {Path(line.split()[1]) for line in done.out.splitlines() if line.startswith("maps ")}
        return done, segments, left_of(lambda: (*segments, *Path(folder).iterdir()))


class Leftovers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with ThreadPoolExecutor(3) as pool:
            cls.jobs = dict(zip(CASES, pool.map(job, CASES)))

    def test_nothing_is_left_in_shared_memory_or_the_folder_for_files_that_pass(self):
        for name, (done, segments, left) in self.jobs.items():
            with self.subTest(name):
                self.assertTrue(segments, done.text)
                self.assertEqual(left, [])

    def test_each_job_ends_soon_with_a_word(self):
        for name, (done, _, _) in self.jobs.items():
            with self.subTest(name):
                self.assertNotEqual(done.code, 0, done.text)
                self.assertLess(done.seconds, LIMIT, done.text)
                self.assertIn(CASES[name][1], done.err)
                self.assertLessEqual(done.err.count("Traceback"), 1, done.text)
                self.assertNotIn("core dumped", done.err)
        self.assertIn("kills\n", self.jobs[STOPPED][0].out)  # its limit did not end it before


class Shell(unittest.TestCase):
    """That of a rank which has ended, with what a launcher left in a folder for files that pass."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name, "passes")
        self.folder.mkdir()
        for path in (self.folder.parent, self.folder):
            path.chmod(0o777)
        self.segment = self.folder / "vader_segment.host.0.4fff0001.0"
        self.segment.write_bytes(b"x")

    def begin(self, launcher, session, **options):
        self.session = self.folder / session
        self.session.mkdir(parents=True, exist_ok=True)
        shell = _shell_for(launcher.pid, str(self.session), [str(self.segment)], **options)
        self.addCleanup(shell.wait)
        self.addCleanup(shell.kill)
        shell.stdin.close()
        return shell

    def launcher(self):
        process = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_removes_the_folder_of_all_sessions_but_not_that_for_files_that_pass(self):
        for session in ("ompi.host.0/pid.N", "prterun.host.N.0", "prted.host.N.0"):
            with self.subTest(session):
                launcher = self.launcher()
                shell = self.begin(launcher, session.replace("N", str(launcher.pid)))
                launcher.kill()
                launcher.wait()
                shell.wait(LIMIT)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_zombie_has_ended(self):
        launcher = self.launcher()
        launcher.kill()
        os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOWAIT)
        self.begin(launcher, f"prterun.host.{launcher.pid}.0").wait(LIMIT)
        self.assertEqual(left_of(lambda: [self.session, self.segment]), [])

    def test_waits_as_long_as_the_launcher_lives(self):
        launcher = self.launcher()
        shell = self.begin(launcher, f"prterun.host.{launcher.pid}.0")
        time.sleep(4)
        self.assertIsNone(shell.poll())
        launcher.kill()
        shell.wait(LIMIT)
        self.assertEqual(left_of(lambda: [self.session, self.segment]), [])

    def test_ends_where_the_launcher_has_removed_all(self):
        launcher = self.launcher()
        shell = self.begin(launcher, f"prterun.host.{launcher.pid}.0")
        self.segment.unlink()
        self.session.rmdir()
        self.assertEqual(shell.wait(LIMIT), 0)
        self.assertIsNone(launcher.poll())

    def mapped(self):
        """As another rank has the segment."""
        with self.segment.open("rb") as file:
            return mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)

    def test_leaves_its_session_to_a_launcher_that_outlives_the_job(self):
        launcher = self.launcher()
        with self.mapped():
            shell = self.begin(launcher, f"prte.host.{launcher.pid}.0")
            time.sleep(4)
            self.assertIsNone(shell.poll())
        self.assertEqual(shell.wait(LIMIT), 0)
        self.assertEqual(list(self.folder.iterdir()), [self.session])
        shell = self.begin(launcher, self.session.name)
        self.assertEqual(shell.wait(LIMIT), 0)
        self.assertTrue(self.session.exists())
        self.assertIsNone(launcher.poll())

    def test_removes_the_session_of_such_a_launcher_that_has_ended_before_the_job(self):
        launcher = self.launcher()
        with self.mapped():
            shell = self.begin(launcher, f"prte.host.{launcher.pid}.0")
            launcher.kill()
            launcher.wait()
            shell.wait(LIMIT)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_leaves_the_session_of_a_launcher_that_it_may_not_look_into(self):
        class Init:
            pid = 1
        nobody = {"user": 65534} if os.getuid() == 0 else {}
        shell = self.begin(Init, "prterun.host.1.0", **nobody)
        self.session.chmod(0o777)
        with self.assertRaises(subprocess.TimeoutExpired):
            shell.wait(1)
        self.assertTrue(self.session.exists())

    def test_finds_segments_wherever_they_lie(self):
        segments = ["/big/my room/sm_segment.node-1.example.1000.c3a80001.12", "/dev/shm/vader_segment.vm.0.4fff0001.0"]
        others = ["/dev/shm/vader_segment.vm.0.4fff0001.1 (deleted)", "/lib/vader_segment.vm.0.4fff0001.2/file",
                  "/data/sm_segment.npy", "/data/sm_segment.vm.0.1.2.npy", "/data/my_sm_segment.vm.0.1.2",
                  "/tmp/ompi.h.0/pid.77/1/0/file"]
        shared = [f"7f00-7f10 rw-s 00000000 00:1a 12    {path}" for path in segments + others]
        private = [f"7f00-7f10 rw-p 00000000 00:1a 12    /data/{name}" for name in
                   ("sm_segment.npy", "sm_segment.vm.0.4fff0001.3")]
        self.assertEqual(_found(shared + private), ("/tmp/ompi.h.0/pid.77", 77, segments))

    def test_leaves_what_a_user_has_mapped_under_such_a_name(self):
        files = [self.folder / "sm_segment.npy", self.folder / "sm_segment.host.0.1.2"]
        for file in files:
            file.write_bytes(b"x")
        with files[0].open("rb") as shared, files[1].open("r+b") as private, \
                mmap.mmap(shared.fileno(), 1, prot=mmap.PROT_READ), \
                mmap.mmap(private.fileno(), 1, mmap.MAP_PRIVATE):
            maps = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
        self.assertEqual(sum(str(self.folder) in line for line in maps), 2)
        self.assertEqual(_found(maps)[2], [])


if __name__ == "__main__":
    unittest.main()
