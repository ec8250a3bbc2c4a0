"""Lets tools/test_gpu run a program of tests that are slow, hang or crash, and expects each to get its own time."""
import importlib.machinery
import importlib.util
import stat
import sys
import tempfile
import time
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("test_gpu", str(TOOLS / "test_gpu"))
test_gpu = importlib.util.module_from_spec(importlib.util.spec_from_loader("test_gpu", loader))
loader.exec_module(test_gpu)

# Says what GoogleTest says; a test's name says what it does.
PROGRAM = f"""#!{sys.executable}
import os, sys, time
names = sys.argv[1].removeprefix("--gtest_filter=").split(":")
if names[0] == "S.start": time.sleep(60)
for name in names:
    print(f"[ RUN      ] {{name}}", flush=True)
    what = name.split(".")[1]
    if what.startswith("slow"): time.sleep(0.5)
    if what.startswith("hang"): time.sleep(60)
    if what.startswith("crash"): os._exit(6)
    word = "  FAILED  " if what.startswith("fail") else "       OK "
    print(f"[{{word}}] {{name}} (500 ms)", flush=True)
"""


class TestGpuTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = Path(folder.name, "test_some")
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def results(self, *names, seconds=2.0, all_seconds=60.0):
        end = time.monotonic() + all_seconds
        found = test_gpu.run_tests(self.program, [f"S.{n}" for n in names], seconds,
                                   lambda: end - time.monotonic())
        self.assertEqual([r.name for r in found], [f"test_some/S.{n}" for n in names])
        return found

    def test_the_last_of_many_has_as_much_time_as_the_first(self):
        names = [f"slow{i}" for i in range(6)]
        for result in self.results(*names):  # three seconds together
            self.assertEqual(result.status, "passed", result.output)

    def test_a_test_that_hangs_is_named_as_cut_and_the_rest_run(self):
        first, hung, last = self.results("slow", "hang", "slow2")
        self.assertEqual([first.status, hung.status, last.status], ["passed", "failed", "passed"])
        self.assertIn("cut by the clock: it had run for 2 s, and 2 s are its own", hung.output)

    def test_a_crash_is_not_called_cut(self):
        crashed, last = self.results("crash", "fine")
        self.assertEqual([crashed.status, last.status], ["failed", "passed"])
        self.assertIn("(the program ended here)", crashed.output)
        self.assertNotIn("clock", crashed.output)

    def test_the_end_of_all_time_tells_the_cut_from_those_that_were_not_begun(self):
        cut, other = self.results("hang", "fine", seconds=30.0, all_seconds=1.0)
        self.assertIn("no time was left for all", cut.output)
        self.assertEqual(other.output, "not begun: no time was left")

    def test_a_program_that_does_not_begin_ends_too(self):
        for result in self.results("start", "fine"):
            self.assertEqual(result.status, "failed")
            self.assertIn("cut by the clock", result.output)

    def test_what_fails_is_failed(self):
        failed, passed = self.results("fail", "fine")
        self.assertEqual([failed.status, passed.status], ["failed", "passed"])


if __name__ == "__main__":
    unittest.main()
