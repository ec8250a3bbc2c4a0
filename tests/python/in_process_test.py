#!/usr/bin/env python3
"""The examples of examples/in_process, and the library as somebody outside installs and links it.

    tests/python/in_process_test.py --program build/tracestep [-k PATTERN]

What needs torch, transformers, CMake or pkg-config is skipped where there is none; without torch it ends with status 77.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples/in_process")]
warnings.filterwarnings("ignore")
PROGRAM = "tracestep"
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(outside C)
find_package(tracestep 0.1 REQUIRED)
add_executable(train_folder ${SOURCE})
target_link_libraries(train_folder PRIVATE tracestep::tracestep)
"""


def said(*command, **options):
    """What a command prints; its messages when it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class OutsideTest(unittest.TestCase):
    """A project that knows nothing of this one but where it is installed."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.place = pathlib.Path(cls.folder.name)
        if not shutil.which("cmake"):
            raise unittest.SkipTest("there is no cmake")
        said("cmake", "--install", pathlib.Path(PROGRAM).parent, "--component", "library", "--prefix", cls.place / "prefix")
        cls.source = ROOT / "examples/in_process/train_folder.c"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def trains(self, program):
        weights = self.place / "weights.safetensors"
        lines = said(program, ROOT / "tests/captured/tiny", weights, "device=cpu threads=1").splitlines()
        self.assertRegex(lines[0], r"a step takes \d+ bytes")
        losses = [float(line.split()[-1]) for line in lines[1:]]
        self.assertEqual(len(losses), 10)
        self.assertLess(losses[-1], losses[0])
        self.assertIn(b"head.weight", weights.read_bytes())  # a tied name of the module's

    def test_a_package_of_cmake(self):
        (self.place / "project").mkdir()
        (self.place / "project/CMakeLists.txt").write_text(CMAKE)
        said("cmake", "-S", self.place / "project", "-B", self.place / "build", f"-DSOURCE={self.source}",
             f"-DCMAKE_PREFIX_PATH={self.place / 'prefix'}")
        said("cmake", "--build", self.place / "build")
        self.trains(self.place / "build/train_folder")

    def test_pkg_config_and_strict_c(self):
        if not shutil.which("pkg-config"):
            self.skipTest("there is no pkg-config")
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.place / "prefix/lib/pkgconfig")}
        flags = said("pkg-config", "--cflags", "--libs", "tracestep", env=env).split()
        program = self.place / "by_pkg_config"
        said("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", self.source, "-o", program, *flags,
             f"-Wl,-rpath,{self.place / 'prefix/lib'}")
        self.trains(program)

    def test_cxx(self):
        if not shutil.which("c++"):
            self.skipTest("there is no c++")
        program, weights = self.place / "train_folder_cpp", self.place / "cpp.safetensors"
        said("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", ROOT / "examples/in_process/train_folder.cpp", "-o", program,
             f"-I{self.place / 'prefix/include'}", f"-L{self.place / 'prefix/lib'}", "-ltracestep",
             f"-Wl,-rpath,{self.place / 'prefix/lib'}")
        lines = said(program, ROOT / "tests/captured/tiny", weights, "device=cpu threads=1").splitlines()
        self.assertEqual(len(lines), 20)
        losses = [float(line.split()[3]) for line in lines]
        self.assertLess(sum(losses[-4:]), sum(losses[:4]))
        self.assertIn(b"head.weight", weights.read_bytes())
        done = subprocess.run([program, self.place / "nothing", weights], capture_output=True, text=True)
        self.assertEqual((done.returncode, "no program.txt" in done.stderr), (1, True))

    def test_nothing_else_is_shown(self):
        if not shutil.which("nm"):
            self.skipTest("there is no nm")
        names = said("nm", "-D", "--defined-only", "--format=just-symbols", self.place / "prefix/lib/libtracestep.so").split()
        header = (self.place / "prefix/include/tracestep/tracestep.h").read_text()
        self.assertTrue(names)
        for name in names:
            self.assertIn(name.partition("@")[0] + "(", header)

    def test_a_refusal_has_words_and_the_status(self):
        program = self.place / "refused"
        said("cc", self.source, "-o", program, f"-I{self.place / 'prefix/include'}", f"-L{self.place / 'prefix/lib'}",
             "-ltracestep", f"-Wl,-rpath,{self.place / 'prefix/lib'}")
        done = subprocess.run([program, self.place / "nothing", self.place / "w"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no program.txt", done.stderr)


class ExamplesTest(unittest.TestCase):
    def test_a_loop_of_three_changed_lines_has_pytorchs_losses(self):
        import gpt_loop
        ours, model = gpt_loop.train(12)
        theirs, other = gpt_loop.train(12, plain=True)
        for a, b in zip(ours, theirs):
            self.assertAlmostEqual(a, b, delta=2e-4)
        self.assertLess(ours[-1], ours[0] - 1)
        for p, q in zip(model.parameters(), other.parameters()):
            self.assertLess(float((p - q).detach().abs().max()), 2e-3)

    def test_a_trainer_has_pytorchs_losses(self):
        try:
            import trainer
            from transformers import Trainer
        except ImportError as problem:
            self.skipTest(str(problem))
        ours, model = trainer.train(trainer.StepTrainer)
        theirs, other = trainer.train(Trainer)
        self.assertEqual(len(ours), 4)
        for a, b in zip(ours, theirs):
            for key in ("loss", "grad_norm", "learning_rate"):
                self.assertAlmostEqual(float(a[key]), float(b[key]), delta=2e-3)
        for p, q in zip(model.parameters(), other.parameters()):
            self.assertLess(float((p - q).detach().abs().max()), 2e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--program", default=PROGRAM)
    mine, rest = parser.parse_known_args()
    PROGRAM = os.path.abspath(mine.program)
    try:
        import torch
    except ImportError as problem:
        print(f"skipped: {problem}; tools/python_env makes an environment with torch")
        sys.exit(77)
    import tracestep
    tracestep.use(PROGRAM)
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *rest])
