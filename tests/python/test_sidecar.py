"""The program from Python: a small run on two ranks, its errors, its end."""

import fcntl
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import moeloom
from moeloom import _program

SMALL = {"layers": 2, "hidden": 32, "inter": 32, "experts": 4, "heads": 2, "kv_heads": 1, "head_dim": 16, "seq_len": 32,
         "global_batch": 4, "eval_every": 5, "save_every": 5, "threads": 1}
RECORDS = [{"text": "In the beginning was the word. " * 30} for _ in range(20)]

PACKAGE = str(Path(__file__).resolve().parents[2] / "src" / "python")


def interrupt(seconds):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def hidden(folder):
    return list(Path(folder).glob(".sidecar-*"))


def let_go(folder):
    """Whether no process of the run has its output open any more: ranks end a moment after mpirun."""
    with open(hidden(folder)[0] / "output.txt", "rb") as output:
        try:
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Sidecar(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(folder.name)
        patch = mock.patch.object(tempfile, "tempdir", folder.name)
        patch.start()
        self.addCleanup(patch.stop)
        Path("corpus.txt").write_text("In the beginning was the word.\n" * 200)

    def train(self, data="corpus.txt", **options):
        return moeloom.train(None, data, **{**SMALL, **options})

    def test_trains_and_tells(self):
        run = self.train(RECORDS, ranks=2, ep=2, steps=10)
        self.assertEqual(run.folder.parent, Path("runs"))
        steps = list(run)
        written = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(steps, written)
        self.assertEqual([step["step"] for step in steps if "loss" in step], list(range(10)))
        self.assertIs(run.wait(), run)
        self.assertEqual(run.checkpoint().name, "checkpoint-10")
        self.assertEqual((run.running, run.stopped), (False, False))
        self.assertEqual(list(run), steps)

        text = moeloom.generate(run.folder, "In the", tokens=5, temperature=0)
        self.assertEqual(text, moeloom.generate(run.folder, ["In the"], tokens=5, temperature=0)[0])
        self.assertEqual(len(moeloom.generate(run.folder, ["In", "of\nold"], tokens=5)), 2)

    def test_ctrl_c_stops_with_a_checkpoint_and_a_resume_goes_on(self):
        run = self.train(ranks=2, steps=1000000)
        seen = []
        for step in run:
            seen.append(step["step"])
            if len(seen) == 20:
                interrupt(2)
        self.assertTrue(run.stopped)
        self.assertGreaterEqual(seen[-1], 19)
        self.assertEqual(run.checkpoint().name, f"checkpoint-{seen[-1] + 1}")
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

        more = moeloom.train(None, None, ranks=2, resume=run.folder, steps=seen[-1] + 6)
        self.assertEqual(more.folder, run.folder)
        self.assertEqual([step["step"] for step in more][-1], seen[-1] + 5)

    def test_ctrl_c_while_it_waits(self):
        run = self.train(steps=1000000)
        interrupt(2)
        self.assertTrue(run.wait().stopped)

    def test_ctrl_c_in_a_loops_body_is_an_interrupt(self):
        run = self.train(steps=1000000)
        left = iter(run)
        next(left)
        with self.assertRaises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        self.assertTrue(run.running)
        thread = threading.Thread(target=left.close)
        thread.start()
        thread.join()
        self.assertTrue(run.stop().stopped)

    def test_ctrl_c_stops_that_of_two_runs_that_is_waited_for(self):
        runs = [self.train(run=name, steps=1000000) for name in "ab"]
        iterations = [iter(run) for run in runs]
        for _ in range(3):
            for iteration in iterations:
                next(iteration)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        for mine, other in (runs, runs[::-1]):
            self.assertTrue(mine.running)
            was = other.running
            interrupt(2)
            for _ in iterations[runs.index(mine)]:
                pass
            self.assertTrue(mine.stopped)
            self.assertEqual(other.running, was)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_a_handler_that_came_meanwhile_stays(self):
        run, mine = self.train(steps=3), lambda *_: None
        self.addCleanup(signal.signal, signal.SIGINT, signal.default_int_handler)
        for _ in run:
            signal.signal(signal.SIGINT, mine)
        self.assertIs(signal.getsignal(signal.SIGINT), mine)

    def test_leaving_an_iteration_stops_nothing(self):
        run = self.train(steps=1000000)
        for _ in run:
            break
        time.sleep(0.2)
        self.assertTrue(run.running)
        self.assertTrue(run.stop().stopped)

    def test_errors_are_the_programs_words(self):
        self.train(run="mine", steps=2).wait()
        for error, words, options in (
                (moeloom.ConfigError, 'unknown option "--frob"', {"frob": 1}),
                (moeloom.ConfigError, "^ep = 3 does not divide the 2 ranks", {"ep": 3, "ranks": 2}),
                (moeloom.ConfigError, "^mine holds a run already", {"run": "mine"}),
                (moeloom.IoError, "nowhere.txt", {"data": "nowhere.txt"})):
            with self.assertRaisesRegex(error, words):
                self.train(**{"steps": 2, **options}).wait()
        self.assertEqual(len(list(self.train(run="mine", overwrite=True, steps=3))), 3)
        with self.assertRaisesRegex(moeloom.IoError, "nowhere"):
            moeloom.generate("nowhere", "x")
        with self.assertRaisesRegex(moeloom.ConfigError, "whole number"):
            moeloom.plan(ranks="many")
        with self.assertRaisesRegex(TypeError, "int"):
            self.train([1, 2])
        with self.assertRaises(moeloom.ConfigError):
            self.train([])
        self.assertEqual(list(Path("runs").iterdir()), [], "a refused run leaves its folder")

    def test_a_refused_run_leaves_no_records(self):
        for options in ({}, {"run": "named"}):
            with self.assertRaisesRegex(moeloom.ConfigError, "frob"):
                self.train(RECORDS, frob=1, **options)
        self.assertEqual(list(Path("runs").iterdir()), [])
        self.assertFalse(Path("named").exists())

        self.train(RECORDS, run="mine", steps=2).wait()
        before = Path("mine/records.jsonl").read_bytes()
        with self.assertRaisesRegex(moeloom.ConfigError, "^mine holds a run already"):
            self.train(RECORDS[:5], run="mine", steps=2)
        self.assertEqual(Path("mine/records.jsonl").read_bytes(), before, "those of the run that is there")
        self.assertEqual([path.name for path in Path("mine").glob("records*")], ["records.jsonl"])

    def test_a_mapping_is_one_record_and_no_list(self):
        with self.assertRaisesRegex(TypeError, "data is a dict; expected .*a list of records"):
            self.train({"text": "one"})
        self.assertEqual(list(Path("runs").iterdir()), [])

    def test_a_model_object_is_saved_first(self):
        donor = self.train(steps=2).wait().checkpoint()

        class Model:
            """What transformers' models offer."""

            def save_pretrained(self, folder):
                Path(folder).mkdir(parents=True, exist_ok=True)
                for name in ("config.json", "model.safetensors"):
                    (Path(folder) / name).write_bytes((donor / name).read_bytes())
        run = moeloom.train(Model(), "corpus.txt", steps=2, seq_len=32, global_batch=4)
        self.assertEqual(len(list(run)), 2)
        self.assertEqual([path.name for path in hidden(run.folder)[0].iterdir()], ["output.txt"])
        with self.assertRaises(TypeError):
            moeloom.train(5, "corpus.txt")
        folder = run.folder
        del run
        gc.collect()
        self.assertEqual(list(self.folder.glob("moeloom-*")), [], "folders that were only for the run")
        self.assertEqual(hidden(folder), [])
        self.assertEqual([path for path in Path("runs").iterdir() if not (path / "train.log").exists()], [])

    def test_ends_with_a_checkpoint_when_python_ends(self):
        for number, (ranks, end) in enumerate(((1, "os._exit(0)"), (2, "os.kill(os.getpid(), signal.SIGKILL)"),
                                               (1, "sys.exit()"))):
            folder = Path(f"orphan{number}")
            code = f"""
import moeloom, os, signal, sys, threading
def work():
    global run
    run = moeloom.train(None, "corpus.txt", run="{folder}", ranks={ranks}, steps=1000000, **{SMALL})
thread = threading.Thread(target=work)  # the run ends with Python, not with the thread that began it
thread.start(); thread.join()
for step in run:
    if step["step"] == 30: break
print(run.running, run._process.pid, flush=True)
{end}"""
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                                  timeout=600, env={**os.environ, "PYTHONPATH": PACKAGE})
            self.assertEqual(done.stdout.split()[0:1], ["True"], done.stderr)
            self.assertTrue(within(240, lambda: not alive(int(done.stdout.split()[1]))), "the run goes on")
            last = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()][-1]
            self.assertGreaterEqual(last, 30)
            self.assertTrue((folder / f"checkpoint-{last + 1}").is_dir())
            self.assertEqual(len(hidden(folder)), 1)
            self.assertTrue(within(240, lambda: let_go(folder)))
            more = moeloom.train(None, None, ranks=ranks, resume=folder, steps=last + 3)
            self.assertEqual(len(hidden(folder)), 1, "its own alone")
            more.wait()

    def test_a_folder_that_cannot_be(self):
        with self.assertRaisesRegex(moeloom.IoError, "corpus.txt cannot hold a run: .*; name another"):
            self.train(run="corpus.txt")

    def test_folders_of_a_run_that_goes_on_stay(self):
        run = self.train(run="mine", steps=1000000)
        with self.assertRaisesRegex(moeloom.ConfigError, "^mine holds a run already"):
            next(iter(run))
            self.train(run="mine", steps=2).wait()
        gc.collect()
        self.assertEqual(len(hidden(run.folder)), 1)
        self.assertIsInstance(run.output, str)
        run.stop()

    def test_a_long_prompt_goes_through_a_file(self):
        words, size = "In the beginning ", 128 * 1024
        long = words * (size // len(words) + 1)
        given = []

        def ran(command):
            given.append(command[-1])
            file = Path(command[-1].removeprefix("--prompts="))
            return "".join(json.dumps({"text": str(len(line))}) + "\n" for line in file.read_text().splitlines())
        with mock.patch.object(_program, "run", ran):
            self.assertEqual(moeloom.generate("mine", long), str(len(long)))
            self.assertEqual(moeloom.generate("mine", [long, "x"]), [str(len(long)), "1"])
        self.assertTrue(all(word.startswith("--prompts=") for word in given))
        with self.assertRaisesRegex(moeloom.ConfigError, r"a prompt of \d+ bytes has line ends; .*shorten it"):
            moeloom.generate("mine", "\n" + long)
        for size in (size // 2, size // 2 + 1, size):  # the longest that is a word, and one that is not: both arrive
            with self.assertRaisesRegex(moeloom.IoError, "nowhere"):
                moeloom.generate("nowhere", "x" * size)
        for prompt in (None, 5, [5], [None], b"x"):
            with self.assertRaises(TypeError):
                moeloom.generate("mine", prompt)

    def test_plan_has_a_row_a_mesh(self):
        rows = moeloom.plan(ranks=2, **{name: SMALL[name] for name in ("layers", "hidden", "inter", "experts")})
        self.assertEqual({(row["dp"], row["ep"]) for row in rows}, {(1, 2), (2, 1)})

    def test_options_are_written_as_the_program_reads_them(self):
        self.assertEqual(
            _program.arguments({"kv_heads": 2, "overwrite": True, "resume": None, "dense_layers": [0, 3],
                                "lora": {"r": 16, "rslora": True}, "data": ["a,b.txt", "c.txt"], "stop": ["a", "b"]}),
            ["--kv-heads=2", "--overwrite=true", "--dense-layers=0,3", "--lora=r=16,rslora=true", "--data=a,b.txt",
             "--data=c.txt", "--stop=a", "--stop=b"])
