"""The examples for Python, as their first lines say that they are run; those whose packages are missing are skipped."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import PACKAGE

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"

# name: what it imports, its arguments, a word of what it prints at its end
EXAMPLES = {
    "expert_parallel.py": (["torch", "transformers"], [], "step=19 loss="),
    "on_tensors.py": (["torch"], [], "rows an expert"),
    "patch_and_train.py": (["torch", "transformers"], [], "step=19 loss="),
    "sidecar.py": ([], ["corpus.txt"], "checkpoint: runs/"),
}


class Examples(unittest.TestCase):
    def test_all_are_here(self):
        self.assertEqual({path.name for path in FOLDER.glob("*.py")}, set(EXAMPLES))

    def run_example(self, name):
        needs, arguments, word = EXAMPLES[name]
        missing = [package for package in needs if importlib.util.find_spec(package) is None]
        if missing:
            self.skipTest(f"{name}: {' and '.join(missing)} not installed")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "corpus.txt").write_text("In the beginning was the word.\n" * 200)
            done = subprocess.run([sys.executable, FOLDER / name, *arguments], cwd=folder, capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": str(PACKAGE)}, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(word, done.stdout)

    def test_on_tensors(self):
        self.run_example("on_tensors.py")

    def test_expert_parallel(self):  # by one rank
        self.run_example("expert_parallel.py")

    def test_patch_and_train(self):
        self.run_example("patch_and_train.py")

    def test_sidecar(self):
        self.run_example("sidecar.py")
